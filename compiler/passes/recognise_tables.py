"""Recognise functions of one int8: any elementwise float subgraph between Dequantize and Quantize.

The subgraph is evaluated on all 256 values, so the table is exact for any subgraph: an activation,
a composition such as `x * sigmoid(x)`, or only a change of scale.
"""

import numpy as np

from ..graph import evaluate_operator
from ..graph import operators as ops
from ..rewriting import GraphView, Site, first_match, op, repeated, rule, value
from .patterns import known_number, of_images, quantisation_of, quantised, reshaped

ELEMENTWISE = (ops.Pointwise, ops.Quantize, ops.Dequantize, ops.QLut)
"""Operators that may stand inside the subgraph."""

BEFORE_RESHAPES = repeated(op(ops.Reshape, value()), value("name"))


@rule(quantised(value()))
def recognise_tables(site: Site, target: ops.Quantize) -> str | None:
    """Quantize(f(Dequantize(x))) -> QLut(x, table of f), or x if f is the identity.

    Replace elementwise subgraphs with one int8 input and one int8 output by QLut.
    """
    (given,) = site.root.inputs
    x = _source(site.view, given, site.root.output.type.elements)
    if x is None:
        return None
    memo = {x: np.arange(-128, 128).astype(np.int8)}
    values = _apply(site.view, given, memo)
    table = np.broadcast_to(evaluate_operator(target, [values]), (256,))
    y, old = quantisation_of(target), site.quantisation_of(x)
    if np.array_equal(table, memo[x]) and old in (y, None):
        return reshaped(site, x, site.shape)
    held = site.constants(site.root.name, table=table)
    return of_images(site, ops.QLut(), x, held=held, quantisation=y)


def _source(view: GraphView, given: str, elements: int) -> str | None:
    """Return the only int8 value on which the subgraph depends, if there is one.

    If paths end at different values, the search continues above those that are elementwise results:
    `x * quantised sigmoid(x)` has one source.
    """
    found = _leaves(view, given, elements)
    while found is not None and len(found) > 1:
        deeper = None
        for name in sorted(found):
            inner = view.producer(name)
            if inner is None or not isinstance(inner.attributes, (ops.Quantize, ops.QLut)):
                continue
            leaves = _leaves(view, name, elements, through=True)
            if leaves is not None:
                deeper = (found - {name}) | leaves
                break
        found = deeper
    return None if not found else next(iter(found))


def _leaves(view: GraphView, name: str, elements: int, through: bool = False) -> set[str] | None:
    """Return the int8 values at which a float subgraph begins; None if it is not elementwise.

    Each has as many elements as the result, so only single numbers are broadcast. Reshapes on the
    way are allowed. With `through`, `name` is itself an int8 value and the search continues above
    it.
    """
    leaves: set[str] = set()
    first, seen, waiting = _before_reshapes(view, name), set[str](), [name]
    while waiting:
        name = _before_reshapes(view, waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        kind = view.types[name]
        if view.is_constant(name) or known_number(view, name) is not None:
            if kind.elements != 1:
                return None
            continue
        if kind.elements != elements:
            return None
        if kind.dtype == "int8" and not (through and name == first):
            leaves.add(name)
            continue
        node = view.producer(name)
        if node is None or not isinstance(node.attributes, ELEMENTWISE):
            return None
        if getattr(node.attributes, "axis", None) is not None:
            return None
        waiting += node.inputs[:1] if isinstance(node.attributes, ops.QLut) else node.inputs
    return leaves


def _apply(view: GraphView, name: str, memo: dict[str, np.ndarray]) -> np.ndarray:
    """Evaluate the subgraph above `name` on the values in `memo`."""
    waiting = [name]
    while waiting:
        current = _before_reshapes(view, waiting[-1])
        if current in memo:
            waiting.pop()
        elif view.is_constant(current):
            data = view.data(current)
            memo[current] = data if data.size != 1 else data.reshape(())
        else:
            node = view.producer(current)
            assert node is not None, "the subgraph begins at its source"
            operands = [_before_reshapes(view, operand) for operand in node.inputs]
            missing = [operand for operand in operands if operand not in memo]
            waiting += missing
            if not missing:
                arrays = [memo[operand] for operand in operands]
                memo[current] = evaluate_operator(node.attributes, arrays)
    return memo[_before_reshapes(view, name)]


def _before_reshapes(view: GraphView, name: str) -> str:
    match = first_match(BEFORE_RESHAPES, view, name)
    return name if match is None else match["name"]
