"""Drop the taps of windows that meet only padding, as far dilated windows on small images have."""

from dataclasses import replace

import numpy as np

from ..graph import operators as ops
from ..rewriting import Site, op, rule, value


@rule(op((ops.Conv, ops.QConv), value("x"), value("w"), ..., capture="window"))
def trim_windows(site: Site, window: ops.Conv | ops.QConv, x: str, w: str) -> str | None:
    """f(x) -> f without its outer taps that meet no pixel for any result.

    Drop taps of convolutions that meet only padding.
    """
    others = site.root.inputs[2:]
    if not all(map(site.is_constant, (w, *others))) or getattr(window, "spare", 0):
        return None
    weights, count = site.data(w), len(window.strides)
    last = isinstance(window, ops.QConv) or window.channels_last
    image, first = (slice(1, -1), 0) if last else (slice(2, None), 2)
    kept, pads, steps = [slice(None)] * weights.ndim, [*window.pads], [*window.dilations]
    sizes = zip(site.shape_of(x)[image], site.shape[image], strict=True)
    for axis, (size, results) in enumerate(sizes):
        taps, stride = weights.shape[first + axis], window.strides[axis]
        # Where each tap of the first result lies, and that of the first result which it can serve.
        place = np.arange(taps) * steps[axis] - window.pads[axis]
        result = np.maximum(-(place // stride), 0)
        met = np.flatnonzero((result < results) & (place + result * stride < size))
        if not met.size:
            return None
        low, high = int(met[0]), int(met[-1])
        kept[first + axis] = slice(low, high + 1)
        pads[axis] -= low * steps[axis]
        pads[count + axis] -= (taps - 1 - high) * steps[axis]
        steps[axis] = steps[axis] if high > low else 1
    near = weights[tuple(kept)]
    if near.size in (0, weights.size) or min(pads) < 0 or not np.isfinite(weights).all():
        return None
    trimmed = replace(window, pads=tuple(pads), dilations=tuple(steps))
    inputs = [x, site.constant(near, f"{w}.near"), *others]
    if isinstance(window, ops.QConv):  # padding is the zero point, and the bias takes it away
        whole, rest = (part.sum(axis=(0, 1, 2), dtype=np.int64) for part in (weights, near))
        bias = site.data(others[0]) + window.zero_point_x * (whole - rest)
        if np.any(bias != bias.astype(np.int32)):
            return None
        inputs[2] = site.constant(bias.astype(np.int32), f"{others[0]}.near")
    return site.become(trimmed, *inputs)
