"""Recognise slices of integers: Slice of int8 images -> QSlice, channels last."""

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, constant, op, rewrite, rule, value
from .patterns import TO_LAST, channels_first, is_int8, reshaped, to_image
from .recognise_concats import IMAGE_AXES

CHANNELS = 1
"""Axis of the channels in [N, C, H, W]."""


@rule(op(ops.Slice, value("x"), capture="cut", result=is_int8))
def recognise(site: Site, cut: ops.Slice, x: str) -> str | None:
    """Slice(x) -> QSlice(x), if the channels are adjacent."""
    if 0 in site.shape or len(site.shape) != len(TO_LAST) or cut.steps[CHANNELS] != 1:
        return None
    starts, stops, steps = (
        (values[0], values[2], values[3], values[1])
        for values in (cut.starts, cut.stops, cut.steps)
    )
    return channels_first(site, ops.QSlice(starts, stops, steps), x)


@rule(op(ops.Gather, value("x"), constant("indices"), capture="gather"))
def slice_even(site: Site, gather: ops.Gather, x: str, indices: str) -> str | None:
    """Gather(x) of one index, or of indices in even steps -> Slice(x)."""
    axis, given = gather.axis, site.shape_of(x)
    places = site.data(indices).ravel().astype(np.int64)
    places = np.where(places < 0, places + given[axis], places)
    steps = np.unique(np.diff(places))
    if not places.size or steps.size > 1 or (steps < 1).any():
        return None
    first, step = int(places[0]), int(steps[0]) if steps.size else 1
    starts, steps_, stops = [0] * len(given), [1] * len(given), [*given]
    starts[axis], stops[axis], steps_[axis] = first, int(places[-1]) + 1, step
    cut = site.emit(ops.Slice(tuple(starts), tuple(stops), tuple(steps_)), x)
    return reshaped(site, cut, site.shape)


@rule(op(ops.Gather, value("x"), constant("indices"), capture="gather", result=is_int8))
def reverse(site: Site, gather: ops.Gather, x: str, indices: str) -> str | None:
    """Gather(x) of all pixels in reverse -> QSlice(x) backwards."""
    given = site.shape_of(x)
    backwards = np.arange(given[gather.axis])[::-1]
    if site.shape != given or not np.array_equal(site.data(indices), backwards):
        return None
    if len(given) == len(TO_LAST):
        if gather.axis == CHANNELS:
            return None
        whole = tuple(given[axis] for axis in TO_LAST)
        return channels_first(site, _backwards(whole, TO_LAST.index(gather.axis)), x)
    if len(given) not in IMAGE_AXES or gather.axis == len(given) - 1:
        return None
    image = to_image(site, x)
    cut = _backwards(site.shape_of(image), IMAGE_AXES[len(given)][gather.axis])
    return reshaped(site, site.emit(cut, image), given)


def _backwards(shape: tuple[int, ...], axis: int) -> ops.QSlice:
    n, height, width, channels = shape
    starts, stops, steps = [0] * 4, [n, height, width, channels], [1] * 4
    starts[axis], stops[axis], steps[axis] = shape[axis] - 1, -1, -1
    return ops.QSlice(*((a, b, c, d) for a, b, c, d in (starts, stops, steps)))


def recognise_slices(graph: Graph) -> Graph:
    """Replace Slice of int8 images by QSlice."""
    return rewrite(graph, slice_even, reverse, recognise)
