"""Quantised convolutions and dense layers, with the residual that is added to them."""

from dataclasses import replace

import numpy as np

from ..cpu import Convolution, DepthwiseConvolution, GroupedConvolution, Requantisation, Residual
from ..cpu.kernels.byte_winograd import LIMIT
from ..graph import Node
from ..graph.operators import QAdd, QConv
from .integer_bounds import are_narrow, fits, is_plain, largest_sums
from .integer_sums import as_residual
from .kernel import HostKernel, Scope


def match_layer(scope: Scope, node: Node) -> HostKernel | None:
    """A QConv, and the QAdd that reads it."""
    layer = node.attributes
    assert isinstance(layer, QConv)
    x, *names = node.inputs
    w, bias, scale = map(scope.constant, names)
    if w is None or bias is None or scale is None or scope.graph.is_constant(x):
        return None
    sizes = largest_sums(w, bias)
    if not fits(sizes):
        return None
    plain = is_plain(sizes, scale)
    quantised = Requantisation(
        *("int8", "int8", layer.zero_point_x, layer.zero_point_y, layer.low, layer.high),
        folded=True,
        guarded=not plain,
    )
    shape = scope.graph.types[x].shape
    constants = {"w": w, "bias": bias, "scale": scale}
    inputs = {"x": x}
    if layer.groups == 1:
        described, constants["w"] = _dense(layer, shape, w, quantised)
        described = replace(described, narrow=bool(np.all(sizes < LIMIT)))
        nodes = (node,)
        found = _residual(scope, node)
        if found is not None:
            follower, other, added = found
            described = replace(described, added=added)
            inputs["residual"], nodes = other, (node, follower)
        return HostKernel(described, inputs, constants, nodes, exact=True)
    if layer.groups == shape[3] == w.shape[3]:
        constants["w"] = np.ascontiguousarray(w[:, :, 0])
        described = DepthwiseConvolution(
            *shape,
            kernel=(w.shape[0], w.shape[1]),
            strides=layer.strides,
            pads=layer.pads,
            dilations=layer.dilations,
            quantised=quantised,
            narrow=plain and are_narrow(w, bias),
        )
        return HostKernel(described, inputs, constants, (node,), exact=True)
    described = GroupedConvolution(
        *(shape[0], shape[1], shape[2], shape[3], w.shape[3]),
        groups=layer.groups,
        kernel=(w.shape[0], w.shape[1]),
        strides=layer.strides,
        pads=layer.pads,
        dilations=layer.dilations,
        quantised=quantised,
    )
    return HostKernel(described, inputs, constants, (node,), exact=True)


def _dense(
    layer: QConv, shape: tuple[int, ...], w: np.ndarray, quantised: Requantisation
) -> tuple[Convolution, np.ndarray]:
    """The description and its weights; a window of the whole image is one tap of all its bytes."""
    samples, rows, columns, depth = shape
    height, width, _, channels = w.shape
    if (height, width) == (rows, columns) and not any(layer.pads):
        taps = rows * columns * depth
        described = Convolution(1, 1, samples, taps, channels, quantised=quantised)
        return described, w.reshape(1, 1, taps, channels)
    described = Convolution(
        *(samples, rows, columns, depth, channels),
        kernel=(height, width),
        strides=layer.strides,
        pads=layer.pads,
        dilations=layer.dilations,
        quantised=quantised,
    )
    return described, w


def _residual(scope: Scope, node: Node) -> tuple[Node, str, Residual] | None:
    """The QAdd that follows, the value that it adds, and how; None if that is another kernel's."""
    follower = scope.follower(node)
    if follower is None or not isinstance(follower.attributes, QAdd):
        return None
    own = follower.inputs.index(node.output.name)
    other = follower.inputs[1 - own]
    added = as_residual(follower.attributes, own)
    if added is None or other == node.output.name or scope.graph.is_constant(other):
        return None
    return follower, other, added
