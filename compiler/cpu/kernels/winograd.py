"""Winograd's convolution F(2x2, 3x3): 16 products where a tile of 2x2 outputs has 36.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016. A tile of 4x4
inputs and the window are changed to a basis in which convolution is a product element by element;
over all tiles that is one matrix product for each of the 16 elements. The factors of the input's
and the output's change are 0, 1 and -1, known at compile time, so that code has additions alone.
Sums over channels are shorter than direct ones and more of them cancel; for normal numbers and 64
or more channels the largest error is no larger (`tests/compiler/cpu/test_convolution.py`).
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ... import te
from ...te.stages import REGISTER
from ..codegen.buffers import STACK_BYTES
from ..codegen.layout import Layout, Tiles
from ..target import Target
from .description import Plan, activated, round_up

if TYPE_CHECKING:
    from .convolution import Convolution

_INPUT = np.array([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]], np.float32)
_WINDOW = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_OUTPUT = np.array([[1, 0], [1, 1], [1, -1], [0, -1]], np.float32)

TILE = 2
"""Outputs of a tile along each dimension."""


class WinogradPlanner:
    """Declares and schedules one float32 convolution for one target.

    Parameters
    ----------
    conv
        The convolution, with windows of 3x3 and steps of 1.
    target
        What it is compiled for.
    """

    def __init__(self, conv: "Convolution", target: Target) -> None:
        self.conv, self.target = conv, target
        self.down, self.across = (math.ceil(size / TILE) for size in conv.size_out)

    @property
    def is_faster(self) -> bool:
        """Whether it takes less time than direct convolution: enough channels and tiles."""
        c = self.conv
        return c.size_out[1] >= 7 and min(c.channels_in, c.channels_out) >= 32

    @property
    def tiles(self) -> Tiles:
        """How tiles of the output lie in it."""
        return Tiles.of_image(self.conv.output.shape, TILE)

    def plan(self) -> Plan:
        """Declaration, schedule and layouts."""
        conv, target = self.conv, self.target
        rows, columns = TILE * self.down, TILE * self.across
        x = te.tensor("x", "float32", conv.operands["x"].shape)
        extents = (conv.batch, rows + 2, columns + 2, conv.channels_in)
        pn, py, px, pc = te.axes(**dict(zip(("pn", "py", "px", "pc"), extents, strict=True)))
        bordered = x[pn, py - conv.pads[0], px - conv.pads[1], pc]
        source = te.compute("padded", "float32", (pn, py, px, pc), bordered)
        w = te.tensor("w", "float32", (4, 4, conv.channels_in, conv.channels_out))
        total, axes = products(source, w, self.down, self.across)
        total = total + te.tensor("bias", "float32", (conv.channels_out,))[axes[-1]]
        if conv.residual:
            total = total + te.tensor("residual", "float32", self.tiles.shape)[axes]
        out = te.compute("out", "float32", axes, activated(total, conv.activation, "convolution"))
        kernel = te.kernel("convolution", out, CONSTANTS)
        schedule = te.Schedule(kernel, processor=target.processor)
        schedule.split("padded", "pc", target.lanes)
        schedule.vectorise("padded", "pc.i")
        schedule.parallelise("padded", schedule.fuse("padded", "pn", "py"))
        layout = schedule_products(
            schedule, target, self.across, conv.channels_in, conv.channels_out
        )
        bias = Layout.plain((round_up(conv.channels_out, target.lanes),))
        tiles = {name: self.tiles for name in ("out", "residual") if name in kernel.tensors}
        return Plan(schedule, {"w": layout, "bias": bias}, tiles)

    def prepare(self, constants: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Weights float32[3, 3, I, O] in the basis of the products, float32[4, 4, I, O]."""
        wide = constants["w"].astype(np.float64)
        changed = np.einsum("ia,jb,abco->ijco", _WINDOW, _WINDOW, wide)
        return {**constants, "w": changed.astype(np.float32)}


