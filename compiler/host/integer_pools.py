"""Quantised pooling, by windows and over whole images."""

from dataclasses import replace

import numpy as np

from ...isa.numbers import INT8_MIN
from ..cpu import BytePooling, Requantisation
from ..graph import Node
from ..graph.operators import QAvgPool, QMaxPool
from .integer_bounds import fits, is_plain
from .kernel import HostKernel, Scope


def match_pool(scope: Scope, node: Node) -> HostKernel | None:
    """A QAvgPool or QMaxPool."""
    layer, x = node.attributes, node.inputs[0]
    assert isinstance(layer, QAvgPool | QMaxPool)
    if scope.graph.is_constant(x):
        return None
    samples, rows, columns, channels = scope.graph.types[x].shape
    described = BytePooling(
        *(samples, rows, columns, channels),
        kernel=layer.kernel,
        strides=layer.strides,
        pads=layer.pads,
        quantised=Requantisation("int8", "int8", low=layer.low, high=layer.high, folded=True),
    )
    if isinstance(layer, QMaxPool):
        described = replace(described, dilations=layer.dilations)
    else:
        size = -INT8_MIN * layer.kernel[0] * layer.kernel[1] + abs(layer.constant)
        scale = float(np.float32(layer.scale))
        if not fits(size) or not is_plain(size, scale):
            return None
        points = {"zero_point_in": layer.zero_point_x, "zero_point_out": layer.zero_point_y}
        quantised = replace(described.quantised, **points)
        described = replace(described, quantised=quantised, constant=layer.constant, scale=scale)
    return HostKernel(described, {"x": x}, {}, (node,), exact=True)
