"""The verifier: it checks all rules of the graph IR in one place.

A violation is a mistake in a pass or in a hand-written graph. The message names the place.
"""

from ...errors import CompileError
from ...wording import counted
from .ir import Graph, Node
from .types import DTYPES, TensorType, check_size


def verify(graph: Graph, after: str = "") -> Graph:
    """Check a graph and return it.

    Each name is produced once, before it is read. Types follow from the attributes. Attributes are
    in range. The weights of integer operators are constants.

    Parameters
    ----------
    graph : Graph
        Graph to check.
    after : str
        Name of the pass that made the graph, for the message.

    Raises
    ------
    CompileError
        If the graph breaks a rule; the message names the node, and the expected and actual values.
    """
    where = f"graph `{graph.name}`" + (f" after `{after}`" if after else "")
    known: set[str] = set()
    for value in (*graph.inputs, *graph.constants):
        _define(where, known, value.name)
        _check_type(where, value.name, value.type)
    for node in graph.nodes:
        _check_node(f"{where}: node `{node.name}` (`{node.op}`)", graph, node, known)
    for output in graph.outputs:
        if output.value not in known:
            raise CompileError(
                f"{where}: output `{output.name}`: expected a value of the graph, got "
                f"`{output.value}`, which nothing produces; produce it or drop the output"
            )
    names = [output.name for output in graph.outputs]
    if not names or len(set(names)) != len(names):
        raise CompileError(
            f"{where}: expected one or more outputs of different names, got {names}; rename them"
        )
    return graph


def _define(where: str, known: set[str], name: str) -> None:
    if name in known:
        raise CompileError(
            f"{where}: value `{name}`: expected to be produced once, got a second producer; "
            "rename one of them"
        )
    known.add(name)


def _check_type(where: str, name: str, kind: TensorType) -> None:
    if kind.dtype not in DTYPES:
        raise CompileError(
            f"{where}: value `{name}`: expected one of {', '.join(DTYPES)}, got `{kind.dtype}`; "
            "cast it"
        )
    try:
        check_size(kind)
    except CompileError as error:
        raise CompileError(f"{where}: value `{name}`: {error}") from error
    quantisation = kind.quantisation
    if quantisation is None:
        return
    low, high = (0, 255) if kind.dtype == "uint8" else (-128, 127)
    if kind.dtype not in ("int8", "uint8", "int32") or (
        kind.dtype != "int32" and not low <= quantisation.zero_point <= high
    ):
        raise CompileError(
            f"{where}: value `{name}`: expected a zero point of `{kind.dtype}`, got "
            f"`{quantisation.zero_point}`; correct its quantisation"
        )


def _check_node(where: str, graph: Graph, node: Node, known: set[str]) -> None:
    for name in node.inputs:
        if name not in known:
            raise CompileError(
                f"{where}: input `{name}`: expected a value produced before, got none; order the "
                "nodes topologically"
            )
    try:
        expected = node.attributes.infer([graph.types[name] for name in node.inputs])
    except CompileError as error:
        raise CompileError(f"{where}: {error}") from error
    if len(node.outputs) != len(expected):
        raise CompileError(
            f"{where}: expected {counted(len(expected), 'output')}, got {len(node.outputs)}; "
            "give each a name"
        )
    for value, kind in zip(node.outputs, expected, strict=True):
        got = value.type
        _define(where, known, value.name)
        _check_type(where, value.name, got)
        if (kind.dtype, kind.shape) != (got.dtype, got.shape):
            raise CompileError(
                f"{where}: expected an output of {kind}, got {got}; correct the node's type"
            )
    _check_attributes(where, graph, node)


def _check_attributes(where: str, graph: Graph, node: Node) -> None:
    for name in node.inputs[len(node.operands) :]:
        if not graph.is_constant(name):
            raise CompileError(
                f"{where}: input `{name}`: expected a constant, got a value computed at run time; "
                "keep the node on the host"
            )
    mistake = node.attributes.mistake(node.outputs[0].type)
    if mistake:
        raise CompileError(f"{where}: {mistake}")
