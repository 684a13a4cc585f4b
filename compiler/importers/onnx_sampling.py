"""Importers of GridSample and RoiAlign, whose attributes older operator sets name otherwise."""

from ..graph import operators as ops
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
