"""Recognise quantised convolutions and dense layers: Dequantize, Conv or MatMul, Quantize -> QConv.

The scale is computed in binary32 in the order of ONNX Runtime's QLinearConv: input times weight,
divided by output. A bias is an integer in units of input scale times weight scale.
"""

from typing import Any

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..graph.accumulators import (
    HIGHEST,
    LOWEST,
    Bounds,
    accumulator_bounds,
    exact_layer,
    result_bounds,
)
from ..rewriting import Site, constant, either, first_match, op, rewrite, rule, value
from .patterns import (
    HELD,
    TO_FIRST,
    TO_LAST,
    channels_of,
    dequantised,
    is_int8,
    known,
    quantised,
    reshaped,
    scale_of,
    to_image,
)

SAME_SCALE = 2.0**-18
"""Relative difference up to which a bias's scale counts as the product of the others' scales."""

WEIGHTS = op(ops.Dequantize, constant("w", where=is_int8), capture="w_scale")

LAYERS = (
    op(ops.Conv, dequantised("x"), WEIGHTS, ..., capture="layer", where=lambda c: c.is_image),
    op(ops.MatMul, dequantised("x"), WEIGHTS, capture="layer"),
)
LAYER = either(*LAYERS)

Term = tuple[str, tuple[int, ...]]
"""A part of a bias: a value, and the shape to which it may broadcast."""


BY_CHANNEL = op(
    ops.Dequantize,
    value("x", where=is_int8),
    capture="x_scale",
    where=lambda scaling: scaling.axis == 1,
)

OF_CHANNELS = op(ops.Conv, BY_CHANNEL, WEIGHTS, ..., capture="layer", where=lambda c: c.is_image)
"""NNCF quantises the input of depthwise convolutions by channel."""


