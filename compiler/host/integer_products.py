"""Products of bytes whose scale, and usually zero point, are computed at run time."""

import numpy as np

from ..cpu import IntegerProduct, has_small_pairs
from ..cpu.kernels.integer_product import MAX_INNER, parts_of
from ..graph import Node
from ..graph.operators import Binary, Cast, IntegerMatMul
from ..rewriting import op, value
from .graph_queries import per_column
from .kernel import HostKernel, HostScope, matcher


@matcher(
    op(
        *(IntegerMatMul, value("x", constant=False), value("w", constant=True)),
        value("zero"),
    )
)
def integer_product(scope: HostScope, node: Node, x: str, w: str, zero: str) -> HostKernel | None:
    """Match IntegerMatMul, [Cast to float32, Mul by a factor, [Add of a constant]]."""
    inner, columns = scope.shape(w)
    elements = node.output.type.elements
    if not 0 < inner <= MAX_INNER or not elements:
        return None
    nodes: tuple[Node, ...] = (node,)
    inputs, constants = {"x": x}, {"w": scope.data(w)}
    if scope.is_constant(zero):
        constants["zero"] = scope.data(zero).reshape(1)
    else:
        inputs["zero"] = zero
    parts = len(parts_of(constants["w"]))
    factors, scaled = 0, _scaled(scope, node, columns)
    if scaled is not None:
        cast, product, factor = scaled
        nodes, factors = (node, cast, product), scope.types[factor].elements
        inputs["factor"] = factor
        added = _added(scope, product, columns)
        if added is not None:
            nodes, constants["addend"] = (*nodes, added[0]), added[1]
    description = IntegerProduct(
        *(elements // columns, inner, columns, scope.types[x].dtype, factors),
        has_addend="addend" in constants,
        parts=parts,
        small_pairs=parts == 1 and has_small_pairs(constants["w"][None, None]),
        known_zero="zero" in constants,
    )
    return HostKernel(description, inputs, constants, nodes, exact=True)


def _scaled(scope: HostScope, node: Node, columns: int) -> tuple[Node, Node, str] | None:
    """Return the Cast to float32, the Mul and its factor behind a node; None if they do not fit.

    The factor is one number, or one for each column.
    """
    cast = scope.follower(node)
    if cast is None or cast.attributes != Cast("float32"):
        return None
    product = scope.follower(cast)
    if product is None or product.attributes != Binary("Mul"):
        return None
    factor = product.inputs[product.inputs[0] == cast.output.name]
    kind = scope.types[factor]
    fits = kind.elements == 1 or kind.elements == columns == kind.shape[-1]
    known = scope.is_constant(factor) or factor == cast.output.name
    same = product.output.type.elements == node.output.type.elements
    return (cast, product, factor) if fits and same and not known else None


def _added(scope: HostScope, node: Node, columns: int) -> tuple[Node, np.ndarray] | None:
    """Return the Add behind a node, and the constant row that it adds; None if there is none."""
    added = scope.follower(node)
    if added is None or added.attributes != Binary("Add"):
        return None
    shape, own = added.output.type.shape, node.output.name
    constant = scope.constant(added.inputs[added.inputs[0] == own])
    if constant is None or added.output.type.elements != node.output.type.elements:
        return None
    row = per_column(constant, shape, columns)
    return None if row is None else (added, row)


MATCHERS = (integer_product,)
