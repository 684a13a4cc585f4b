"""One expression for convolutions, depthwise convolutions and dense layers.

A grouped convolution whose groups fit a channel block becomes block-diagonal: for each block of
channels, a small dense convolution with zeros between groups. Other grouped convolutions become
dense.
"""

import numpy as np

from ....isa.configuration import Configuration
from ....isa.expressions import Affine, Call, Expression, Op, Reduction
from ...graph import Graph, Node, QConv
from ...graph.macs import macs_of
from ...tensor import Axis, Compute, Kernel, Tensor
from .common import (
    activation,
    channel_block,
    epilogue,
    padded,
    requantised,
    tensor_name,
    widen,
    window,
)
from .first_layer import Image, gathered_pixels, gathered_window


def convolution(
    node: Node,
    graph: Graph,
    configuration: Configuration,
    image: Image | None = None,
    *,
    gather: bool = True,
) -> Kernel:
    """`acc[n,y,x,o] = sum x[n, window(y, ky), window(x, kx), i] * w[0,ky,kx,i,o]`.

    A block-diagonal convolution also has an axis `s` over channel blocks, and reads
    `x[.., s*step + i] * w[s,ky,kx,i,o]`. A depthwise convolution, on a machine that supports it,
    is `x[.., o] * w[ky,kx,o]`. With an `image`, `x` has the windows gathered from it. With
    `gather`, a strided 1x1 convolution reads a tensor of only the pixels that it uses.
    """
    attributes = node.attributes
    assert isinstance(attributes, QConv)
    block = channel_block(configuration)
    out_shape = node.output.type.shape
    weights = graph.data(node.inputs[1])
    channels_in, channels_out = graph.types[node.inputs[0]].shape[3], out_shape[3]
    rows, columns = window(attributes.strides, attributes.dilations, attributes.pads)
    n, o, i, ky, kx = (Affine.of(**{axis: 1}) for axis in ("n", "o", "i", "ky", "kx"))
    if image is not None:
        x, w, rows = gathered_window(
            attributes, image, node.inputs[0], weights, out_shape[2], configuration
        )
        columns = Affine.of(x=1)
    else:
        x = activation(node.inputs[0], graph, configuration, attributes.zero_point_x)
        if (
            gather
            and attributes.groups == 1
            and weights.shape[:2] == (1, 1)
            and attributes.strides != (1, 1)
            and not any(attributes.pads)
        ):
            x = gathered_pixels(attributes, node, graph, configuration)
            rows, columns = Affine.of(y=1), Affine.of(x=1)
        if 1 < attributes.groups == channels_in == channels_out and configuration.depthwise_taps:
            w = widen(weights[:, :, 0], 2, x.shape[3])
            weight = Tensor("w", "int8", w.shape)
            product = Call(Op.MULTIPLY, (x[(n, rows, columns, o)], weight[(ky, kx, o)]))
            return _finished(node, graph, product, (x, weight), w, {"o": w.shape[2]})
        w = expand_groups(weights, channels_in, attributes.groups, block)
    blocks, _, _, ci, co = w.shape
    weight = Tensor("w", "int8", w.shape)
    if blocks == 1:
        data, s, channels = x[(n, rows, columns, i)], Affine.of(), {"o": co}
    else:
        data = x[(n, rows, columns, Affine.of(s=ci, i=1))]
        s, channels = Affine.of(s=1), {"s": blocks, "o": co}
    product = Call(Op.MULTIPLY, (data, weight[(s, ky, kx, i, o)]))
    return _finished(node, graph, product, (x, weight), w, channels)


def _finished(
    node: Node,
    graph: Graph,
    product: Expression,
    operands: tuple[Tensor, Tensor],
    w: np.ndarray,
    channels: dict[str, int],
) -> Kernel:
    """The kernel of a product: a sum that is requantised per channel.

    Parameters
    ----------
    operands, w
        The two factors, data first, and the values of the weights.
    channels
        Channel axes of the result with their extents.
    """
    attributes = node.attributes
    assert isinstance(attributes, QConv)
    _, weight = operands
    out_shape = node.output.type.shape
    bias, scale = (graph.data(name) for name in node.inputs[2:4])
    extents = dict(zip("nyx", out_shape[:3], strict=True)) | channels
    axes = tuple(Axis(name, extent) for name, extent in extents.items())
    shape, padded_shape = tuple(extents.values()), tuple(channels.values())
    count = int(np.prod(padded_shape))
    taps = [("i", 3), ("ky", 1), ("kx", 2)] if w.ndim == 5 else [("ky", 0), ("kx", 1)]
    bias = widen(bias, 0, count).reshape(padded_shape)
    scale = widen(scale, 0, count, 1.0).reshape(padded_shape)
    acc = Tensor("acc", "int32", shape)
    result = node.output.name
    out = Tensor(tensor_name(result), "int8", shape, value=result)
    biases = Tensor("bias", "int32", padded_shape)
    scales = Tensor("scale", "float32", padded_shape)
    lane = tuple(Affine.of(**{axis: 1}) for axis in channels)
    total = acc[tuple(Affine.of(**{axis: 1}) for axis in extents)]
    body = requantised(total, biases[lane], scales[lane])
    body = epilogue(body, attributes.zero_point_y, attributes.low, attributes.high)
    reductions = tuple(Axis(name, w.shape[dimension]) for name, dimension in taps)
    return Kernel(
        name=node.name,
        stages=(
            Compute(acc, axes, reductions, Reduction(Op.ADD, product)),
            Compute(out, axes, (), body),
        ),
        tensors={tensor.name: tensor for tensor in (*operands, acc, out, biases, scales)},
        constants={weight.name: w, "bias": bias, "scale": scale},
        macs=macs_of(graph, node),
    )


def expand_groups(weights: np.ndarray, channels_in: int, groups: int, block: int) -> np.ndarray:
    """Weights int8[KH, KW, Ci/groups, Co] as int8[blocks, KH, KW, ci, co], zeros between groups.

    Depthwise weights with one output per channel become `Ci / block` diagonal blocks. All other
    weights become one block of all channels.
    """
    kh, kw, per_group, channels_out = weights.shape
    if groups == 1:
        w = widen(widen(weights, 2, padded(channels_in, block)), 3, padded(channels_out, block))
        return w[None]
    if groups == channels_in == channels_out:
        channels = padded(channels_out, block)
        taps = widen(weights, 3, channels)[:, :, 0].reshape(kh, kw, channels // block, block)
        w = np.zeros((channels // block, kh, kw, block, block), dtype=weights.dtype)
        lanes = np.arange(block)
        w[:, :, :, lanes, lanes] = taps.transpose(2, 0, 1, 3)
        return w
    dense = np.zeros((kh, kw, channels_in, channels_out), dtype=weights.dtype)
    per_output = channels_out // groups
    for group in range(groups):
        rows = slice(group * per_group, (group + 1) * per_group)
        columns = slice(group * per_output, (group + 1) * per_output)
        dense[:, :, rows, columns] = weights[..., columns]
    return expand_groups(dense, channels_in, 1, block)
