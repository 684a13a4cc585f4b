"""Importers of Resize and Upsample: Gather for the nearest element, else Interpolate.

Each axis that changes gets one operator. The source elements of each result element, and their
weights, are known at import. Source: ONNX operators Resize and Upsample. For scales, coordinates of
nearest elements are computed in binary32, as in ONNX Runtime, so that ties round alike; all others
are computed in binary64. Where a scale gives a fractional extent, `align_corners` and
`tf_crop_and_resize` count the elements that the result has, as PyTorch and ONNX Runtime do, so that
corners map to corners; ONNX's reference evaluator divides by the fractional extent. The edge of a
cropped region is decided in binary32, as in ONNX Runtime.

Integers and narrow floats are interpolated as wider floats along all axes, and converted once. The
specification does not say how; integers round to the nearest and saturate, as in ONNX's reference
evaluator. ONNX Runtime truncates linear results, so that equal pixels of 255 may become 254, rounds
once for each axis with antialiasing, and has no cubic form: results differ by one from its linear
ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import TensorType
from ..graph.operators import Interpolate, Where
from ..graph.types import FLOATS, INTEGERS, MAX_BYTES, NARROW_FLOATS, NUMBERS
from .onnx_node import OnnxNode

MAX_EXTENT = 1 << 31
"""Limit on scales and sizes: larger ones are mistakes."""


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """The resizing of one axis from `size` to `extent` elements.

    Attributes
    ----------
    axis, size, extent : int
        Index of the axis, and the number of elements before and after.
    scale : floating
        Requested ratio, in the type to compute in; `extent` is `size` times it, rounded down.
    region : (float32, float32)
        Part of the axis to crop, for `tf_crop_and_resize`.
    """

    axis: int
    size: int
    extent: int
    scale: Any
    region: tuple[np.float32, np.float32]


Coordinates = Callable[[np.ndarray, ResizedAxis], np.ndarray]
"""Function (positions in the result, axis) -> positions in the operand."""


def _half_pixel(x: np.ndarray, one: ResizedAxis) -> np.ndarray:
    return (x + 0.5) / one.scale - 0.5


def _half_pixel_symmetric(x: np.ndarray, one: ResizedAxis) -> np.ndarray:
    adjustment = type(one.scale)(one.extent) / (one.scale * type(one.scale)(one.size))
    wide = _half_pixel(x.astype(np.float64), one)  # ONNX Runtime rounds to binary32 only once here
    return (one.size / 2 * (1 - adjustment) + wide).astype(x.dtype)


def _align_corners(x: np.ndarray, one: ResizedAxis) -> np.ndarray:
    return 0 * x if one.extent == 1 else x * (one.size - 1) / (one.extent - 1)


def _crop_and_resize(x: np.ndarray, one: ResizedAxis) -> np.ndarray:
    (first, stop), last = one.region, one.size - 1
    if one.extent == 1:
        return 0 * x + (stop - first) * last / 2 + first * last
    return x * (stop - first) * last / (one.extent - 1) + first * last


COORDINATES: dict[str, Coordinates] = {
    "align_corners": _align_corners,
    "asymmetric": lambda x, one: x / one.scale,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": lambda x, one: 0 * x if one.extent == 1 else _half_pixel(x, one),
    "tf_half_pixel_for_nn": lambda x, one: (x + 0.5) / one.scale,
}
"""`coordinate_transformation_mode` of whole axes -> position of a result element in the operand."""

CROPPING: dict[str, Coordinates] = {"tf_crop_and_resize": _crop_and_resize}
"""The mode that crops a region of an axis; the region may extend beyond the axis."""

ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x) + (x - np.floor(x) >= 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""`nearest_mode` -> rounding of positions in binary32."""

UPPER: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda ratio: ratio > 0.5,
    "round_prefer_ceil": lambda ratio: ratio >= 0.5,
    "floor": lambda ratio: ratio == 1,
    "ceil": lambda ratio: ratio > 0,
}
"""`nearest_mode` -> whether a position in (0, 1] belongs to the upper of its neighbours 0 and 1."""


