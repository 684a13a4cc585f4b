"""Write convolutions and pools of volumes [N, C, D, H, W] as those of images, which have kernels.

A convolution sums over the taps of three axes. The taps along the depth become channels of an
image: one image for each depth of the result. Where a window covers one axis alone, the other axes
are merged instead, and nothing is copied. A pool is one pool along the depth and one of images.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, first_match, op, rewrite, rule_of, value
from .clean_activations import hoist_clamp
from .patterns import HELD, is_float32, is_per_tensor

QUANTISED = op(ops.Dequantize, value("integers"), capture="scaling", where=is_per_tensor)

TURNED = (0, 2, 1, 3, 4)
"""Transposes [N, C, D, H, W] to [N, D, C, H, W], and back."""


class _Axis(NamedTuple):
    """The window along the depth."""

    kernel: int
    stride: int
    before: int
    after: int
    dilation: int

    @property
    def is_single(self) -> bool:
        """Whether each result reads the element in its own place."""
        return self.kernel == self.stride == 1 and not (self.before or self.after)


def _depth(kernel: int, layer: ops.Conv | ops.MaxPool | ops.AveragePool) -> _Axis:
    return _Axis(kernel, layer.strides[0], layer.pads[0], layer.pads[3], layer.dilations[0])


def _image_pads(pads: tuple[int, ...]) -> tuple[int, ...]:
    """Return the pads of the last two axes."""
    return (*pads[1:3], *pads[4:6])


@rule_of(
    *(ops.Conv, value("x"), value("w"), ...),
    capture="layer",
    where=lambda layer: len(layer.strides) == 3 and not layer.channels_last,
    result=is_float32,
)
def expand_convolution(site: Site, layer: ops.Conv, x: str, w: str) -> str | None:
    """Conv of volumes -> Conv of images, if the weights are constant."""
    match = first_match(HELD, site.view, w)
    if match is None:
        return None
    data, scaling = site.data(match["held"]), match["scaling"]
    if scaling is not None and scaling.axis not in (None, 0):
        return None
    n, channels, depth, *image = site.shape_of(x)
    outputs, part, *kernel = data.shape
    axis, pads = _depth(kernel[0], layer), _image_pads(layer.pads)
    bias = site.root.inputs[2:]

    def weights(shaped: np.ndarray) -> str:
        held = site.constant(np.ascontiguousarray(shaped), f"{site.root.name}.weights")
        return held if scaling is None else site.emit(scaling, held)

    if kernel[1:] == [1, 1] and layer.strides[1:] == (1, 1) and not any(pads):
        merged = site.emit(ops.Reshape((n, channels, depth, image[0] * image[1])), x)
        along = (axis.before, 0, axis.after, 0)
        conv = ops.Conv((axis.stride, 1), along, (axis.dilation, 1), layer.groups)
        result = site.emit(conv, merged, weights(data[..., 0]), *bias)
        return site.emit(ops.Reshape(site.shape), result)
    quantised = first_match(QUANTISED, site.view, x)
    if quantised is None:
        taken = _taps(site, x, axis, layer.groups)
    else:  # moved as integers
        (zero,) = quantised["scaling"].zero_points
        taken = _taps(site, quantised["integers"], axis, layer.groups, zero)
        taken = site.emit(quantised["scaling"], taken)
    taps = data.transpose(0, 2, 1, 3, 4).reshape(outputs, axis.kernel * part, *kernel[1:])
    conv = ops.Conv(layer.strides[1:], pads, layer.dilations[1:], layer.groups)
    images = site.emit(conv, taken, weights(taps), *bias)
    found = site.shape[2]
    split = site.emit(ops.Reshape((n, found, outputs, *site.shape[3:])), images)
    return site.emit(ops.Transpose(TURNED), split)


def _taps(site: Site, x: str, axis: _Axis, groups: int, zero: float = 0.0) -> str:
    """Emit the images of all depths of the result: [N * D, groups * taps * channels, H, W]."""
    n, channels, depth, *image = site.shape_of(x)
    turned = site.emit(ops.Transpose(TURNED), x)
    if not axis.is_single:
        none = (0,) * 3
        if axis.before or axis.after:
            pad = ops.Pad((0, axis.before, *none), (0, axis.after, *none), zero)
            turned = site.emit(pad, turned)
        whole, found = depth + axis.before + axis.after, site.shape[2]
        shape = (n, found, groups, channels // groups, *image)
        parts = []
        for tap in range(axis.kernel):
            start = tap * axis.dilation
            stop = start + (found - 1) * axis.stride + 1
            part = turned
            if (start, stop, axis.stride) != (0, whole, 1):
                cut = ops.Slice(
                    (0, start, *none), (n, stop, channels, *image), (1, axis.stride, 1, 1, 1)
                )
                part = site.emit(cut, turned)
            parts.append(site.emit(ops.Reshape(shape), part) if groups > 1 else part)
        turned = site.emit(ops.Concat(3 if groups > 1 else 2), *parts)
        depth, channels = found, channels * axis.kernel
    return site.emit(ops.Reshape((n * depth, channels, *image)), turned)


@rule_of(
    *((ops.MaxPool, ops.AveragePool), value("x")),
    capture="pool",
    where=lambda pool: len(pool.kernel) == 3 and not pool.channels_last,
    result=lambda kind: kind.dtype in ("float32", "int8", "uint8"),
)
def expand_pool(site: Site, pool: ops.MaxPool | ops.AveragePool, x: str) -> str:
    """A pool of volumes -> one along the depth, and one of images whose channels have depths."""
    n, channels, depth, *image = site.shape_of(x)
    axis, found = _depth(pool.kernel[0], pool), site.shape[2]
    overhang = pool.overhang if isinstance(pool, ops.AveragePool) else (0, 0, 0)
    if not (axis.is_single and not overhang[0]):
        x = site.emit(ops.Reshape((n, channels, depth, image[0] * image[1])), x)
        along = _image_pool(
            *(pool, (overhang[0], 0)), kernel=(axis.kernel, 1), strides=(axis.stride, 1),
            pads=(axis.before, 0, axis.after, 0), dilations=(axis.dilation, 1),
        )  # fmt: skip
        x = site.emit(along, x)
    x = site.emit(ops.Reshape((n, channels * found, *image)), x)
    across = _image_pool(
        *(pool, overhang[1:]), kernel=pool.kernel[1:], strides=pool.strides[1:],
        pads=_image_pads(pool.pads), dilations=pool.dilations[1:],
    )  # fmt: skip
    return site.emit(ops.Reshape(site.shape), site.emit(across, x))


def _image_pool(
    pool: ops.MaxPool | ops.AveragePool, overhang: tuple[int, ...], **window: tuple[int, ...]
) -> ops.MaxPool | ops.AveragePool:
    """Return the same pool with a window of images."""
    if isinstance(pool, ops.AveragePool):
        window["overhang"] = overhang
    return replace(pool, **window)


def expand_volumes(graph: Graph) -> Graph:
    """Replace Conv of volumes, with clamps, MaxPool and AveragePool by those of images."""
    expanded = rewrite(graph, expand_convolution, expand_pool)
    return graph if expanded is graph else rewrite(expanded, hoist_clamp)
