"""Let operators on single pixels work on rows as they lie, so that no reshapes stand between them.

The front end makes an image of each row for a dense layer and one image of all rows for a sum. In
memory both are the same, but a reshape ends a segment.
"""

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, op, rewrite, rule, value
from .patterns import image_shape, reshaped


def _by_pixel(convolution: ops.QConv) -> bool:
    plain = convolution.strides == (1, 1) and not any(convolution.pads)
    return plain and convolution.groups == 1


@rule(
    op(ops.QConv, op(ops.Reshape, value("x")), ..., capture="layer", where=_by_pixel),
    op((ops.QLut, ops.QNorm, ops.QSoftmax), op(ops.Reshape, value("x")), ..., capture="layer"),
)
def keep_rows(site: Site, x: str) -> str | None:
    """f(Reshape(x)) -> Reshape(f(x)), for rows of the same channels."""
    given, shape = site.shape_of(site.root.inputs[0]), site.shape_of(x)
    kept = shape if len(shape) == len(given) else image_shape(shape)
    weights = site.root.inputs[1:2]
    whole = any(site.shape_of(w)[:2] != (1, 1) for w in weights if len(site.shape_of(w)) == 4)
    if whole or kept == given or len(given) != len(kept) or kept[-1] != given[-1]:
        return None
    image = reshaped(site, x, kept)
    made = site.become(site.root.attributes, image, *site.root.inputs[1:])
    return site.emit(ops.Reshape(site.shape), made)


@rule(
    op(
        ops.QAdd,
        op(ops.Reshape, value("a")),
        op(ops.Reshape, value("b")),
    )
)
def add_rows(site: Site, a: str, b: str) -> str | None:
    """QAdd(Reshape(a), Reshape(b)) -> Reshape(QAdd(a, b))."""
    shape = site.shape_of(a)
    if len(shape) != len(site.shape) or shape != site.shape_of(b) or shape[-1] != site.shape[-1]:
        return None
    made = site.become(site.root.attributes, a, b)
    return reshaped(site, made, site.shape)


@rule(op(ops.Reshape, op(ops.Reshape, value("x"))))
def reshape_once(site: Site, x: str) -> str | None:
    """Reshape(Reshape(x)) -> Reshape(x)."""
    return reshaped(site, x, site.shape)


@rule(op(ops.Reshape, value("x")))
def drop_reshape(site: Site, x: str) -> str | None:
    """Reshape(x) -> x, if it has the shape."""
    return x if site.shape_of(x) == site.shape else None


def keep_rows_in_place(graph: Graph) -> Graph:
    """Move reshapes behind operators on single pixels, where they meet and cancel."""
    return rewrite(graph, keep_rows, add_rows, reshape_once, drop_reshape)
