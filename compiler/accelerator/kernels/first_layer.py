"""Convolutions of images with few channels: several pixels of a window fill the lanes.

With 3 channels, 13 of 16 lanes would multiply zeros. Instead, LOAD gathers the bytes of each output
pixel's window next to each other. In memory, the pixels of a window's row are one run, and the runs
of neighbouring windows overlap. If only some rows of a window are gathered together, windows above
each other share them, and each window is read in several taps. The image in memory has no padding
channels, but it has a border, so that every run is whole.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....aligned import round_up
from ....isa.configuration import Configuration
from ... import te
from ...graph import Graph, Node, QConv
from ...graph.operators import Convolving
from ...tensor import Patches
from .common import StoredNode, channel_block, widen

EACH = (1, 0, 0)
"""Stride, dilation and padding of windows that are read one after the other, each as a whole."""


@dataclass(frozen=True, slots=True)
class Image:
    """Layout of a network's input in memory: unpadded channels and a border.

    Parameters
    ----------
    shape
        int8[N, H, W, C] without the border.
    border
        Pixels above, left, below and right.
    fill
        Value of the border's elements.
    rows
        Rows of a window that are gathered together.
    """

    shape: tuple[int, ...]
    border: tuple[int, int, int, int]
    fill: int
    rows: int

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape with the border."""
        n, height, width, channels = self.shape
        top, left, bottom, right = self.border
        return n, top + height + bottom, left + width + right, channels


def find_images(
    graph: Graph, nodes: Sequence[Node], inputs: Sequence[str], configuration: Configuration
) -> dict[str, Image]:
    """The inputs whose only reader is a convolution that is faster with gathered windows.

    Parameters
    ----------
    nodes, inputs
        Nodes and inputs of an accelerated segment; the host writes the inputs.
    """
    images = {}
    for name in inputs:
        readers = [node for node in nodes if name in node.inputs]
        users = graph.users(name)
        if len(readers) == len(users) == 1 and users[0].inputs.count(name) == 1:
            image = _image(readers[0], graph, configuration)
            if image is not None:
                images[name] = image
    return images


def _image(node: Node, graph: Graph, configuration: Configuration) -> Image | None:
    conv = node.attributes
    if not isinstance(conv, QConv) or conv.groups != 1 or conv.dilations[1] != 1:
        return None
    shape = graph.types[node.inputs[0]].shape
    kh, kw, channels, channels_out = graph.data(node.inputs[1]).shape
    lanes, bus = configuration.lanes_in, configuration.bus_bytes
    blocks = -(-channels_out // configuration.lanes_out)
    run = kw * channels

    def tiles(rows: int) -> int:
        return -(-kh // rows) * -(-rows * run // lanes) * blocks

    def loads(rows: int) -> float:
        """LOAD's cycles per output pixel; runs are not aligned to beats."""
        _, stride, _ = _taps(conv, kh, rows)
        return rows * stride * (run / bus + 1.5)

    def cycles(rows: int) -> float:
        return max(tiles(rows), loads(rows))

    lane_bytes = round_up(channels, channel_block(configuration))
    pixel_loads = math.prod(conv.strides) * lane_bytes / bus
    plain = max(kh * kw * -(-channels // lanes) * blocks, pixel_loads)
    # The estimate knows neither GEMM's other work nor rows that two tiles load, so ask for more.
    some = (
        rows for rows in range(2, kh) if tiles(rows) <= tiles(kh) and 2 * loads(rows) <= loads(kh)
    )
    rows = min((kh, 1, *some), key=cycles)
    if 2 * channels > channel_block(configuration) or cycles(rows) >= plain:
        return None
    # The last taps may reach below the last window; their weights are zero.
    taps, _, _ = _taps(conv, kh, rows)
    top, left, bottom, right = conv.pads
    below = top + shape[1] + bottom - (kh - 1) * conv.dilations[0] - 1
    below = max(0, (taps * rows - kh) * conv.dilations[0] - below % conv.strides[0])
    return Image(shape, (top, left, bottom + below, right), conv.zero_point_x, rows)


def _taps(conv: Convolving, height: int, rows: int) -> tuple[int, int, int]:
    """Return the taps in which a window is read, and their stride and dilation in gathered rows."""
    taps = -(-height // rows)
    row, apart = conv.strides[0], rows * conv.dilations[0]
    step = row if taps == 1 else math.gcd(row, apart)
    return taps, row // step, apart // step


def gathered_pixels(conv: Convolving, site: StoredNode) -> te.DeclaredTensor:
    """Only the pixels that a strided 1x1 convolution reads, int8[N, OH, OW, C]."""
    name = site.node.inputs[0]
    channels = site.shape(name)[3]
    rows, columns = conv.strides
    n, height, width, _ = site.node.output.type.shape
    patches = Patches(
        rows=1, run=channels, pixels=1, row_step=rows, column_step=columns, dilation=1
    )
    shape = (n, height, width, channels)
    return te.tensor(f"pixels of {name}", "int8", shape, of=name, by=patches)


def gathered_window(
    conv: Convolving, image: Image, site: StoredNode
) -> tuple[te.DeclaredTensor, np.ndarray, tuple[int, int, int]]:
    """Replace the image in the convolution's expression by gathered windows.

    Returns
    -------
    The tensor of windows, the weights int8[1, taps, 1, lanes, Co] that multiply them, and the
    stride, dilation and padding of the rows of windows that are read.
    """
    name, weights = site.node.inputs[0], site.graph.data(site.node.inputs[1])
    kh, kw, channels, channels_out = weights.shape
    taps, stride, dilation = _taps(conv, kh, image.rows)
    run = kw * channels
    lanes = round_up(image.rows * run, site.configuration.lanes_in)
    n, height, width, _ = site.node.output.type.shape
    patches = Patches(
        rows=image.rows,
        run=run,
        pixels=kw,
        row_step=conv.strides[0] // stride,
        column_step=conv.strides[1],
        dilation=conv.dilations[0],
    )
    shape = (n, (height - 1) * stride + (taps - 1) * dilation + 1, width, lanes)
    tensor = te.tensor(f"windows of {name}", "int8", shape, of=name, by=patches)
    w = widen(weights, 0, taps * image.rows).reshape(taps, image.rows * run, channels_out)
    w = widen(widen(w, 1, lanes), 2, round_up(channels_out, channel_block(site.configuration)))
    return tensor, w[None, :, None], (stride, dilation, 0)