def import_resize(node: OnnxNode) -> str:
    """Import Resize and Upsample as Gather or Interpolate along each axis that changes."""
    if node.proto.op_type == "Upsample" and node.opset >= 10:
        node.fail(
            "Resize, which took the place of Upsample in operator set 10",
            f"Upsample in operator set {node.opset}",
            "export the model again, or declare operator set 9",
        )
    mode, coordinates = node.attribute("mode", "nearest"), "asymmetric"
    known = COORDINATES | CROPPING
    if node.opset >= 11:
        coordinates = _expect(node, "coordinate_transformation_mode", "half_pixel", known)
    nearest, crops = mode == "nearest", coordinates in CROPPING
    real = np.float32 if nearest and _has_scales(node) else np.float64
    result, outside, kind = node.input(0), {}, node.type(0).dtype
    for one in sorted(_axes(node, real), key=lambda one: one.axis):
        counted = np.float32 if crops else real
        places = known[coordinates](np.arange(one.extent, dtype=counted), one)
        if crops:
            outside[one.axis] = (places < 0) | (places > one.size - 1)
        elif one.extent == one.size and one.scale == 1:
            continue
        base = f"{node.result}.axis{one.axis}"
        if nearest:
            chosen = np.clip(_nearest(node, one, places), 0, one.size - 1)
            result = node.take(result, one.axis, chosen, base)
            continue
        result = node.cast(result, _real_type(kind), f"{node.result}.real")
        indices, weights = _taps(node, one, places, mode)
        constants = [
            node.array(np.clip(indices, 0, one.size - 1).astype(np.int64), f"{base}.places"),
            node.array(weights.astype(np.float32), f"{base}.weights"),
        ]
        result = node.emit(Interpolate(one.axis), [result, *constants])
    result = _extrapolate(node, result, outside)
    return result if node.builder.types[result].dtype == kind else _converted(node, result, kind)


def _expect(node: OnnxNode, name: str, default: str, known: dict[str, Any]) -> str:
    """Return a text attribute, which must be one of the known values."""
    value = node.attribute(name, default)
    if value not in known:
        node.fail(f"`{name}` {' or '.join(known)}", f"`{value}`", "correct the model")
    return value


def _nearest(node: OnnxNode, one: ResizedAxis, places: np.ndarray) -> np.ndarray:
    """Return the nearest elements; before operator set 11, those below, or above when shrinking."""
    if node.opset < 11:
        grows = node.proto.op_type == "Upsample" or one.scale >= 1
        return np.floor(places) if grows else np.ceil(places)
    rounding = _expect(node, "nearest_mode", "round_prefer_floor", ROUNDINGS)
    if places.dtype == np.float32:
        return ROUNDINGS[rounding](places)
    ratio = places - (np.ceil(places) - 1)
    # The evaluator pads the axis by one element, and so rounds the position again.
    lower = np.ceil(places + 1) - 2
    return lower + UPPER[rounding](ratio)


def _has_scales(node: OnnxNode) -> bool:
    """Tell whether scales are given; otherwise, sizes are."""
    if node.opset < 11:
        return True
    return node.has(2) and bool(node.constant(2).size)


def _extrapolate(node: OnnxNode, x: str, outside: dict[int, np.ndarray]) -> str:
    """Emit the extrapolation value for the elements that lie outside the tensor, if any."""
    kind = node.builder.types[x]
    mask = np.zeros(kind.shape, dtype=bool)
    for axis, flags in outside.items():
        mask |= flags.reshape([-1 if i == axis else 1 for i in range(len(kind.shape))])
    if not mask.any():
        return x
    value = node.attribute("extrapolation_value", 0.0)
    if kind.dtype in INTEGERS:
        limits = np.iinfo(kind.dtype)
        value = min(max(round(float(np.nan_to_num(value))), limits.min), limits.max)
    operands = [node.array(mask, f"{node.result}.outside"), node.number(value, kind.dtype), x]
    return node.emit(Where(), operands)


def _real_type(dtype: str) -> str:
    """Return the type to interpolate `dtype` in; Interpolate refuses what is no number."""
    if dtype not in NUMBERS:
        return dtype
    return "float32" if dtype in ("float32", "int8", "uint8", *NARROW_FLOATS) else "float64"


