"""Convolution, depthwise convolution and dense layers: one expression.

Grouped convolutions whose groups fit a channel block become block-diagonal ones: per block of
channels, a small dense convolution with zeros between groups. Other group counts become dense ones.
"""

import numpy as np

from ...isa.configuration import Configuration
from ...isa.expressions import Affine, Call, Op, Reduction
from ..graph import Graph, Node, QConv
from ..tensor import Axis, Compute, Kernel, Tensor
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
from .first_layer import Image, gathered_window


def convolution(
    node: Node, graph: Graph, configuration: Configuration, image: Image | None = None
) -> Kernel:
    """`acc[n,y,x,o] = sum x[n, window(y, ky), window(x, kx), i] * w[0,ky,kx,i,o]`.

    A block-diagonal convolution has an axis `s` over channel blocks beside `o`, and reads
    `x[.., s*step + i] * w[s,ky,kx,i,o]`. With an `image`, `x` are windows gathered from it.
    """
    attributes = node.attributes
    assert isinstance(attributes, QConv)
    block = channel_block(configuration)
    out_shape = node.output.type.shape
    weights, bias, scale = (graph.data(name) for name in node.inputs[1:4])
    channels_in, channels_out = graph.types[node.inputs[0]].shape[3], out_shape[3]
    if image is not None:
        x, w, rows = gathered_window(
            attributes, image, node.inputs[0], weights, out_shape[2], configuration
        )
        columns = Affine.of(x=1)
    else:
        x = activation(node.inputs[0], graph, configuration, attributes.zero_point_x)
        w = expand_groups(weights, channels_in, attributes.groups, block)
        rows, columns = window(attributes.strides, attributes.dilations, attributes.pads)
    blocks, kh, kw, ci, co = w.shape
    macs = int(np.prod(out_shape[:3])) * weights.size
    names, channels = ("nyxso", (blocks, co)) if blocks > 1 else ("nyxo", (co,))
    bias = widen(bias, 0, padded(channels_out, block)).reshape(channels)
    scale = widen(scale, 0, padded(channels_out, block), 1.0).reshape(channels)

    shape = (*out_shape[:3], *channels)
    axes = tuple(Axis(name, extent) for name, extent in zip(names, shape, strict=True))
    acc = Tensor("acc", "int32", shape)
    result = node.output.name
    out = Tensor(tensor_name(result), "int8", shape, value=result)
    channel = Affine.of(s=ci if blocks > 1 else 0, i=1)
    n, s, o = Affine.of(n=1), Affine.of(s=1 if blocks > 1 else 0), Affine.of(o=1)
    block_and_lane = (s, o) if blocks > 1 else (o,)
    weight = Tensor("w", "int8", w.shape)
    product = Call(
        Op.MULTIPLY,
        (
            x[(n, rows, columns, channel)],
            weight[(s, Affine.of(ky=1), Affine.of(kx=1), Affine.of(i=1), o)],
        ),
    )
    total = acc[(n, Affine.of(y=1), Affine.of(x=1), *block_and_lane)]
    tensors = (
        x,
        weight,
        acc,
        out,
        Tensor("bias", "int32", bias.shape),
        Tensor("scale", "float32", scale.shape),
    )
    by_name = {tensor.name: tensor for tensor in tensors}
    body = requantised(total, by_name["bias"][block_and_lane], by_name["scale"][block_and_lane])
    return Kernel(
        name=node.name,
        stages=(
            Compute(
                acc,
                axes,
                (Axis("i", ci), Axis("ky", kh), Axis("kx", kw)),
                Reduction(Op.ADD, product),
            ),
            Compute(
                out,
                axes,
                (),
                epilogue(body, attributes.zero_point_y, attributes.low, attributes.high),
            ),
        ),
        tensors=by_name,
        constants={"w": w, "bias": bias, "scale": scale},
        macs=macs,
    )


def expand_groups(weights: np.ndarray, channels_in: int, groups: int, block: int) -> np.ndarray:
    """Weights int8[KH, KW, Ci/groups, Co] as int8[blocks, KH, KW, ci, co], zeros between groups.

    Depthwise weights with one output per channel become `Ci / block` diagonal blocks; all others
    one block of all channels.
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
