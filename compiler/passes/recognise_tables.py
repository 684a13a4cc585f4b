"""Recognise functions of one int8: any elementwise float subgraph between Dequantize and Quantize.

The subgraph is evaluated on all 256 values, so the table is exact whatever stands in it: one
activation, a composed one such as `x * sigmoid(x)`, or a mere change of scale.
"""

import numpy as np

from ..graph import Builder, Graph, Node, evaluate_operator, rewrite
from ..graph import operators as ops
from .patterns import from_image, known_number, quantisation_of, quantised_output, to_image

ELEMENTWISE = (ops.Unary, ops.Binary, ops.Quantize, ops.Dequantize, ops.QLut)
"""Operators that may stand inside the subgraph."""


def recognise_tables(graph: Graph) -> Graph:
    """Replace elementwise subgraphs with one int8 input and one int8 output by QLut."""
    return rewrite(graph, _recognise)


def _recognise(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Quantize(f(Dequantize(x))) -> QLut(x, table of f); nothing at all where f changes nothing."""
    target = quantised_output(node)
    if target is None:
        return None
    x = _source(builder, node)
    if x is None:
        return None
    shape = node.output.type.shape
    memo = {x: np.arange(-128, 128).astype(np.int8)}
    values = _apply(builder, node.inputs[0], memo)
    table = np.broadcast_to(evaluate_operator(target, [values]), (256,))
    y = quantisation_of(target)
    old = builder.types[x].quantisation
    if np.array_equal(table, memo[x]) and (old == y or old is None):
        return from_image(builder, x, shape, node.name)
    constant = builder.constant(table, f"{node.name}.table")
    image = to_image(builder, x, node.name)
    result = builder.emit(ops.QLut(), [image, constant], node.name, quantisation=y)
    return from_image(builder, result, shape, node.name)


def _source(builder: Builder, node: Node) -> str | None:
    """Return the int8 value that all of the subgraph is a function of, if there is one.

    Where paths end at different values, those computed elementwise themselves are followed further
    up: `x * quantised sigmoid(x)` has one source.
    """
    elements = node.output.type.elements
    found = _leaves(builder, node.inputs[0], elements)
    while found is not None and len(found) > 1:
        deeper = None
        for name in sorted(found):
            inner = builder.producer(name)
            if inner is None or not isinstance(inner.attributes, (ops.Quantize, ops.QLut)):
                continue
            leaves = _leaves(builder, name, elements, through=True)
            if leaves is not None:
                deeper = (found - {name}) | leaves
                break
        found = deeper
    return None if not found else next(iter(found))


def _leaves(builder: Builder, name: str, elements: int, through: bool = False) -> set[str] | None:
    """Return the int8 values at which a float subgraph begins; None if it is not elementwise.

    All have as many elements as the result, so that nothing is broadcast but single numbers, and
    may be reshaped on the way. With `through`, `name` is an int8 value itself and the search goes
    on above it.
    """
    name = _before_reshapes(builder, name)
    kind = builder.types[name]
    if builder.is_constant(name) or known_number(builder, name) is not None:
        return set() if kind.elements == 1 else None
    if kind.elements != elements:
        return None
    node = builder.producer(name)
    if kind.dtype == "int8" and not through:
        return {name}
    if node is None or not isinstance(node.attributes, ELEMENTWISE):
        return None
    if getattr(node.attributes, "axis", None) is not None:
        return None
    operands = node.inputs[:1] if isinstance(node.attributes, ops.QLut) else node.inputs
    leaves: set[str] = set()
    for operand in operands:
        part = _leaves(builder, operand, elements)
        if part is None:
            return None
        leaves |= part
    return leaves


def _apply(builder: Builder, name: str, memo: dict[str, np.ndarray]) -> np.ndarray:
    """Evaluate the subgraph above `name` on the values in `memo`."""
    name = _before_reshapes(builder, name)
    if name not in memo:
        if builder.is_constant(name):
            data = builder.data(name)
            memo[name] = data if data.size != 1 else data.reshape(())
        else:
            node = builder.producer(name)
            assert node is not None, "the subgraph begins at its source"
            arrays = [_apply(builder, operand, memo) for operand in node.inputs]
            memo[name] = evaluate_operator(node.attributes, arrays)
    return memo[name]


def _before_reshapes(builder: Builder, name: str) -> str:
    node = builder.producer(name)
    while node is not None and isinstance(node.attributes, ops.Reshape):
        name = node.inputs[0]
        node = builder.producer(name)
    return name