@rule(OF_CHANNELS)
def unify_scales(
    site: Site,
    layer: ops.Conv,
    x: str,
    x_scale: ops.Dequantize,
    w: str,
    w_scale: ops.Dequantize,
) -> str | None:
    """Conv with a scale for each group -> Conv of scale 1, whose weights take these scales."""
    outputs = site.shape_of(w)[0]
    scales = scales_of_groups(layer, x_scale, w_scale, outputs)
    if scales is None or len(set(x_scale.zero_points)) > 1:
        return None
    points = w_scale.zero_points * (outputs // len(w_scale.zero_points))
    kernel = site.emit(ops.Dequantize(tuple(map(float, scales)), points, 0), w)
    image = site.emit(ops.Dequantize((1.0,), x_scale.zero_points[:1], None), x)
    return site.emit(layer, image, kernel, *site.root.inputs[2:])


def scales_of_groups(
    layer: ops.Conv, x_scale: ops.Dequantize, w_scale: ops.Dequantize, outputs: int
) -> np.ndarray | None:
    """Return the scales of the sums of outputs, float32[Co], if each group has one scale."""
    groups = np.array(x_scale.scales, np.float32).reshape(layer.groups, -1)
    if w_scale.axis not in (None, 0) or (groups != groups[:, :1]).any():
        return None
    scales = np.repeat(groups[:, 0], outputs // layer.groups)
    scales = scales * np.array(w_scale.scales, np.float32)
    plain = np.isfinite(scales) & (scales >= np.finfo(np.float32).smallest_normal)
    return scales if plain.all() else None


@rule(
    quantised(
        either(LAYER, op(ops.Binary("Add"), LAYER, known("addend"), commutative=True)),
        by_channel=True,
    )
)
def recognise(
    site: Site,
    addend: str | None,
    layer: ops.Conv | ops.MatMul,
    x: str,
    w: str,
    w_scale: ops.Dequantize,
) -> str | None:
    """Quantize(clamps(Add?(Conv | MatMul))) -> QConv between layout changes."""
    conv = layer if isinstance(layer, ops.Conv) else None
    weighted = weights_of(site, layer, w, w_scale)
    wanted = channels_of(site, 1 if conv else len(site.shape) - 1)
    if weighted is None or wanted is None:
        return None
    (whole, scales), (y, y_scales, limits) = weighted, wanted
    given, channels = scale_of(site, "x"), len(scales)
    made = site.node("layer")
    terms: list[Term] = [(name, (channels,)) for name in made.inputs[2:]]
    if addend is not None:
        terms.append((addend, (1, channels, 1, 1) if conv else (channels,)))
    bias = _bias(site, terms, given.scale * scales.astype(np.float64))
    scale = output_scale(given.scale, scales, y_scales)
    if bias is None or scale is None:
        return None
    total = bias - given.zero_point * whole.astype(np.int64).sum(axis=(0, 1, 2))
    inputs = _input_bounds(site, x, conv, given.zero_point, channels)
    exact = exact_layer(whole, total, scale, y.zero_point, limits, inputs)
    if exact is None:
        return None
    whole, total, scale = exact
    window, image = image_of(site, layer, x, made.name)
    kernel = whole.astype(np.int8) if (whole.astype(np.int8) == whole).all() else whole
    result = site.emit(
        ops.QConv(*window, given.zero_point, y.zero_point, *limits),
        image,
        *site.constants(made.name, weights=kernel, bias=total.astype(np.int32), scale=scale),
        label=made.name,
        quantisation=y,
    )
    return as_given(site, layer, result, (*site.shape_of(x)[:-1], channels), made.name)


def weights_of(
    site: Site, layer: ops.Conv | ops.MatMul, w: str, scaling: ops.Dequantize
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return weights int16[KH, KW, Ci / groups, Co] without their zero points, and float32[Co].

    None if the scales are not those of output channels.
    """
    conv, data = isinstance(layer, ops.Conv), site.data(w)
    axis = 0 if conv else 1
    if scaling.axis not in (None, axis) or not (conv or data.ndim == 2):
        return None
    points = [-1 if i == scaling.axis else 1 for i in range(data.ndim)]
    centred = data.astype(np.int16) - np.array(scaling.zero_points, np.int16).reshape(points)
    scales = np.broadcast_to(np.array(scaling.scales, np.float32), (data.shape[axis],))
    return (centred.transpose(2, 3, 1, 0) if conv else centred[None, None]), scales


Window = tuple[str, Any, Any, Any, int]
"""Kind, strides, pads, dilations and groups of a layer."""

DENSE: Window = "dense", (1, 1), (0, 0, 0, 0), (1, 1), 1


def image_of(site: Site, layer: ops.Conv | ops.MatMul, x: str, label: str) -> tuple[Window, str]:
    """Return a layer's window, and emit its input as int8[N, H, W, C]."""
    shape = site.shape_of(x)
    if isinstance(layer, ops.Conv):
        kind = "depthwise" if layer.groups > 1 and layer.groups == shape[1] else "conv"
        window = (kind, layer.strides, layer.pads, layer.dilations, layer.groups)
        return window, site.emit(ops.Transpose(TO_LAST), x, label=label)
    return DENSE, to_image(site, x, label)


def as_given(
    site: Site, layer: ops.Conv | ops.MatMul, result: str, shape: tuple[int, ...], label: str
) -> str:
    """Emit a layer's result [N, H, W, C] in the layout of the model."""
    if isinstance(layer, ops.Conv):
        return site.emit(ops.Transpose(TO_FIRST), result, label=label)
    return reshaped(site, result, shape, label)


LAYER_BEFORE = op(
    ops.Transpose,
    op(ops.QConv, value(), *map(value, ("w", "bias", "scale")), capture="before"),
    where=lambda transpose: transpose.permutation == TO_FIRST,
)


def _input_bounds(
    site: Site, x: str, conv: ops.Conv | None, zero_point: int, channels: int
) -> Bounds:
    """Return bounds of the inputs that the weights multiply, int64[1, 1, Ci / groups, Co].

    A layer before a convolution may leave a smaller range than int8, down to constant channels.
    """
    match = first_match(LAYER_BEFORE, site.view, x) if conv else None
    if conv is None or match is None:
        return np.array(LOWEST), np.array(HIGHEST)
    before = match["before"]
    w, bias, scale = (site.data(match[name]) for name in ("w", "bias", "scale"))
    sums, limits = accumulator_bounds(w, bias), (before.low, before.high)
    low, high = result_bounds(sums, scale, before.zero_point_y, limits)
    if any(conv.pads):
        low, high = np.minimum(low, zero_point), np.maximum(high, zero_point)
    return _per_weight(low, conv.groups, channels), _per_weight(high, conv.groups, channels)


def _per_weight(of_inputs: np.ndarray, groups: int, channels: int) -> np.ndarray:
    """Spread a number for each input channel over the weights: int64[1, 1, Ci / groups, Co]."""
    of_groups = of_inputs.astype(np.int64).reshape(groups, -1).T
    return np.repeat(of_groups, channels // groups, axis=1)[None, None]


def output_scale(x: float, w: np.ndarray, y: float | np.ndarray) -> np.ndarray | None:
    """Return `float32(float32(x * w) / y)`, but at least the smallest normal number.

    A scale below 2**-126 brings every accumulator to 0, so raising it changes nothing. Returns None
    if a scale is not finite.
    """
    with np.errstate(over="ignore", under="ignore"):
        scale = (np.float32(x) * w.astype(np.float32)) / np.asarray(y, np.float32)
    if not np.isfinite(scale).all():
        return None
    return np.maximum(scale, np.finfo(np.float32).smallest_normal).astype(np.float32)


def _bias(site: Site, terms: list[Term], unit: np.ndarray) -> np.ndarray | None:
    """Return the sum of the bias terms in units of input scale times weight scale.

    The sum is float64[Co] of integers, exact below 2**53; it may be infinite.

    An int32 bias that is quantised with that product, as by converters, is used unchanged. Any
    other bias is rounded to the nearest integer. Returns None if a term does not broadcast, or if a
    sum is not a number.
    """
    total = np.zeros(len(unit))
    for name, shape in terms:
        match = first_match(HELD, site.view, name)
        if match is None:
            return None
        held, scaling = site.data(match["held"]), match["scaling"]
        if not _broadcasts(held.shape, shape):
            return None
        data = np.broadcast_to(held.ravel().astype(np.int64 if scaling else np.float64), unit.shape)
        data = data - np.array(scaling.zero_points if scaling else 0)
        ratio = np.broadcast_to(np.array(scaling.scales if scaling else 1.0) / unit, unit.shape)
        if scaling and (np.abs(ratio - 1) < SAME_SCALE).all():
            total += data
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                total += np.rint(data * ratio)
    return None if np.isnan(total).any() else total


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Tell whether an array of `shape` broadcasts to `target`, ignoring leading ones."""
    rank = max(len(shape), len(target))
    padded = [(1,) * (rank - len(sizes)) + sizes for sizes in (shape, target)]
    return all(size in (1, wanted) for size, wanted in zip(*padded, strict=True))


def recognise_convolutions(graph: Graph) -> Graph:
    """Replace quantised Conv and MatMul, their bias, Relu and Clip included, by QConv."""
    return rewrite(graph, unify_scales, recognise)
