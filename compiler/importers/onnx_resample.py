"""Resize and Upsample in every mode -> Interpolate along each axis that changes.

Resizing to the nearest element is a Gather where it can be (`onnx_resize`). Source: ONNX operator
Resize; its weights are worked out here, in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..graph import TensorType
from ..graph.operators import Interpolate, Where
from ..graph.types import LARGEST_BYTES
from .onnx_node import OnnxNode
from .onnx_resize import ROUNDINGS, import_resize, import_upsample

MOST = 1 << 31
"""Scales and sizes from here on are mistakes."""


@dataclass(frozen=True, slots=True)
class Axis:
    """How one axis is resized: from `size` to `extent` elements.

    Attributes
    ----------
    axis, size, extent : int
        Which one, elements before and after.
    scale : float
        Wished ratio; `extent` is it times `size`, rounded down.
    region : (float, float)
        Part of the axis that is cropped out, for `tf_crop_and_resize`.
    """

    axis: int
    size: int
    extent: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)


def import_resample(node: OnnxNode) -> str:
    """Resize, Upsample -> Gather or Interpolate on each axis that changes."""
    if node.proto.op_type == "Upsample" and node.opset >= 10:
        node.fail(
            "Resize, which took the place of Upsample in operator set 10",
            f"Upsample in operator set {node.opset}",
            "export the model again, or declare operator set 9",
        )
    coordinates = node.attribute("coordinate_transformation_mode", "half_pixel")
    aspect = node.attribute("keep_aspect_ratio_policy", "stretch")
    nearest = node.attribute("mode", "nearest") == "nearest"
    if nearest and aspect == "stretch" and coordinates != "tf_crop_and_resize":
        return import_upsample(node) if node.proto.op_type == "Upsample" else import_resize(node)
    if node.opset < 11:
        coordinates = "asymmetric"
    result, outside = node.input(0), {}
    for one in _axes(node):
        places = _coordinates(node, coordinates, one)
        if coordinates == "tf_crop_and_resize":
            outside[one.axis] = (places < 0) | (places > one.size - 1)
        elif one.extent == one.size and one.scale == 1:
            continue
        indices, weights = _taps(node, one, places)
        base = f"{node.proto.output[0]}.axis{one.axis}"
        held = [
            node.array(np.clip(indices, 0, one.size - 1).astype(np.int64), f"{base}.places"),
            node.array(weights.astype(np.float32), f"{base}.weights"),
        ]
        result = node.emit(Interpolate(one.axis), [result, *held])
    return _extrapolate(node, result, outside)


def _extrapolate(node: OnnxNode, x: str, outside: dict[int, np.ndarray]) -> str:
    """Emit the value of elements that lie outside the tensor, where some do."""
    kind = node.builder.types[x]
    mask = np.zeros(kind.shape, dtype=bool)
    for axis, flags in outside.items():
        mask |= flags.reshape([-1 if i == axis else 1 for i in range(len(kind.shape))])
    if not mask.any():
        return x
    value = node.number(node.attribute("extrapolation_value", 0.0), kind.dtype)
    return node.emit(Where(), [node.array(mask, f"{node.proto.output[0]}.outside"), value, x])


def _axes(node: OnnxNode) -> list[Axis]:
    """Return how each axis is resized, from scales or sizes."""
    shape = node.type(0).shape
    rank = len(shape)
    axes = [node.normalise(a, rank) for a in node.attribute("axes", tuple(range(rank)))]
    upsample = node.proto.op_type == "Upsample"
    at = 1 if upsample or node.opset < 11 else 2
    if upsample and node.opset < 9:
        scales = np.asarray(node.attribute("scales", ()), dtype=np.float64)
    else:
        scales = node.constant(at).ravel().astype(np.float64) if node.has(at) else np.zeros(0)
    regions = [(0.0, 1.0)] * len(axes)
    if not upsample and node.opset >= 11 and node.has(1):
        roi = node.constant(1).ravel()
        if roi.size == 2 * len(axes):
            regions = [(float(roi[i]), float(roi[i + len(axes)])) for i in range(len(axes))]
    sizes = () if scales.size else node.integers(3)
    wished = scales if scales.size else np.asarray(sizes, dtype=np.float64)
    fits = wished.size == len(axes) and bool(((wished > 0) & (wished < MOST)).all())
    if not fits or min((shape[axis] for axis in axes), default=1) < 1:
        node.fail(f"{len(axes)} positive scales or sizes", "others", "give one for each axis")
    if scales.size:
        extents = [int(np.floor(shape[a] * s)) for a, s in zip(axes, scales, strict=True)]
    else:
        scales, extents = _sized(node, [shape[axis] for axis in axes], sizes)
    result = list(shape)
    for axis, extent in zip(axes, extents, strict=True):
        result[axis] = extent
    node.check(TensorType(node.type(0).dtype, tuple(result)), LARGEST_BYTES)
    return [
        Axis(axis, shape[axis], extent, float(scale), region)
        for axis, extent, scale, region in zip(axes, extents, scales, regions, strict=True)
    ]


def _sized(node: OnnxNode, old: list[int], new: tuple[int, ...]) -> tuple[np.ndarray, list[int]]:
    """Return scales and extents for sizes, keeping the aspect ratio where asked to."""
    scales = np.array(new, dtype=np.float64) / np.maximum(np.array(old), 1)
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch" or not scales.size:
        return scales, list(new)
    scale = float(scales.min() if policy == "not_larger" else scales.max())
    return np.full(len(old), scale), [int(np.floor(scale * size + 0.5)) for size in old]


def _coordinates(node: OnnxNode, mode: str, one: Axis) -> np.ndarray:
    """Return where each element of the result lies on the axis before, float64[extent]."""
    x = np.arange(one.extent, dtype=np.float64)
    last, width = one.size - 1, one.scale * one.size
    if mode == "asymmetric":
        return x / one.scale
    if mode == "align_corners":
        return 0 * x if width == 1 else x * last / (width - 1)
    if mode == "tf_crop_and_resize":
        first, stop = one.region
        if width == 1:
            return 0 * x + (stop - first) * last / 2 + first * last
        return x * (stop - first) * last / (width - 1) + first * last
    if mode == "pytorch_half_pixel" and width == 1:
        return 0 * x - 0.5
    offset = 0.0
    if mode == "half_pixel_symmetric":
        offset = one.size / 2 * (1 - one.extent / width)
    elif mode not in ("half_pixel", "pytorch_half_pixel"):
        node.fail("a known `coordinate_transformation_mode`", f"`{mode}`", "correct the model")
    return offset + (x + 0.5) / one.scale - 0.5


def _taps(node: OnnxNode, one: Axis, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and weights [extent, taps]; indices may lie outside, where edges repeat."""
    mode = node.attribute("mode", "nearest")
    if mode == "nearest":
        rounding = node.attribute("nearest_mode", "round_prefer_floor")
        if rounding not in ROUNDINGS:
            node.fail("a known `nearest_mode`", f"`{rounding}`", "correct the model")
        return ROUNDINGS[rounding](x)[:, None], np.ones((len(x), 1))
    reach = {"linear": 1, "cubic": 2}.get(mode)
    if reach is None:
        node.fail("`mode` nearest, linear or cubic", f"`{mode}`", "correct the model")
    # A place that is an element's own counts as behind the one before: ratios are in (0, 1].
    base = np.ceil(x) - 1
    ratio = (x - base)[:, None]
    scale = min(one.scale, 1.0) if node.attribute("antialias", 0) else 1.0
    start = int(np.floor(-reach / scale)) + 1
    steps = np.arange(start, 2 - start if mode == "cubic" else start + 2 - 2 * start)
    distance = np.abs((steps - ratio) * scale)
    weights = _weight(node, mode)(distance)
    indices = base[:, None] + steps
    if node.attribute("exclude_outside", 0):
        weights = np.where((indices < 0) | (indices >= one.size), 0, weights)
    return indices, weights / weights.sum(axis=1, keepdims=True)


def _weight(node: OnnxNode, mode: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return the weight of an element as a function of its distance."""
    a = node.attribute("cubic_coeff_a", -0.75)

    def cubic(d: np.ndarray) -> np.ndarray:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))

    return cubic if mode == "cubic" else lambda d: np.clip(1 - d, 0, 1)