def products(
    source: te.Operand, w: te.Operand, down: int, across: int
) -> tuple[te.Value, tuple[te.Index, ...]]:
    """Sums of a convolution as stages.

    Parameters
    ----------
    source
        The image with its border, [N, 2 * down + 2, 2 * across + 2, I].
    w
        Changed weights, [4, 4, I, O].
    down, across
        Tiles.

    Returns
    -------
    The sums, and their axes: image, row of tiles, row in it, column of tiles, column in it, output
    channel.
    """
    images, channels = source.tensor.shape[0], source.tensor.shape[-1]
    n, ty, tx, c = te.axes(n=images, ty=down, tx=across, c=channels)
    i, j = te.axes(i=4, j=4)
    a, b = te.reduce_axes(a=4, b=4)
    change = te.tensor("change_in", "float32", (4, 4))
    element = source[n, ty * TILE + a, tx * TILE + b, c]
    tiles = te.compute(
        "tiles",
        "float32",
        (n, ty, i, j, tx, c),
        te.sum(change[a, i] * change[b, j] * element, over=(a, b)),
    )
    (k,) = te.reduce_axes(k=channels)
    (o,) = te.axes(o=w.tensor.shape[-1])
    multiplied = te.compute(
        "products",
        "float32",
        (n, ty, i, j, tx, o),
        te.sum(tiles[n, ty, i, j, tx, k] * w[i, j, k, o], over=k),
    )
    dy, dx = te.axes(dy=TILE, dx=TILE)
    i, j = te.reduce_axes(p=4, q=4)
    back = te.tensor("change_out", "float32", (4, 2))
    total = te.sum(back[i, dy] * back[j, dx] * multiplied[n, ty, i, j, tx, o], over=(i, j))
    return total, (n, ty, dy, tx, dx, o)


CONSTANTS = {"change_in": _INPUT, "change_out": _OUTPUT}
"""Values of the tensors that `products` declares."""


def schedule_products(
    s: te.Schedule, target: Target, across: int, channels: int, channels_out: int
) -> Layout:
    """Tiles, products and sums for one row of tiles after the other, or each for the whole image.

    Returns
    -------
    The layout of the changed weights.
    """
    lanes = target.lanes
    most = {"avx512vnni": 14, "avx2": 6, "sse2": 4}[target.level]
    pixels = math.ceil(across / math.ceil(across / most))
    panel = 2 * lanes
    for stage in ("tiles", "products"):
        s.cache_write(stage, REGISTER)
    _schedule_tiles(s, lanes)
    _schedule_sums(s, pixels, panel, lanes)
    s.split("out", "o", lanes)
    s.reorder("out", "n", "ty", "tx", "o.o", "p", "q", "dy", "dx", "o.i")
    for loop in ("p", "q", "dy", "dx"):
        s.unroll("out", loop)
    s.vectorise("out", "o.i")
    if 64 * across * max(channels, channels_out) <= STACK_BYTES:  # row by row
        s.compute_at("products", "out", "ty")
        s.compute_at("tiles", "out", "ty")
        s.parallelise("out", "ty")
    else:
        s.parallelise("tiles", "ty")
        s.parallelise("products", s.fuse("products", s.fuse("products", "i", "j"), "o.o"))
        s.parallelise("out", "ty")
    room = round_up(channels_out, panel)
    order = ((0, 0), (1, 0), (3, 0), (2, 0), (3, 1))
    return Layout((4, 4, channels, room), ((), (), (), (panel,)), order)


def _schedule_tiles(s: te.Schedule, lanes: int) -> None:
    s.split("tiles", "c", lanes)
    s.reorder("tiles", "n", "ty", "tx", "c.o", "i", "j", "c.i")
    s.compute_at("tiles.REGISTER", "tiles", "c.o")
    for stage, loops in (("tiles", ("i", "j")), ("tiles.REGISTER", ("i", "j", "a", "b"))):
        for loop in loops:
            s.unroll(stage, loop)
    s.vectorise("tiles", "c.i")
    s.reorder("tiles.REGISTER", "n", "ty", "tx", "a", "b", "i", "j", "c")
    s.vectorise("tiles.REGISTER", "c")


def _schedule_sums(s: te.Schedule, pixels: int, panel: int, lanes: int) -> None:
    s.split("products", "tx", pixels)
    s.split("products", "o", panel)
    s.split("products", "o.i", lanes)
    s.reorder("products", "n", "i", "j", "o.o", "ty", "tx.o", "tx.i", "o.i.o", "o.i.i")
    s.compute_at("products.REGISTER", "products", "tx.o")
    s.split("products.REGISTER", "o", lanes)
    s.reorder("products.REGISTER", "n", "ty", "i", "j", "k", "tx", "o.o", "o.i")
    for stage, loops in (("products", ("tx.i", "o.i.o")), ("products.REGISTER", ("tx", "o.o"))):
        for loop in loops:
            s.unroll(stage, loop)
    s.vectorise("products", "o.i.i")
    s.vectorise("products.REGISTER", "o.i")
