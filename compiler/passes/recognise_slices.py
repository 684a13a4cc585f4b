"""Recognise slices of integers: Slice of int8 images -> QSlice, channels last."""

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, op, rewrite, rule, value
from .patterns import TO_LAST, channels_first, is_int8

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


def recognise_slices(graph: Graph) -> Graph:
    """Replace Slice of int8 images by QSlice."""
    return rewrite(graph, recognise)
