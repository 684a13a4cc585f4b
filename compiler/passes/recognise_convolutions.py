"""Recognise quantised convolutions and dense layers: Dequantize, Conv or MatMul, Quantize -> QConv.

The scale is computed in binary32 in the order of ONNX Runtime's QLinearConv: input times weight,
divided by output. A bias is an integer in units of input scale times weight scale.
"""

import numpy as np

from ...errors import CompileError
from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, either, first_match, op, rewrite, rule, value
from .patterns import (
    TO_FIRST,
    TO_LAST,
    dequantised,
    image_shape,
    is_int8,
    known,
    quantised,
    reshaped,
    result_of,
    scale_of,
)
from .wide_weights import is_exact, split_weights

CHANNELS = 3
"""Axis of an image's channels, channels last."""

SAME_SCALE = 2.0**-18
"""Relative difference up to which a bias's scale counts as the product of the others' scales."""

WEIGHTS = op(ops.Dequantize, value("w", constant=True, where=is_int8), capture="w_scale")

LAYER = either(
    op(ops.Conv, dequantised("x"), WEIGHTS, ..., capture="layer", where=lambda c: c.is_image),
    op(ops.MatMul, dequantised("x"), WEIGHTS, capture="layer"),
)

Term = tuple[str, tuple[int, ...]]
"""A part of a bias: a value, and the shape to which it may broadcast."""

HELD = value("held", constant=True)
TERM = either(HELD, op(ops.Dequantize, HELD, capture="scaling"))
"""Its value: float32, or integers with a scale."""


@rule(quantised(either(LAYER, op(ops.Binary("Add"), LAYER, known("addend"), commutative=True))))
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
    axis, data, shape = 0 if conv else 1, site.data(w), site.shape_of(x)
    if w_scale.axis not in (None, axis) or not (conv or data.ndim == 2):
        return None
    points = [-1 if i == w_scale.axis else 1 for i in range(data.ndim)]
    centred = data.astype(np.int16) - np.array(w_scale.zero_points, np.int16).reshape(points)
    channels = data.shape[axis]
    scales = np.broadcast_to(np.array(w_scale.scales, np.float32), (channels,))
    given, (y, limits) = scale_of(site, "x"), result_of(site)
    made = site.node("layer")
    terms: list[Term] = [(name, (channels,)) for name in made.inputs[2:]]
    if addend is not None:
        terms.append((addend, (1, channels, 1, 1) if conv else (channels,)))
    bias = _bias(site, terms, given.scale * scales.astype(np.float64))
    if bias is None:
        return None
    groups = conv.groups if conv else 1
    whole = centred.transpose(2, 3, 1, 0) if conv else centred[None, None]
    parts = split_weights(whole)
    kernel = np.concatenate(parts, axis=2)
    total = bias - given.zero_point * kernel.astype(np.int64).sum(axis=(0, 1, 2))
    scale = output_scale(made.name, given.scale, scales, y.scale)
    if len(parts) > 1 and (groups > 1 or not is_exact(kernel, total, scale)):
        return None
    if np.abs(total).max(initial=0) >= 2**31:
        raise CompileError(
            f"layer `{made.name}`: expected a bias within int32, got "
            f"`{total[np.abs(total).argmax()]}` (in units of input scale times weight scale); "
            "quantise with larger weight scales"
        )
    window = ("dense", (1, 1), (0, 0, 0, 0), (1, 1), 1)
    image = x
    if conv:
        kind = "depthwise" if groups > 1 and groups == shape[1] else "conv"
        window = (kind, conv.strides, conv.pads, conv.dilations, groups)
        image = site.emit(ops.Transpose(TO_LAST), x, label=made.name)
    elif len(shape) != 4:
        image = site.emit(ops.Reshape(image_shape(shape)), x, label=made.name)
    if len(parts) > 1:
        copies = [image] * len(parts)
        image = site.emit(ops.QConcat(CHANNELS), *copies, label=made.name, quantisation=given)
    result = site.emit(
        ops.QConv(*window, given.zero_point, y.zero_point, *limits),
        image,
        site.constant(kernel, f"{made.name}.weights"),
        site.constant(total.astype(np.int32), f"{made.name}.bias"),
        site.constant(scale, f"{made.name}.scale"),
        label=made.name,
        quantisation=y,
    )
    if conv:
        return site.emit(ops.Transpose(TO_FIRST), result, label=made.name)
    return reshaped(site, result, (*shape[:-1], channels), made.name)


def output_scale(label: str, x: float, w: np.ndarray, y: float) -> np.ndarray:
    """Return `float32(float32(x * w) / y)`, but at least the smallest normal number.

    A scale below 2**-126 brings every accumulator to 0, so raising it changes nothing.

    Raises
    ------
    CompileError
        If a scale is not finite.
    """
    with np.errstate(over="ignore", under="ignore"):
        scale = (np.float32(x) * w.astype(np.float32)) / np.float32(y)
    if not np.isfinite(scale).all():
        raise CompileError(
            f"layer `{label}`: expected a finite output scale, got `inf` (input scale `{x}`, "
            f"output scale `{y}`); quantise the model again"
        )
    return np.maximum(scale, np.finfo(np.float32).smallest_normal).astype(np.float32)


def _bias(site: Site, terms: list[Term], unit: np.ndarray) -> np.ndarray | None:
    """Return the sum of the bias terms as int64[Co] in units of input scale times weight scale.

    An int32 bias that is quantised with that product, as by converters, is used unchanged. Any
    other bias is rounded to the nearest integer. Returns None if a term does not broadcast.
    """
    total = np.zeros(len(unit), dtype=np.int64)
    for name, shape in terms:
        match = first_match(TERM, site.view, name)
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
            total += np.rint(np.clip(data * ratio, -(2.0**40), 2.0**40)).astype(np.int64)
    return total


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Tell whether an array of `shape` broadcasts to `target`, ignoring leading ones."""
    rank = max(len(shape), len(target))
    padded = [(1,) * (rank - len(sizes)) + sizes for sizes in (shape, target)]
    return all(size in (1, wanted) for size, wanted in zip(*padded, strict=True))


def recognise_convolutions(graph: Graph) -> Graph:
    """Replace quantised Conv and MatMul, their bias, Relu and Clip included, by QConv."""
    return rewrite(graph, recognise)
