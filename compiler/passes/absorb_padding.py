"""Merge Pad into windows: a Pad with the window's own padding value becomes its pads."""

import operator
from dataclasses import replace

from ..graph import operators as ops
from ..rewriting import Site, op, rule_of, value

LOWEST = -128
"""The padding value of a QMaxPool."""

INTEGER = (ops.QConv, ops.QSums, ops.QAvgPool, ops.QMaxPool)
"""Windows of [N, H, W, C]; float windows may have either layout."""

Window = ops.QConv | ops.QSums | ops.QAvgPool | ops.QMaxPool | ops.Conv | ops.AveragePool


@rule_of(
    (*INTEGER, ops.Conv, ops.AveragePool),
    op(ops.Pad, value("x"), capture="pad"),
    ...,
    capture="window",
)
def absorb_padding(site: Site, window: Window, pad: ops.Pad, x: str) -> str | None:
    """window(Pad(x, padding value)) -> window with larger pads(x).

    Merge Pad into the convolutions and pools below.
    """
    first = 1 if isinstance(window, INTEGER) or window.channels_last else 2
    inside = slice(first, first + len(window.pads) // 2)
    more = (*pad.before[inside], *pad.after[inside])
    if sum(more) != sum((*pad.before, *pad.after)) or pad.value != padding_of(window):
        return None
    merged = replace(window, pads=tuple(map(operator.add, window.pads, more)))
    if isinstance(merged, ops.AveragePool):
        if any(window.pads) and not merged.count_include_pad:
            return None
        merged = replace(merged, count_include_pad=True)
    return site.become(merged, x, *site.root.inputs[1:])


def padding_of(window: Window) -> float:
    """Return the value of a window's own padding."""
    if isinstance(window, (ops.QConv, ops.QSums, ops.QAvgPool)):
        return window.zero_point_x
    return LOWEST if isinstance(window, ops.QMaxPool) else 0
