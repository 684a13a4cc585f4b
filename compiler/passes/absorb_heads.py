"""Let matrix products read and write heads in place, so that attention moves no data for them.

A network reshapes channels to heads and transposes the heads to the front, for each operand, and
back for the result. A QMatMul accepts heads side by side in the channels, and a transposed operand.
"""

from dataclasses import replace

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, op, rewrite, rule, value

SWAP_HEADS = ops.Transpose((0, 2, 1, 3))
"""[N, rows, heads, channels] <-> [N, heads, rows, channels]."""

SWAP_LAST = ops.Transpose((0, 1, 3, 2))
"""[N, heads, rows, channels] -> [N, heads, channels, rows]."""

SWAP_BOTH = ops.Transpose((0, 2, 3, 1))
"""[N, rows, heads, channels] -> [N, heads, channels, rows]."""

KNOWN = ((SWAP_HEADS,), (SWAP_HEADS, SWAP_LAST, SWAP_BOTH))
"""Transposes that the attributes can express, for the first and the second operand."""


def _absorbed(site: Site, product: ops.QMatMul, moved: ops.Transpose, x: str, index: int) -> str:
    if moved != SWAP_LAST:
        n, rows, heads, channels = site.shape_of(x)
        x = site.emit(ops.Reshape((n, 1, rows, heads * channels)), x)
    joined = [one or (place == index and moved != SWAP_LAST)
              for place, one in enumerate(product.joined)]  # fmt: skip
    operands = list(site.root.inputs)
    operands[index] = x
    return site.become(
        replace(
            product,
            transposed=product.transposed != (moved != SWAP_HEADS),
            joined=(joined[0], joined[1], joined[2]),
        ),
        *operands,
    )


@rule(
    op(
        ops.QMatMul,
        *(op(KNOWN[0], value("x"), capture="moved"), ...),
        capture="product",
        where=lambda product: not product.joined[0],
    )
)
def absorb_first(site: Site, product: ops.QMatMul, moved: ops.Transpose, x: str) -> str | None:
    """QMatMul(Transpose(x), b) -> QMatMul(Reshape(x), b)."""
    return _absorbed(site, product, moved, x, 0)


@rule(
    op(
        ops.QMatMul,
        *(value(), op(KNOWN[1], value("x"), capture="moved")),
        capture="product",
        where=lambda product: not product.joined[1],
    )
)
def absorb_second(site: Site, product: ops.QMatMul, moved: ops.Transpose, x: str) -> str | None:
    """QMatMul(a, Transpose(x)) -> QMatMul(a, Reshape(x))."""
    return _absorbed(site, product, moved, x, 1)


@rule(
    op(
        SWAP_HEADS,
        op(
            *(ops.QMatMul, value("a"), value("b")),
            capture="product",
            where=lambda product: not product.joined[2],
            private=True,
        ),
    )
)
def absorb_result(site: Site, product: ops.QMatMul, a: str, b: str) -> str | None:
    """Transpose(QMatMul(a, b)) -> Reshape(QMatMul(a, b)), heads side by side."""
    first, second, _ = product.joined
    made = site.node("product")
    joined = replace(product, joined=(first, second, True))
    kind = made.output.type.quantisation
    result = site.emit(joined, a, b, label=made.name, quantisation=kind)
    return site.emit(ops.Reshape(site.shape), result)


@rule(
    op(
        ops.Transpose,
        op(ops.Reshape, op(ops.QMatMul, value="product"), capture="flat"),
        capture="moved",
    )
)
def turn_earlier(site: Site, moved: ops.Transpose, flat: ops.Reshape, product: str) -> str | None:
    """Transpose(Reshape(QMatMul)) of rank 3 -> Reshape(Transpose(QMatMul)), for one image."""
    shape = site.shape_of(product)
    if flat.shape != shape[1:] or shape[0] != 1:
        return None
    permutation = (0, *(axis + 1 for axis in moved.permutation))
    turned = site.emit(ops.Transpose(permutation), product)
    return site.emit(ops.Reshape(site.shape), turned)


def absorb_heads(graph: Graph) -> Graph:
    """Replace Transposes around QMatMul by its attributes."""
    return rewrite(graph, absorb_first, absorb_second, absorb_result, turn_earlier)