def _converted(node: OnnxNode, x: str, dtype: str) -> str:
    """Convert interpolated floats; integers round to the nearest, ties to even, and saturate."""
    if dtype in FLOATS:
        return node.cast(x, dtype)
    limits, real = np.iinfo(dtype), np.dtype(node.builder.types[x].dtype)
    low, high = np.array(limits.min, real), np.array(limits.max, real)
    if int(high) > limits.max:
        high = np.nextafter(high, low)
    x = node.unary("Round", x, f"{node.result}.rounded")
    x = node.binary("Max", x, node.array(low, f"{node.result}.low"), f"{node.result}.above")
    x = node.binary("Min", x, node.array(high, f"{node.result}.high"), f"{node.result}.within")
    if limits.bits == 8:
        x = node.cast(x, "int32", f"{node.result}.whole")  # kernels round to no other type
    return node.cast(x, dtype)


def _axes(node: OnnxNode, real: type[np.floating]) -> list[ResizedAxis]:
    """Return the resizing of each axis, from scales or sizes."""
    shape = node.type(0).shape
    axes = [node.normalise(a, len(shape)) for a in node.attribute("axes", tuple(range(len(shape))))]
    upsample, by_scales = node.proto.op_type == "Upsample", _has_scales(node)
    if upsample and node.opset < 9:
        requested = np.asarray(node.attribute("scales", ()), dtype=real)
    elif by_scales:
        requested = node.constant(1 if node.opset < 11 else 2).ravel()
    else:
        requested = np.array(node.integers(3), dtype=np.int64)
    sound = requested.size == len(axes) and bool(((requested > 0) & (requested < MAX_EXTENT)).all())
    if not sound:
        expected = f"{len(axes)} positive {'scales' if by_scales else 'sizes'}"
        expected += f" below {MAX_EXTENT:,}"
        node.fail(expected, f"{requested.tolist()}", "give one for each axis")
    old = [shape[axis] for axis in axes]
    if min(old, default=1) < 1 and not (by_scales and (requested == 1).all()):
        node.fail("elements to resize", f"{list(shape)}", "correct the model")
    if by_scales:
        scales = requested.astype(real)
        extents = [int(np.floor(real(n) * scale)) for n, scale in zip(old, scales, strict=True)]
    else:
        scales, extents = _sized(node, old, requested, real)
    result = dict(enumerate(shape)) | dict(zip(axes, extents, strict=True))
    node.check(TensorType(node.type(0).dtype, tuple(result.values())), MAX_BYTES)
    regions = [(np.float32(0), np.float32(1))] * len(axes)
    if not upsample and node.opset >= 11 and node.has(1):
        roi = node.constant(1).ravel().astype(np.float32)
        if roi.size == 2 * len(axes):
            regions = [(roi[i], roi[i + len(axes)]) for i in range(len(axes))]
    rows = zip(axes, old, extents, scales, regions, strict=True)
    return [ResizedAxis(*row) for row in rows]


def _sized(
    node: OnnxNode, old: list[int], new: np.ndarray, real: type[np.floating]
) -> tuple[np.ndarray, list[int]]:
    """Return scales and extents for the requested sizes, as the aspect-ratio policy asks."""
    scales = new.astype(real) / np.array(old, dtype=real)
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch" or not scales.size:
        return scales, new.tolist()
    scale = scales.min() if policy == "not_larger" else scales.max()
    extents = [int(np.floor(float(scale) * size + 0.5)) for size in old]
    return np.full(len(old), scale, dtype=real), extents


def _taps(
    node: OnnxNode, one: ResizedAxis, x: np.ndarray, mode: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and weights [extent, taps]; indices may lie outside, where edges repeat."""
    reach = {"linear": 1, "cubic": 2}.get(mode)
    if reach is None:
        node.fail("`mode` nearest, linear or cubic", f"`{mode}`", "correct the model")
    # A position exactly on an element belongs to the interval before it: ratios are in (0, 1].
    base = np.ceil(x) - 1
    ratio = (x - base)[:, None]
    scale = min(float(one.scale), 1.0) if node.attribute("antialias", 0) else 1.0
    start = int(np.floor(-reach / scale)) + 1
    steps = np.arange(start, 2 - start if mode == "cubic" else start + 2 - 2 * start)
    distance = np.abs((steps - ratio) * scale)
    if mode == "linear":
        weights = np.clip(1 - distance, 0, 1)
    else:
        weights = _cubic(distance, node.attribute("cubic_coeff_a", -0.75))
    indices = base[:, None] + steps
    if node.attribute("exclude_outside", 0):
        weights = np.where((indices < 0) | (indices >= one.size), 0, weights)
    return indices, weights / weights.sum(axis=1, keepdims=True)


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    """Return the weight of an element at distance `d`."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
