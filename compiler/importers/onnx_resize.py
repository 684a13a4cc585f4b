"""Nearest-neighbour resizing -> Gather: which element a result takes is known at import.

Source: ONNX operators Resize and Upsample. Coordinates are computed in binary32, as ONNX Runtime
does, so that ties fall on the same side.
"""

from collections.abc import Callable

import numpy as np

from ..graph import operators as ops
from .onnx_node import OnnxNode

Coordinates = Callable[[np.ndarray, int, int, np.float32], np.ndarray]
"""(places in the result, extent before, extent after, scale) -> float32 places before."""

HALF = np.float32(0.5)


def _half_pixel(x: np.ndarray, size: int, extent: int, scale: np.float32) -> np.ndarray:
    return (x + HALF) / scale - HALF


def _pytorch_half_pixel(x: np.ndarray, size: int, extent: int, scale: np.float32) -> np.ndarray:
    return _half_pixel(x, size, extent, scale) if extent > 1 else 0 * x


def _half_pixel_symmetric(x: np.ndarray, size: int, extent: int, scale: np.float32) -> np.ndarray:
    adjustment = np.float32(extent) / (scale * np.float32(size))
    offset = np.float32(size) / 2 * (1 - adjustment)
    return offset + (x + HALF) / scale - HALF


def _align_corners(x: np.ndarray, size: int, extent: int, scale: np.float32) -> np.ndarray:
    return x * np.float32(size - 1) / np.float32(max(extent - 1, 1))


def _asymmetric(x: np.ndarray, size: int, extent: int, scale: np.float32) -> np.ndarray:
    return x / scale


def _tf_half_pixel(x: np.ndarray, size: int, extent: int, scale: np.float32) -> np.ndarray:
    return (x + HALF) / scale


COORDINATES: dict[str, Coordinates] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_half_pixel_for_nn": _tf_half_pixel,
}
"""`coordinate_transformation_mode` -> where an element of the result lies before."""

ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - HALF),
    "round_prefer_ceil": lambda x: np.floor(x + HALF),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""`nearest_mode` -> how that place is rounded."""


def import_resize(node: OnnxNode) -> str:
    """Resize with `mode` nearest, by scales or sizes -> Gather on each axis that changes."""
    if node.opset < 11:
        return _resize(node, _scales(node, node.constant(1)), "asymmetric", "")
    coordinates = _expect(node, "coordinate_transformation_mode", "half_pixel", (*COORDINATES,))
    rounding = _expect(node, "nearest_mode", "round_prefer_floor", (*ROUNDINGS,))
    shape = node.type(0).shape
    if node.has(2) and node.constant(2).size:
        return _resize(node, _scales(node, node.constant(2)), coordinates, rounding)
    axes = _axes(node)
    sizes = node.integers(3)
    if len(sizes) != len(axes) or min(sizes, default=1) < 1:
        node.fail(f"{len(axes)} positive sizes", f"{list(sizes)}", "give one for each axis")
    scales = {
        axis: (size, np.float32(size) / np.float32(shape[axis]))
        for axis, size in zip(axes, sizes, strict=True)
    }
    return _resize(node, scales, coordinates, rounding)


def import_upsample(node: OnnxNode) -> str:
    """Upsample with `mode` nearest, scales as attribute (operator set 7) or input (9) -> Gather."""
    given = node.attribute("scales", ()) if node.opset < 9 else node.constant(1)
    scales = _scales(node, np.asarray(given, dtype=np.float32))
    return _resize(node, scales, "asymmetric", "floor")


def _expect(node: OnnxNode, name: str, default: str, known: tuple[str, ...]) -> str:
    """Return a text attribute that is one of the known ones."""
    value = node.attribute(name, default)
    if value not in known:
        node.fail(f"`{name}` {' or '.join(known)}", f"`{value}`", "correct the model")
    return value


def _axes(node: OnnxNode) -> tuple[int, ...]:
    """Return the axes that scales or sizes are given for."""
    rank = node.rank(0)
    return tuple(node.normalise(axis, rank) for axis in node.attribute("axes", tuple(range(rank))))


def _scales(node: OnnxNode, scales: np.ndarray) -> dict[int, tuple[int, np.float32]]:
    """Return extent and scale of each axis."""
    axes, shape = _axes(node), node.type(0).shape
    values = scales.astype(np.float32).ravel()
    if values.size != len(axes) or not (np.isfinite(values) & (values > 0)).all():
        got = [float(value) for value in values]
        node.fail(f"{len(axes)} positive scales", f"{got}", "give one for each axis")
    return {
        axis: (int(np.floor(np.float32(shape[axis]) * scale)), scale)
        for axis, scale in zip(axes, values, strict=True)
    }


def _resize(
    node: OnnxNode, extents: dict[int, tuple[int, np.float32]], coordinates: str, rounding: str
) -> str:
    """Emit a Gather for each axis that is scaled; one that is not stays as it is.

    Without a `rounding`, places are rounded down where there are more of them, and up otherwise.
    """
    result, base = node.input(0), node.proto.output[0]
    shape = node.type(0).shape
    for axis, (extent, scale) in sorted(extents.items()):
        size = shape[axis]
        if scale == 1:
            continue
        places = COORDINATES[coordinates](
            np.arange(extent, dtype=np.float32), size, extent, np.float32(scale)
        )
        rounded = ROUNDINGS[rounding or ("floor" if scale >= 1 else "ceil")](places)
        indices = np.clip(rounded, 0, size - 1).astype(np.int64)
        held = node.builder.constant(indices, f"{base}.axis{axis}")
        result = node.emit(ops.Gather(axis), [result, held])
    return result
