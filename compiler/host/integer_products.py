"""Products of bytes whose scale, and usually zero point, are computed at run time."""

import numpy as np

from ..cpu import Extent, MatrixProduct, dequantised, has_small_pairs
from ..cpu.kernels.matrix_product import MAX_INNER
from ..graph import Node
from ..graph.operators import Binary, Cast, FromBytes, QSums, Reshape
from ..passes.normalisations import per_column
from ..rewriting import GraphMatch, computed, constant, either, op, value
from .kernel import HERE, HostKernel, HostScope, matcher

PLAIN = op(FromBytes, HERE)
SHAPED = op(Reshape, PLAIN)
LESS = op(Binary("Sub"), either(PLAIN, SHAPED), value("row"))
SCALED = op(Binary("Mul"), op(Cast("float32"), HERE), computed("factor"), commutative=True)
ADDED = op(Binary("Add"), HERE, constant("addend"), commutative=True)


@matcher(op(*(QSums, computed("x"), constant("w")), where=lambda sums: sums.kind == "dense"))
def integer_product(scope: HostScope, node: Node, x: str, w: str) -> HostKernel | None:
    """Match QSums, [less a row, [Cast to float32, Mul by a factor, [Add of a constant]]]."""
    weights = scope.data(w)[0, 0]
    inner, columns = weights.shape
    less, row = scope.behind(node, LESS), None
    sums = scope.behind(node, SHAPED) or scope.behind(node, PLAIN)
    if less is not None and scope.shape(less["row"]) == (columns,):
        sums, row = less, less["row"]
    if sums is None or not 0 < inner <= MAX_INNER or not node.output.type.elements:
        return None
    nodes: tuple[Node, ...] = (node, *sums.nodes)
    elements = nodes[-1].output.type.elements
    inputs, constants = {"x": x}, {"w": weights, "bias": np.zeros(columns, np.int32)}
    if row is not None and scope.is_constant(row):
        constants["bias"] = -scope.data(row)
    elif row is not None:
        inputs["row"] = row
    extent, scaled = None, scope.behind(nodes[-1], SCALED)
    if scaled is not None and _scales_columns(scope, scaled, elements, columns):
        inputs["factor"], nodes = scaled["factor"], (*nodes, *scaled.nodes)
        extent = Extent.ONE if scope.types[scaled["factor"]].elements == 1 else Extent.COLUMNS
        added = scope.behind(nodes[-1], ADDED)
        if added is not None and added.nodes[-1].output.type.elements == elements:
            shape = added.nodes[-1].output.type.shape
            addend = per_column(scope.data(added["addend"]), shape, columns)
            if addend is not None:
                nodes, constants["addend"] = (*nodes, *added.nodes), addend
    description = MatrixProduct(
        *(elements // columns, inner, columns, "int8"),
        epilogue=dequantised("row" in inputs, extent, "addend" in constants),
        small_pairs=has_small_pairs(weights),
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
