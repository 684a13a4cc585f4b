"""The verifier: every rule that a graph keeps, checked in one place.

A broken rule is a mistake in a pass or a hand-written graph; the message names the place.
"""

from ...errors import CompileError
from . import operators as ops
from .infer import infer
from .ir import DTYPES, Graph, Node, TensorType
from .rules import check_size


def verify(graph: Graph, after: str = "") -> Graph:
    """Check a graph and return it.

    Names are produced once and before they are read, types follow from attributes, attributes are
    in range, and integer operators have constant weights.

    Parameters
    ----------
    graph : Graph
        To check.
    after : str
        What made it (a pass), for the message.

    Raises
    ------
    CompileError
        Naming the graph, the node, what was expected and what it has.
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
        expected = infer(node.attributes, [graph.types[name] for name in node.inputs])
    except CompileError as error:
        raise CompileError(f"{where}: {error}") from error
    if len(node.outputs) != len(expected):
        raise CompileError(
            f"{where}: expected {len(expected)} outputs, got {len(node.outputs)}; give each a name"
        )
    for value, kind in zip(node.outputs, expected, strict=True):
        got = value.type
        _define(where, known, value.name)
        _check_type(where, value.name, got)
        if (kind.dtype, kind.shape) != (got.dtype, got.shape):
            raise CompileError(
                f"{where}: expected an output of {kind.dtype}{list(kind.shape)}, got "
                f"{got.dtype}{list(got.shape)}; correct the node's type"
            )
    _check_attributes(where, graph, node)


def _check_attributes(where: str, graph: Graph, node: Node) -> None:
    attributes = node.attributes
    if isinstance(attributes, (ops.QConv, ops.QLut)):
        for name in node.inputs[1:]:
            if not graph.is_constant(name):
                raise CompileError(
                    f"{where}: input `{name}`: expected a constant, got a value computed at run "
                    "time; keep the node on the host"
                )
    if not isinstance(attributes, ops.CLAMPING):
        return
    if not -128 <= attributes.low <= attributes.high <= 127:
        raise CompileError(
            f"{where}: expected -128 <= low <= high <= 127, got low `{attributes.low}` and high "
            f"`{attributes.high}`; correct the clamp"
        )
    if isinstance(attributes, ops.QMaxPool):
        return
    quantisation = node.output.type.quantisation
    if quantisation is None or quantisation.zero_point != attributes.zero_point_y:
        raise CompileError(
            f"{where}: expected an output with zero point `{attributes.zero_point_y}`, got "
            f"`{quantisation}`; give the output its quantisation"
        )
    if isinstance(attributes, ops.QAdd) and not all(
        -32768 <= factor <= 32767 for factor in attributes.multipliers
    ):
        raise CompileError(
            f"{where}: expected multipliers of 16 bits, got {list(attributes.multipliers)}; "
            "fit them again"
        )
