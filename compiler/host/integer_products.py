"""Products of bytes whose scale, and usually zero point, are computed at run time."""

import numpy as np

from ...isa.numbers import int8_terms
from ..cpu import Extent, MatrixProduct, dequantised, has_small_pairs
from ..cpu.kernels.matrix_product import MAX_INNER
from ..graph import Node
from ..graph.operators import Binary, Cast, IntegerMatMul
from ..passes.normalisations import per_column
from ..rewriting import GraphMatch, computed, constant, op, value
from .kernel import HERE, HostKernel, HostScope, matcher

SCALED = op(Binary("Mul"), op(Cast("float32"), HERE), computed("factor"), commutative=True)
ADDED = op(Binary("Add"), HERE, constant("addend"), commutative=True)


@matcher(op(*(IntegerMatMul, computed("x"), constant("w")), value("zero")))
def integer_product(scope: HostScope, node: Node, x: str, w: str, zero: str) -> HostKernel | None:
    """Match IntegerMatMul, [Cast to float32, Mul by a factor, [Add of a constant]]."""
    inner, columns = scope.shape(w)
    elements = node.output.type.elements
    if not 0 < inner <= MAX_INNER or not elements:
        return None
    weights, kind, known = scope.data(w), scope.types[x].dtype, scope.constant(zero)
    sums = weights.sum(axis=0, dtype=np.int32)
    nodes: tuple[Node, ...] = (node,)
    inputs, constants = {"x": x}, {"w": weights}
    if known is None:
        constants |= {"bias": np.zeros_like(sums), "sums": sums}
        inputs["zero"] = zero
    else:
        constants["bias"] = sums * -known.reshape(1).astype(np.int32)
    extent, scaled = None, scope.behind(node, SCALED)
    if scaled is not None and _scales_columns(scope, scaled, elements, columns):
        inputs["factor"], nodes = scaled["factor"], (node, *scaled.nodes)
        extent = Extent.ONE if scope.types[scaled["factor"]].elements == 1 else Extent.COLUMNS
        added = scope.behind(nodes[-1], ADDED)
        if added is not None and added.nodes[-1].output.type.elements == elements:
            shape = added.nodes[-1].output.type.shape
            row = per_column(scope.data(added["addend"]), shape, columns)
            if row is not None:
                nodes, constants["addend"] = (*nodes, *added.nodes), row
    parts = len(int8_terms(weights))
    description = MatrixProduct(
        *(elements // columns, inner, columns, kind),
        epilogue=dequantised(kind if known is None else None, extent, "addend" in constants),
        weights=str(weights.dtype),
        small_pairs=parts == 1 and has_small_pairs(weights),
        parts=parts,
    )
    return HostKernel(description, inputs, constants, nodes, exact=True)


def _scales_columns(scope: HostScope, found: GraphMatch, elements: int, columns: int) -> bool:
    """Whether a factor is one number, or one for each column, and is not the sum itself."""
    cast, product = found.nodes
    kind = scope.types[found["factor"]]
    fits = kind.elements == 1 or kind.elements == columns == kind.shape[-1]
    other = found["factor"] != cast.output.name
    return fits and other and product.output.type.elements == elements


MATCHERS = (integer_product,)
