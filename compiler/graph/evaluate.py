"""The reference evaluator: it computes a graph node by node in NumPy.

Once the quantised patterns are recognised, it is the integer reference: every accelerator layer and
every output must equal it bit for bit. Before that, it gives the float results of the model.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...errors import CompileError
from .ir import Graph, Node
from .operator import Operator
from .operators import Accelerated


def is_accelerated(node: Node) -> bool:
    """Tell whether a node has an exact integer definition, so that the accelerator may run it."""
    return isinstance(node.attributes, Accelerated)


def accelerated_nodes(graph: Graph) -> list[Node]:
    """Return the nodes that the accelerator may run.

    Nodes on empty samples are left out, and so are nodes on constants alone.
    """
    return [
        node
        for node in graph.nodes
        if is_accelerated(node)
        and not all(map(graph.is_constant, node.operands))
        and not any(0 in graph.types[name].shape[1:] for name in (*node.inputs, node.output.name))
    ]


def evaluate_outputs(operator: Operator, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Apply one operator to arrays and return all its outputs.

    Raises
    ------
    CompileError
        If the operator cannot compute with the values, for example if an index is out of range.
    """
    try:
        result = operator.compute(*arrays)
    except (ValueError, IndexError, ArithmeticError, MemoryError) as error:
        detail = " ".join(str(error).split())
        raise CompileError(
            f"`{operator.op}`: expected values that it can compute with, got `{detail}`; correct "
            "the operands"
        ) from error
    return tuple(map(np.asarray, result)) if isinstance(result, tuple) else (np.asarray(result),)


def evaluate_operator(operator: Operator, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Apply one operator with a single output to arrays."""
    (result,) = evaluate_outputs(operator, arrays)
    return result


def evaluate_node(node: Node, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return the arrays of a node's outputs from those of its inputs.

    Raises
    ------
    CompileError
        As `evaluate_outputs`; the message names the node.
    """
    try:
        return evaluate_outputs(node.attributes, arrays)
    except CompileError as error:
        raise CompileError(f"node `{node.name}`: {error}") from error


def evaluate(
    graph: Graph, inputs: Mapping[str, np.ndarray], keep: Iterable[str] = ()
) -> dict[str, np.ndarray]:
    """Compute the outputs of a graph.

    Parameters
    ----------
    graph : Graph
        Graph from any stage of the front end.
    inputs : mapping
        Name of each input -> its array. Type and shape must be exactly those of the input.
    keep : iterable of str
        Names of other values to return.

    Returns
    -------
    dict
        Name of each output and of each value in `keep` -> its array.

    Raises
    ------
    CompileError
        If an input is missing, unknown, or has another type or shape; if `keep` names no value.
    """
    check_inputs(graph, inputs)
    keep = tuple(keep)
    for name in keep:
        if name not in graph.types:
            raise CompileError(
                f"graph `{graph.name}`: expected values of the graph in `keep`, got `{name}`; "
                "print the graph to see its values"
            )
    values = {constant.name: constant.data for constant in graph.constants}
    values |= {value.name: np.asarray(inputs[value.name]) for value in graph.inputs}
    wanted = {*keep, *(output.value for output in graph.outputs)}
    remaining = {name: len(graph.users(name)) for name in graph.types}
    for node in graph.nodes:
        results = evaluate_node(node, [values[name] for name in node.inputs])
        for value, result in zip(node.outputs, results, strict=True):
            values[value.name] = result
        for name in dict.fromkeys(node.inputs):
            remaining[name] -= 1
            if not remaining[name] and name not in wanted:
                del values[name]
    shown = {output.name: values[output.value] for output in graph.outputs}
    return shown | {name: values[name] for name in keep}


def check_inputs(graph: Graph, inputs: Mapping[str, np.ndarray]) -> None:
    """Reject inputs that do not fit the graph.

    Raises
    ------
    CompileError
        If an input does not fit; the message names it, with the expected and the actual type.
    """
    names = [value.name for value in graph.inputs]
    if set(names) != set(inputs):
        raise CompileError(
            f"graph `{graph.name}`: expected inputs {names}, got {sorted(inputs)}; give each "
            "input of the model by its name"
        )
    for value in graph.inputs:
        array = np.asarray(inputs[value.name])
        if str(array.dtype) != value.type.dtype or array.shape != value.type.shape:
            raise CompileError(
                f"graph `{graph.name}`: input `{value.name}`: expected {value.type.dtype}"
                f"{list(value.type.shape)}, got {array.dtype}{list(array.shape)}; convert it"
            )
