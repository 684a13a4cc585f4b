"""Repeat an operand that has one value for all channels, as attention by position does.

The lanes of a step are channels, so an addition or a product reads a value for each. The array
repeats it: a convolution of single pixels, whose weights are 1, copies a channel to all others.
"""

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, op, rewrite, rule, value


@rule(op((ops.QAdd, ops.QMul), value("a"), value("b")))
def repeat_channel(site: Site, a: str, b: str) -> str | None:
    """QAdd | QMul(a, b of one channel) -> QAdd | QMul(a, QConv(b) with ones)."""
    channels = site.shape[3]
    if site.shape_of(b)[3] == channels:
        return None
    copy = ops.QConv("conv", (1, 1), (0, 0, 0, 0), (1, 1), 1, 0, 0, -128, 127)
    held = site.constants(
        f"{site.root.name}.copies",
        weights=np.ones((1, 1, 1, channels), np.int8),
        bias=np.zeros(channels, np.int32),
        scale=np.ones(channels, np.float32),
    )
    wide = site.emit(copy, b, *held, quantisation=site.quantisation_of(b))
    return site.become(site.root.attributes, a, wide)


def repeat_channels(graph: Graph) -> Graph:
    """Repeat operands of one channel for additions and products of several."""
    return rewrite(graph, repeat_channel)
