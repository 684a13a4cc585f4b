"""Search for Concats whose parts differ too much to share one scale; these stay in float.

Detectors are the common case: they join coordinates up to hundreds of pixels with scores up to 1.
In the scale of the coordinates all scores become zero, although the total noise looks harmless.
"""

from collections.abc import Iterable

from ..graph import Graph
from ..graph import operators as ops
from .calibrate import ActivationStatistics
from .float_layer import origin
from .points import Points
from .ranges import LEVELS

MIN_STEPS = 8
"""Minimum range of each part, in steps of the common scale."""

TOLERANT = ("add", "table")
"""Kinds of layers that may read a float Concat; all others need int8 in one scale."""


def unlike_joins(graph: Graph, points: Points, statistics: ActivationStatistics) -> frozenset[str]:
    """Return the outputs of quantised Concats whose scale is too coarse for one of their parts.

    A Concat stays quantised if a convolution or a similar layer reads it.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    points : Points
        Its points of quantisation.
    statistics : ActivationStatistics
        Statistics of these points.
    """
    needed = {
        origin(graph, name)
        for layer in points.layers
        if layer.kind not in TOLERANT
        for name in layer.inputs
    }
    apart: set[str] = set()
    for group in points.groups:
        joins = {name for name in group if _is_join(graph, name)}
        if joins and needed.isdisjoint(joins) and _loses_a_part(group, statistics):
            apart |= joins
    return frozenset(apart)


def _is_join(graph: Graph, name: str) -> bool:
    node = graph.producer(name)
    return node is not None and isinstance(node.attributes, ops.Concat)


def _loses_a_part(group: Iterable[str], statistics: ActivationStatistics) -> bool:
    """Tell whether the narrowest non-zero range of a group is only a few steps of the widest."""
    known = [statistics.histograms[name] for name in group]
    widths = [max(each.high, 0.0) - min(each.low, 0.0) for each in known if each.total]
    wide = [width for width in widths if width > 0]
    return bool(wide) and min(wide) * LEVELS < max(wide) * MIN_STEPS
