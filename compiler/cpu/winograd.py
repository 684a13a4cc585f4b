"""Winograd's convolution F(2x2, 3x3): 16 products where a tile of 2x2 outputs has 36.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016. A tile of 4x4
inputs and the window are changed to a basis in which convolution is a product element by element;
over all tiles that is one matrix product for each of the 16 elements. The factors of the input's
and the output's change are 0, 1 and -1, known at compile time, so that code has additions alone.
Sums over channels are shorter than direct ones and more of them cancel; for normal numbers and 64
or more channels the largest error is no larger (`tests/compiler/cpu/test_convolution.py`).
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from .. import te
from ..te.stages import REGISTER
from .buffers import STACK_BYTES
from .description import Plan, activated, round_up
from .layout import Layout
from .target import Target

if TYPE_CHECKING:
    from .convolution import Convolution

_INPUT = np.array([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]], np.float32)
_WINDOW = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_OUTPUT = np.array([[1, 0], [1, 1], [1, -1], [0, -1]], np.float32)

ROW_BYTES = STACK_BYTES
"""Changed inputs of one row of tiles up to this size are multiplied before the next row is read."""


def winograd_plan(conv: "Convolution", target: Target) -> Plan:
    """Declaration and schedule of a convolution in this way."""
    rows, columns = conv.size_out
    x = te.tensor("x", "float32", conv.operands["x"].shape)
    extents = (conv.batch, rows + 2, columns + 2, conv.channels_in)
    pn, py, px, pc = te.axes(**dict(zip(("pn", "py", "px", "pc"), extents, strict=True)))
    bordered = x[pn, py - conv.pads[0], px - conv.pads[1], pc]
    source = te.compute("padded", "float32", (pn, py, px, pc), bordered)
    w = te.tensor("w", "float32", (4, 4, conv.channels_in, conv.channels_out))
    total, axes = products(source, w, rows, columns)
    total = total + te.tensor("bias", "float32", (conv.channels_out,))[axes[-1]]
    if conv.residual:
        shape = (conv.batch, rows // 2, 2, columns // 2, 2, conv.channels_out)
        total = total + te.tensor("residual", "float32", shape)[axes]
    out = te.compute("out", "float32", axes, activated(total, conv.activation, "convolution"))
    kernel = te.kernel("convolution", out, CONSTANTS)
    schedule = te.Schedule(kernel, processor=target.processor)
    schedule.split("padded", "pc", target.lanes)
    schedule.vectorise("padded", "pc.i")
    schedule.parallelise("padded", schedule.fuse("padded", "pn", "py"))
    layout = schedule_products(schedule, target, columns, conv.channels_in, conv.channels_out)
    room = (round_up(conv.channels_out, target.lanes),)
    return Plan(schedule, {"w": layout, "bias": Layout.plain(room)})


def changed_window(w: np.ndarray) -> np.ndarray:
    """Weights float32[3, 3, I, O] in the basis of the products, float32[4, 4, I, O]."""
    wide = w.astype(np.float64)
    return np.einsum("ia,jb,abco->ijco", _WINDOW, _WINDOW, wide).astype(np.float32)


def products(
    source: te.Operand, w: te.Operand, rows: int, columns: int
) -> tuple[te.Value, tuple[te.Index, ...]]:
    """Sums of a convolution as stages.

    Parameters
    ----------
    source
        The image with its border, [N, rows + 2, columns + 2, I].
    w
        Changed weights, [4, 4, I, O].
    rows, columns
        Even extents of the output.

    Returns
    -------
    The sums, and their axes: image, row of tiles, row in it, column of tiles, column in it, output
    channel.
    """
    images, channels = source.tensor.shape[0], source.tensor.shape[-1]
    n, ty, tx, c = te.axes(n=images, ty=rows // 2, tx=columns // 2, c=channels)
    i, j = te.axes(i=4, j=4)
    a, b = te.reduce_axes(a=4, b=4)
    change = te.tensor("change_in", "float32", (4, 4))
    element = source[n, ty * 2 + a, tx * 2 + b, c]
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
    dy, dx = te.axes(dy=2, dx=2)
    i, j = te.reduce_axes(p=4, q=4)
    back = te.tensor("change_out", "float32", (4, 2))
    total = te.sum(back[i, dy] * back[j, dx] * multiplied[n, ty, i, j, tx, o], over=(i, j))
    return total, (n, ty, dy, tx, dx, o)


CONSTANTS = {"change_in": _INPUT, "change_out": _OUTPUT}
"""Values of the tensors that `products` declares."""


def schedule_products(
    s: te.Schedule, target: Target, columns: int, channels: int, channels_out: int
) -> Layout:
    """Tiles, products and sums for one row of tiles after the other, or each for the whole image.

    Returns
    -------
    The layout of the changed weights.
    """
    lanes = target.lanes
    most = {"avx512vnni": 14, "avx2": 6, "sse2": 4}[target.level]
    columns //= 2
    pixels = math.ceil(columns / math.ceil(columns / most))
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
    if 64 * columns * max(channels, channels_out) <= ROW_BYTES:
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
