"""Write transposed convolutions as convolutions: one channel per place of a result's pixel.

With stride s, the result has s phases along an axis, and each phase is an ordinary convolution with
every s-th tap. One convolution therefore computes all phases as channels, which Reshape and
Transpose then spread over the pixels. It needs fewer products than a convolution of an image with
zeros between its pixels, because no phase has more taps than that has in all.

Source: W. Shi et al., "Is the deconvolution layer the same as a convolutional layer?",
arXiv:1609.07009.
"""

import math
from typing import NamedTuple

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, first_match, rewrite, rule_of, value
from .clean_activations import hoist_clamp
from .fold_batch_normalisation import FOLD_TRANSPOSED
from .patterns import HELD, is_float32

PHASE_MAJOR = (0, 3, 4, 1, 5, 2)
CHANNEL_MAJOR = (0, 1, 4, 2, 5, 3)
"""Transposes [N, phases y, phases x, C, H, W], or [N, C, phases y, phases x, H, W], to pixels."""


class _Phases(NamedTuple):
    """One axis of the convolution that computes all phases.

    Attributes
    ----------
    taps : int[phases, window]
        The tap of the transposed convolution at each place of a phase's window; the number of taps
        where there is none.
    dilation : int
        Pixels between neighbouring places of the window.
    start, stop, before, after : int
        Range of the image that is read, and the padding around it.
    """

    taps: np.ndarray
    dilation: int
    start: int
    stop: int
    before: int
    after: int


@rule_of(
    *(ops.ConvTranspose, value("x"), value("w"), ...),
    capture="layer",
    where=lambda layer: layer.is_image,
    result=is_float32,
)
def expand(site: Site, layer: ops.ConvTranspose, x: str, w: str) -> str | None:
    """ConvTranspose(x) -> the phases of Conv(x) as pixels, if the parameters are constant."""
    image, kernel, result = site.shape_of(x)[2:], site.shape_of(w)[2:], site.shape[2:]
    rows, columns = (
        _phases(image[i], kernel[i], result[i], layer.strides[i], layer.dilations[i], layer.pads[i])
        for i in range(2)
    )
    given = site.root.inputs[1:]
    found = (_parameter(site, name, layer, rows.taps, columns.taps) for name in given)
    parameters = [name for name in found if name is not None]
    if len(parameters) < len(given) or rows.stop <= rows.start or columns.stop <= columns.start:
        return None
    n, channels = site.shape_of(x)[:2]
    ends = (n, channels, rows.stop, columns.stop)
    read = _cut(site, x, (0, 0, rows.start, columns.start), ends)
    pads = (rows.before, columns.before, rows.after, columns.after)
    conv = ops.Conv((1, 1), pads, (rows.dilation, columns.dilation), layer.groups)
    phases = site.emit(conv, read, *parameters)
    return _cut(site, _spread(site, phases, layer), (0,) * 4, site.shape)


