"""Importers of AffineGrid, and of GridSample and RoiAlign, whose older sets use other names."""

import numpy as np

from ..graph import operators as ops
from ..graph.types import DTYPES
from .onnx_node import OnnxNode

OLDER_MODES: dict[str, str] = {"bilinear": "linear", "bicubic": "cubic"}
"""Modes of GridSample in operator set 16 -> their names since 20."""


def import_grid_sample(node: OnnxNode) -> str:
    """Import GridSample as GridSample."""
    mode: str = node.attribute("mode", "linear")
    operator = ops.GridSample(
        OLDER_MODES.get(mode, mode),
        node.attribute("padding_mode", "zeros"),
        bool(node.attribute("align_corners", 0)),
    )
    return node.emit(operator, node.inputs())


def import_roi_align(node: OnnxNode) -> str:
    """Import RoiAlign as RoiAlign; before operator set 16, no coordinates are shifted."""
    modes = ("half_pixel", "output_half_pixel")
    given = modes[node.opset < 16]
    coordinates = node.attribute("coordinate_transformation_mode", given)
    if coordinates not in modes:
        expected = f"`coordinate_transformation_mode` {' or '.join(modes)}"
        node.fail(expected, f"`{coordinates}`", "correct the model")
    operator = ops.RoiAlign(
        node.attribute("mode", "avg").lower(),
        (node.attribute("output_height", 1), node.attribute("output_width", 1)),
        node.attribute("sampling_ratio", 0),
        node.attribute("spatial_scale", 1.0),
        coordinates == "half_pixel",
    )
    return node.emit(operator, node.inputs())


def import_affine_grid(node: OnnxNode) -> str:
    """Import AffineGrid as the product of all positions with the transforms.

    ONNX's definition as a function squeezes a batch of 1 away.
    """
    batch, _, *extents = node.integers(1)
    rank, dtype, base = len(extents), node.type(0).dtype, node.result
    if rank not in (2, 3) or min(extents) < 1 or node.type(0).shape != (batch, rank, rank + 1):
        expected = f"transforms [{batch}, {rank}, {rank + 1}] for a size of 4 or 5 numbers"
        node.fail(expected, f"{list(node.type(0).shape)}", "correct the model")
    corners = bool(node.attribute("align_corners", 0))
    axes = [_positions(extent, corners) for extent in extents]
    grids = np.meshgrid(*axes, indexing="ij")[::-1]
    places = np.stack([*grids, np.ones(extents)], axis=-1).reshape(1, -1, rank + 1)
    held = node.array(places.astype(DTYPES[dtype]), f"{base}.places")
    turned = node.transpose(node.input(0), (0, 2, 1), f"{base}.turned")
    moved = node.emit(ops.MatMul(), [held, turned], f"{base}.moved")
    return node.reshape(moved, (batch, *extents, rank))


def _positions(extent: int, corners: bool) -> np.ndarray:
    """Return the centres of pixels, or their corners, from -1 to 1; 0 for a single corner."""
    if corners:
        return np.linspace(-1, 1, extent) if extent > 1 else np.zeros(1)
    return (2 * np.arange(extent) + 1) / extent - 1
