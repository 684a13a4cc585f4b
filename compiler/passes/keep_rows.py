"""Let operators on single pixels work on rows as they lie, so that no reshapes stand between them.

The front end makes an image of each row for a dense layer and one image of all rows for a sum. In
memory both are the same, but a reshape ends a segment.
"""

from ..graph import Graph, is_accelerated
from ..graph import operators as ops
from ..rewriting import Site, each, op, rewrite, rule, rule_of, value
from .arrange_layout import drop_same_shape, has_one_tap, merge_reshapes
from .merge_duplicates import merge_duplicates
from .patterns import image_shape, is_int8, reshaped, to_image
from .recognise_concats import IMAGE_AXES


@rule_of((ops.QConv, ops.QLut, ops.QNorm, ops.QSoftmax), op(ops.Reshape, value("x")), ...)
def sink_reshape(site: Site, x: str) -> str | None:
    """f(Reshape(x)) -> Reshape(f(x)), for rows of the same channels, or any elements of a table."""
    function = site.root.attributes
    if isinstance(function, ops.QSoftmax) and any(site.root.inputs[1:]):
        return None  # the mask has the dimensions of these rows
    if isinstance(function, ops.QConv) and not has_one_tap(site):
        return None
    given, shape = site.shape_of(site.root.inputs[0]), site.shape_of(x)
    kept = shape if len(shape) == len(given) else image_shape(shape)
    fits = isinstance(function, ops.QLut) or kept[-1] == given[-1]
    if kept == given or len(given) != len(kept) or not fits:
        return None
    if kept[0] > given[0] and kept != shape:
        return None  # rows are together in one image already
    image = reshaped(site, x, kept)
    made = site.become(function, image, *site.root.inputs[1:])
    return site.emit(ops.Reshape(site.shape), made)


@rule(op(ops.QSlice, op(ops.Reshape, value("x")), capture="cut"))
def slice_channels(site: Site, cut: ops.QSlice, x: str) -> str | None:
    """QSlice(Reshape(x)) -> Reshape(QSlice(x)), if it takes channels of all rows."""
    given, shape = site.shape_of(site.root.inputs[0]), site.shape_of(x)
    whole = site.shape[:3] == given[:3] and not any(cut.starts[:3])
    if not whole or len(shape) != 4 or shape == given or shape[3] != given[3]:
        return None
    stops = (*shape[:3], cut.stops[3])
    made = site.become(ops.QSlice((0, 0, 0, cut.starts[3]), stops, (1, 1, 1, cut.steps[3])), x)
    return reshaped(site, made, site.shape)


@rule(op((ops.QAdd, ops.QMul, ops.QBlend), each(op(ops.Reshape, value("x")))))
def combine_rows(site: Site, x: tuple[str, ...]) -> str | None:
    """f(Reshape(a), Reshape(b)) -> Reshape(f(a, b)), for functions of elements in one place."""
    (shape, *others), given = map(site.shape_of, x), map(site.shape_of, site.root.inputs)
    fits = len(shape) == len(site.shape) and shape[-1] == site.shape[-1]
    if not fits or {*others} != {shape} or {*given} != {site.shape}:
        return None
    return reshaped(site, site.become(site.root.attributes, *x), site.shape)


@rule(op(ops.Slice, value("x"), capture="cut", result=is_int8))
def slice_rows(site: Site, cut: ops.Slice, x: str) -> str | None:
    """Slice(x) -> QSlice(x) of the image that holds a tensor of lower rank."""
    shape = site.shape_of(x)
    axes = IMAGE_AXES.get(len(shape))
    if axes is None or 0 in site.shape or cut.steps[-1] != 1:
        return None
    whole = cut.starts, cut.stops, cut.steps
    starts, stops, steps = (
        _as_image(dict(zip(axes, values, strict=True)), usual)
        for values, usual in zip(whole, (0, 1, 1), strict=True)
    )
    operator = ops.QSlice(starts, stops, steps)
    return reshaped(site, site.become(operator, to_image(site, x)), site.shape)


def _as_image(values: dict[int, int], usual: int) -> tuple[int, int, int, int]:
    first, second, third, fourth = (values.get(axis, usual) for axis in range(4))
    return first, second, third, fourth


def rows_in_place(graph: Graph) -> Graph:
    """Let layers read the rows of other layers as images of another shape, where they lie."""
    read = {name for node in graph.nodes if is_accelerated(node) for name in node.inputs}

    @rule(op(ops.Reshape, op(ops.Accelerated, ..., value="x"), capture="flat", result=is_int8))
    def name_rows(site: Site, flat: ops.Reshape, x: str) -> str | None:
        """Reshape(x) -> QReshape(x)."""
        given = site.shape_of(x)
        if site.root.output.name not in read or len(given) != 4 or len(flat.shape) != 4:
            return None
        n, height, width, channels = flat.shape
        return site.become(ops.QReshape((n, height, width, channels)), x)

    return rewrite(graph, name_rows)


def keep_rows(graph: Graph) -> Graph:
    """Move reshapes behind operators on single pixels, where they meet and cancel."""
    rules = sink_reshape, slice_channels, combine_rows, slice_rows, merge_reshapes, drop_same_shape
    kept = rewrite(graph, *rules)
    # Several of one value may be equal now; other equal nodes have names that a user knows.
    return kept if kept.nodes == graph.nodes else merge_duplicates(kept)