def _phases(
    image: int, kernel: int, result: int, stride: int, dilation: int, cropped: int
) -> _Phases:
    """Return the phases along an axis; result `stride * i + phase` reads `x[i + offset]`."""
    found = [
        (phase, (phase + cropped - tap * dilation) // stride, tap)
        for phase in range(stride)
        for tap in range(kernel)
        if (phase + cropped - tap * dilation) % stride == 0
    ]
    offsets = [offset for _, offset, _ in found]
    first, last = min(offsets), max(offsets)
    step = math.gcd(*(offset - first for offset in offsets)) or 1
    taps = np.full((stride, (last - first) // step + 1), kernel)
    for phase, offset, tap in found:
        taps[phase, (offset - first) // step] = tap
    end = -(-result // stride) + last
    return _Phases(taps, step, max(first, 0), min(end, image), max(-first, 0), max(end - image, 0))


def _parameter(
    site: Site, name: str, layer: ops.ConvTranspose, rows: np.ndarray, columns: np.ndarray
) -> str | None:
    """Emit weights or a bias, float or dequantised, in the order that the convolution needs."""
    match = first_match(HELD, site.view, name)
    if match is None:
        return None
    data, scaling = site.data(match["held"]), match["scaling"]
    count, weights = len(rows) * len(columns), data.ndim == 4
    axis, zero, label = int(weights), 0, f"{site.root.name}.{'weights' if weights else 'bias'}"
    if scaling is not None and scaling.axis is not None:
        if scaling.axis != axis:
            return None
        zero = np.array(scaling.zero_points, data.dtype).reshape((-1, 1, 1) if weights else -1)
        # The scales of one group of weights are those of all groups.
        scales, points = (
            tuple(_of_phases(np.tile(of_group, layer.groups**axis), layer, count).tolist())
            for of_group in (scaling.scales, scaling.zero_points)
        )
        scaling = ops.Dequantize(scales, points, 0)
    elif scaling is not None:
        (zero,) = scaling.zero_points
    if weights:
        data = _weights_of_phases(data, zero, layer.groups, rows, columns)
    else:
        data = _of_phases(data, layer, count)
    constant = site.constant(np.ascontiguousarray(data), label)
    return constant if scaling is None else site.emit(scaling, constant, label=label)


def _of_phases(of_channels: np.ndarray, layer: ops.ConvTranspose, count: int) -> np.ndarray:
    """Repeat a number per channel for `count` phases, in the order of the convolution."""
    return np.tile(of_channels, count) if layer.groups == 1 else np.repeat(of_channels, count)


def _weights_of_phases(
    weights: np.ndarray, zero: np.ndarray | int, groups: int, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Return the convolution's weights [Co * phases, Ci / groups, window y, window x].

    Parameters
    ----------
    weights : array[Ci, Co / groups, KH, KW]
        Weights of the transposed convolution.
    zero : int or array[Co / groups, 1, 1]
        The weights that stand for 0.
    groups : int
        Groups of channels.
    rows, columns : int[phases, window]
        The taps along both axes, as in `_Phases`.
    """
    inputs, outputs, height, width = weights.shape
    extended = np.empty((inputs, outputs, height + 1, width + 1), weights.dtype)
    extended[...] = zero
    extended[..., :height, :width] = weights
    phases = extended[..., rows[:, :, None, None], columns]
    phases = phases.reshape(groups, inputs // groups, *phases.shape[1:])
    order = (3, 5, 0, 2, 1, 4, 6) if groups == 1 else (0, 2, 3, 5, 1, 4, 6)
    shape = (-1, inputs // groups, rows.shape[1], columns.shape[1])
    return phases.transpose(order).reshape(shape)


def _spread(site: Site, phases: str, layer: ops.ConvTranspose) -> str:
    """Emit the pixels [N, C, H * phases y, W * phases x] of channels that are phases."""
    (n, channels, height, width), (down, right) = site.shape_of(phases), layer.strides
    if down * right == 1:
        return phases
    channels //= down * right
    apart = (n, down, right, channels) if layer.groups == 1 else (n, channels, down, right)
    split = site.emit(ops.Reshape((*apart, height, width)), phases)
    order = PHASE_MAJOR if layer.groups == 1 else CHANNEL_MAJOR
    turned = site.emit(ops.Transpose(order), split)
    return site.emit(ops.Reshape((n, channels, height * down, width * right)), turned)


def _cut(site: Site, x: str, starts: tuple[int, ...], stops: tuple[int, ...]) -> str:
    """Emit a Slice, unless it keeps all."""
    shape = site.shape_of(x)
    if shape == stops and not any(starts):
        return x
    return site.emit(ops.Slice(starts, stops, (1,) * len(shape)), x)


def expand_transposed_convolutions(graph: Graph) -> Graph:
    """Replace ConvTranspose of float32 images, with batch normalisation and clamps, by Conv."""
    expanded = rewrite(rewrite(graph, *FOLD_TRANSPOSED), expand)
    return graph if expanded is graph else rewrite(expanded, hoist_clamp)
