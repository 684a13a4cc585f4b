"""Importers of AffineGrid, DeformConv, GridSample and RoiAlign; older sets name modes otherwise."""

import numpy as np

from ..graph import operators as ops
from ..graph.types import DTYPES
from .onnx_node import OnnxNode
from .onnx_windows import window_of

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


def import_deform_conv(node: OnnxNode) -> str:
    """Import DeformConv of images as GridSample and a Conv whose strides are its kernel.

    Each window's elements are sampled side by side. They are numbered by row and column.
    """
    x_type, kernel = node.type(0), node.type(1).shape[2:]
    if len(x_type.shape) != 4 or len(kernel) != 2:
        node.fail("an image [N, C, H, W]", f"{list(x_type.shape)}", "sample it before export")
    groups, base, dtype = node.attribute("offset_group", 1), node.result, x_type.dtype
    (n, channels, *image), extents = x_type.shape, node.type(2).shape[2:]
    window, pairs = window_of(node, kernel), groups * kernel[0] * kernel[1] * 2
    whole = groups > 0 and channels % groups == 0 and len(extents) == 2
    if not whole or node.type(2).shape != (n, pairs, *extents):
        expected = f"offsets [{n}, {pairs}, rows, columns] of {groups} groups of channels"
        node.fail(expected, f"{list(node.type(2).shape)}", "correct the model")
    large = (extents[0] * kernel[0], extents[1] * kernel[1])
    axes = [
        (stride * np.arange(extent)[:, None] + dilation * np.arange(count) - pad).ravel()
        for extent, count, stride, dilation, pad in zip(
            extents, kernel, window.strides, window.dilations, window.pads[:2], strict=True
        )
    ]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    size = np.array(image, np.float64)
    offset = node.reshape(node.input(2), (n * groups, *kernel, 2, *extents), f"{base}.offsets")
    offset = node.transpose(offset, (0, 4, 1, 5, 2, 3), f"{base}.turned")
    offset = node.reshape(offset, (n * groups, *large, 2), f"{base}.pairs")
    scale = node.array((2 / size).astype(DTYPES[dtype]), f"{base}.scale")
    start = node.array(((2 * places + 1) / size - 1).astype(DTYPES[dtype]), f"{base}.places")
    moved = node.binary("Add", node.binary("Mul", offset, scale), start, f"{base}.moved")
    grid = node.take(moved, 3, np.array([1, 0]), f"{base}.grid")
    split = node.reshape(node.input(0), (n * groups, channels // groups, *image), f"{base}.split")
    sampled = node.emit(ops.GridSample("linear", "zeros", False), [split, grid], f"{base}.sampled")
    if node.has(4):
        mask = node.reshape(node.input(4), (n * groups, *kernel, *extents), f"{base}.mask")
        mask = node.transpose(mask, (0, 3, 1, 4, 2), f"{base}.mask.turned")
        mask = node.reshape(mask, (n * groups, 1, *large), f"{base}.mask.wide")
        sampled = node.binary("Mul", sampled, mask, f"{base}.masked")
    image_of_taps = node.reshape(sampled, (n, channels, *large), f"{base}.taps")
    operands = [image_of_taps, node.input(1), *([node.input(3)] if node.has(3) else [])]
    conv = ops.Conv(kernel, (0, 0, 0, 0), (1, 1), node.attribute("group", 1))
    return node.emit(conv, operands)
