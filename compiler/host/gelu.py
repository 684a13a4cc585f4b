"""GELU as exporters write it out: `x * (1 + erf(x / sqrt(2))) / 2`, multiplied in any order."""

import math

from ..graph import Node
from ..graph.operators import Binary, Unary
from .kernel import Scope
from .walk import in_order, is_closed, scalar

ONE, HALF, ROOT, INVERSE = 1.0, 0.5, math.sqrt(2.0), 1.0 / math.sqrt(2.0)

TOLERANCE = 1e-6
"""Of the constants, relative."""


def gelu_after(scope: Scope, node: Node) -> tuple[Node, ...]:
    """The nodes that compute GELU of a node's value and end in its result; none if there are none.

    Nobody else may read the value, nor what lies between.
    """
    value = node.output
    readers = scope.graph.users(value.name)
    if len(readers) != 2 or scope.graph.is_output(value.name) or value.type.dtype != "float32":
        return ()
    for first, other in (readers, readers[::-1]):
        raised = _raised(scope, first, value.name)
        if raised is None:
            continue
        for nodes in (_halved_last(scope, raised, value.name), _halved_first(scope, raised, other)):
            found = in_order(scope, nodes)
            same = all(one.output.type.shape == value.type.shape for one in found)
            if found and same and is_closed(scope, (node, *found)):
                return found
    return ()


def _raised(scope: Scope, node: Node, x: str) -> tuple[Node, ...] | None:
    """The nodes of `1 + erf(x / sqrt(2))`, the first of which is given."""
    divided = _number(scope, node, "Div", x) == ROOT and node.inputs[0] == x
    if not divided and _number(scope, node, "Mul", x) != INVERSE:
        return None
    erf = scope.follower(node)
    if erf is None or erf.attributes != Unary("Erf"):
        return None
    raised = scope.follower(erf)
    if raised is None or _number(scope, raised, "Add", erf.output.name) != ONE:
        return None
    return node, erf, raised


def _halved_last(scope: Scope, raised: tuple[Node, ...], x: str) -> tuple[Node, ...]:
    """`x * raised`, then half of that; or half of `raised`, times `x`."""
    last = raised[-1]
    product = scope.follower(last)
    if product is None:
        return ()
    if _number(scope, product, "Mul", last.output.name) == HALF:
        end = scope.follower(product)
        done = end is not None and _multiplies(end, product.output.name, x)
    else:
        end = scope.follower(product) if _multiplies(product, last.output.name, x) else None
        done = end is not None and _number(scope, end, "Mul", product.output.name) == HALF
    return (*raised, product, end) if done and end is not None else ()


def _halved_first(scope: Scope, raised: tuple[Node, ...], half: Node) -> tuple[Node, ...]:
    """`x / 2`, times `raised`."""
    names = [name for name in half.inputs if not scope.graph.is_constant(name)]
    if len(names) != 1 or _number(scope, half, "Mul", names[0]) != HALF:
        return ()
    product = scope.follower(raised[-1])
    if product is None or not _multiplies(product, raised[-1].output.name, half.output.name):
        return ()
    return (*raised, half, product)


def _multiplies(node: Node, a: str, b: str) -> bool:
    return node.attributes == Binary("Mul") and sorted(node.inputs) == sorted((a, b))


def _number(scope: Scope, node: Node, kind: str, x: str) -> float | None:
    """The constant that a Binary takes beside `x`, if it is one of those that GELU has."""
    if node.attributes != Binary(kind) or node.inputs.count(x) != 1:
        return None
    number = scalar(scope, node.inputs[1 - node.inputs.index(x)])
    if number is None:
        return None
    known = (ONE, HALF, ROOT, INVERSE)
    return next((one for one in known if math.isclose(number, one, rel_tol=TOLERANCE)), None)
