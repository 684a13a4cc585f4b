"""Compute with sequences as images of one row, as their convolutions do.

The importer reshapes [N, C, L] to [N, C, 1, L] before a convolution or pool, and back after it. The
reshape back sinks below operators without neighbours until the next reshape cancels it, so that
passes see one form: batch normalisation, activations, gates and sums between layers of images.
"""

from dataclasses import replace

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, each, either, op, rewrite, rule, value
from .arrange_layout import drop_same_shape, merge_reshapes
from .patterns import some_operand_fills

ROW = 2
"""The axis of an image that its sequence lacks."""

SEQUENCE = op(ops.Reshape, value("image"))

ELEMENTWISE = ops.Unary, ops.Binary, ops.Where, ops.OwnFunction, ops.Quantize, ops.Dequantize


def _image_of(site: Site, sequence: str, image: str | None) -> str | None:
    """Return the image that was reshaped to a sequence; None for other reshapes."""
    shape = site.shape_of(sequence)
    if image is None or len(shape) != 3:
        return None
    return image if site.shape_of(image) == _lifted(shape, 1) else None


def _lifted(values: tuple[int, ...], usual: int) -> tuple[int, ...]:
    return (*values[:ROW], usual, *values[ROW:])


@rule(op(ELEMENTWISE, each(either(SEQUENCE, value())), capture="function"))
def sink_below_function(
    site: Site, function: ops.Operator, image: tuple[str | None, ...]
) -> str | None:
    """f(Reshape(x), y) -> Reshape(f(x, y with one row)), where x is not broadcast."""
    names = site.root.inputs
    if site.shape[-1:] == (1,) and len(names) > 1:
        return None  # statistics of rows, which norms combine as they are
    found = [_image_of(site, *each) for each in zip(names, image, strict=True)]
    if not some_operand_fills(site, found):
        return None
    if isinstance(function, ops.Quantize | ops.Dequantize) and function.axis == ROW:
        function = replace(function, axis=ROW + 1)
    operands = [one or _with_row(site, name) for name, one in zip(names, found, strict=True)]
    return site.emit(ops.Reshape(site.shape), site.become(function, *operands))


def _with_row(site: Site, name: str) -> str:
    """Return an operand with the axis of rows, so that it broadcasts to the image."""
    shape = site.shape_of(name)
    whole = _lifted((*(1,) * (3 - len(shape)), *shape), 1)
    if site.is_constant(name):
        return site.constant(site.data(name).reshape(whole), f"{name}.row")
    return site.emit(ops.Reshape(whole), name)


@rule(op((ops.Pad, ops.Slice), SEQUENCE, capture="cut"))
def sink_below_cut(site: Site, cut: ops.Pad | ops.Slice, image: str) -> str | None:
    """Pad | Slice(Reshape(x)) -> Reshape(Pad | Slice(x))."""
    if _image_of(site, site.root.inputs[0], image) is None:
        return None
    if isinstance(cut, ops.Pad):
        made = replace(cut, before=_lifted(cut.before, 0), after=_lifted(cut.after, 0))
    else:
        lifted = [_lifted(*each) for each in ((cut.starts, 0), (cut.stops, 1), (cut.steps, 1))]
        made = ops.Slice(*lifted)
    return site.emit(ops.Reshape(site.shape), site.become(made, image))


@rule(op(ops.Concat, each(either(SEQUENCE, value())), capture="concat"))
def sink_below_concat(site: Site, concat: ops.Concat, image: tuple[str | None, ...]) -> str | None:
    """Concat(Reshape(x), y) -> Reshape(Concat(x, y with one row))."""
    names = site.root.inputs
    found = [_image_of(site, *each) for each in zip(names, image, strict=True)]
    if not any(found):
        return None
    operands = [one or _with_row(site, name) for name, one in zip(names, found, strict=True)]
    axis = concat.axis + (concat.axis >= ROW)
    return site.emit(ops.Reshape(site.shape), site.become(ops.Concat(axis), *operands))


@rule(op(ops.Reduce, value("x"), capture="mean", where=lambda r: r.kind == "ReduceMean"))
def pool_row(site: Site, mean: ops.Reduce, x: str) -> str | None:
    """Mean along the row of a one-row image [N, C, 1, W], without that axis -> AveragePool."""
    given = site.shape_of(x)
    if len(given) != 4 or given[ROW] != 1 or mean.keep or mean.axes != (3,) or given[3] < 2:
        return None
    window = (1, given[3])
    pool = site.emit(ops.AveragePool(window, window, (0,) * 4), x)
    return site.emit(ops.Reshape(site.shape), pool)


def lift_sequences(graph: Graph) -> Graph:
    """Sink reshapes from images of one row to sequences."""
    return rewrite(
        *(graph, sink_below_function, sink_below_cut, sink_below_concat, pool_row),
        *(merge_reshapes, drop_same_shape),
    )
