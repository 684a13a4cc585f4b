"""One expression for convolutions, depthwise convolutions and dense layers.

A grouped convolution becomes block-diagonal: for each block of channels, a small dense convolution
with zeros between groups. It is dense only if its groups don't add up to whole channel blocks.
"""

import math

import numpy as np

from ....aligned import round_up
from ....isa.configuration import Configuration
from ... import te
from ...graph import QConv
from ...graph.macs import macs_of
from ...graph.operators import Convolving
from ...tensor import Kernel
from .common import (
    StoredNode,
    channel_block,
    kernel_of,
    requantised,
    stored,
    sums,
    widen,
)
from .first_layer import EACH, Image, gathered_pixels, gathered_window
from .zero_points import WeightShift, corrected, corrections, shifted


@kernel_of.register
def convolution(
    operator: Convolving, site: StoredNode, image: Image | None = None, *, gather: bool = True
) -> Kernel:
    """`acc[n,y,x,o] = sum x[n, window(y, ky), window(x, kx), i] * w[0,ky,kx,i,o]`.

    A block-diagonal convolution also has an axis `s` over channel blocks, and reads
    `x[.., s*step + i] * w[s,ky,kx,i,o]`. A depthwise convolution, on a machine that supports it,
    is `x[.., o] * w[ky,kx,o]`. With an `image`, `x` has the windows gathered from it. With
    `gather`, a strided 1x1 convolution reads a tensor of only the pixels that it uses. Weights that
    exceed int8 may lose a `shift`, and VECTOR adds its products with the sums of the windows.
    """
    node, graph, configuration = site.node, site.graph, site.configuration
    out_shape, weights = node.output.type.shape, graph.data(node.inputs[1])
    channels_in, channels_out = graph.types[node.inputs[0]].shape[3], weights.shape[3]
    rows, columns = zip(operator.strides, operator.dilations, operator.pads[:2], strict=True)
    depthwise = bool(
        1 < operator.groups == channels_in == channels_out
        and configuration.depthwise_taps
        and image is None
    )
    if image is not None:
        x, w, rows = gathered_window(operator, image, site)
        columns = EACH
    else:
        block = channel_block(configuration)
        x = site.activation(node.inputs[0], operator.zero_point_x)
        if (
            gather
            and operator.groups == 1
            and weights.shape[:2] == (1, 1)
            and operator.strides != (1, 1)
            and not any(operator.pads)
        ):
            x = gathered_pixels(operator, site)
            rows = columns = EACH
        w = (
            widen(weights[:, :, 0], 2, x.tensor.shape[3])
            if depthwise
            else expand_groups(
                weights, operator.groups, block, _most_outputs(weights, configuration)
            )
        )
    shift = WeightShift()
    if isinstance(operator, QConv) and operator.groups == 1:
        patches = x.tensor.patches
        depth = channels_in if patches is None else patches.rows * patches.run
        w, shift = shifted(w, depth, channels_out, out_shape, rows, columns, configuration)
    weight = te.tensor("w", str(w.dtype), w.shape)
    pixel = n, y, column = te.axes(**dict(zip("nyx", out_shape[:3], strict=True)))
    extents = w.shape[:2] if depthwise else w.shape[1:3]
    ky, kx = te.reduce_axes(**dict(zip(("ky", "kx"), extents, strict=True)))
    row = y * rows[0] + ky * rows[1] - rows[2]
    across = column * columns[0] + kx * columns[1] - columns[2]
    channel = (o,) = te.axes(o=w.shape[-1])
    if depthwise:
        product, over = x[n, row, across, o] * weight[ky, kx, o], (ky, kx)
    else:
        blocks, *_, ci, _ = w.shape
        (i,) = te.reduce_axes(i=ci)
        first: te.Index | int = 0
        if blocks > 1:
            channel = first, o = te.axes(s=blocks, o=w.shape[-1])
        product = x[n, row, across, first * ci + i] * weight[first, ky, kx, i, o]
        over = i, ky, kx
    total, axes = te.sum(product, over), (*pixel, *channel)
    if not isinstance(operator, QConv):
        made = sums(node.output.name, axes, total)
        return te.kernel(node.name, made, {"w": w}, macs_of(graph, node))
    constants, view, size = {"w": w}, None, configuration.lanes_out
    if shift.by:
        channel = block, lane = te.axes(s=w.shape[-1] // size, l=size)
        axes = (*pixel, *channel)
        total = te.sum(x[n, row, across, i] * weight[0, ky, kx, i, block * size + lane], over)
        view = te.View(((0, 1), (1, 1), (2, 1), (3, size), (3, 1)), w.shape[-1])
    acc = te.compute("acc", "int32", axes, total)
    total = acc[axes]
    if shift.by:
        depth_of = np.arange(w.shape[3])[:, None] < depth
        constants["column of ones"] = depth_of.astype(np.int8).repeat(size, axis=1)
        ones = te.tensor("column of ones", "int8", (w.shape[3], size))
        if shift.taps > 1:  # sums of the windows' columns, which neighbours share
            (column,) = te.axes(across=shift.width)
            across, over = column - columns[2], (i, ky)
        (each,) = te.axes(each=size)
        place, inputs = (n, y, column, each), te.sum(x[n, row, across, i] * ones[i, each], over)
        windows = te.compute("sums of windows", "int32", place, inputs)[place]
        found = corrections("window", windows, place, shift.most, shift.by, constants)
        steps = [pixel[2] * columns[0] + tap * columns[1] for tap in range(shift.taps)]
        steps = steps if shift.taps > 1 else [column]
        terms = [(digit[n, y, step, lane], by) for digit, by in found for step in steps]
        total = corrected(total, axes, terms)
    value = requantised(total, channel, operator)
    shape = acc.tensor.shape[3:]
    bias, scale = (
        widen(graph.data(name), 0, math.prod(shape), fill).reshape(shape)
        for name, fill in zip(node.inputs[2:4], (0, 1.0), strict=True)
    )
    return te.kernel(
        node.name,
        stored(node.output.name, axes, value, view),
        {**constants, "bias": bias, "scale": scale},
        macs_of(graph, node),
    )


def _most_outputs(weights: np.ndarray, configuration: Configuration) -> int:
    """Outputs of a block for which a tile has room, since no schedule cuts them."""
    tiles = configuration.weight_tiles // math.prod(weights.shape[:2])
    most = min(tiles, configuration.acc_depth) * configuration.lanes_out
    return min(most, configuration.param_depth * configuration.vector_lanes)


def expand_groups(weights: np.ndarray, groups: int, block: int, most: int) -> np.ndarray:
    """Weights int8[KH, KW, Ci/groups, Co] as int8[blocks, KH, KW, ci, co], zeros between groups.

    A block is the fewest groups that read and write whole channel blocks, if it has at most so many
    outputs; otherwise it is all groups, with padded channels.
    """
    kh, kw, per_group, channels_out = weights.shape
    per_output = channels_out // groups
    sizes = [(n, round_up(groups * n, block)) for n in (per_group, per_output)]
    joined = next(
        joined
        for joined in range(1, groups + 1)
        if joined == groups
        or (
            joined * per_output <= most
            and all(
                joined * n % block == 0 and round_up(groups, joined) * n == whole
                for n, whole in sizes
            )
        )
    )
    blocks = -(-groups // joined)
    ci, co = (whole // blocks for _, whole in sizes)
    kernels = weights.reshape(kh, kw, per_group, groups, per_output)
    w = np.zeros((blocks, kh, kw, ci, co), dtype=weights.dtype)
    for group in range(groups):
        first, place = divmod(group, joined)
        rows = slice(place * per_group, (place + 1) * per_group)
        columns = slice(place * per_output, (place + 1) * per_output)
        w[first, :, :, rows, columns] = kernels[:, :, :, group]
    return w
