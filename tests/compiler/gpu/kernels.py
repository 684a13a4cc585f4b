"""Declarations of kernels, and a schedule with shared memory."""

import numpy as np

from tilewright import te
from tilewright.compiler.gpu.target import GpuTarget
from tilewright.compiler.tensor import Kernel

SM80 = GpuTarget()


def product(rows: int, columns: int, taps: int, dtype: str) -> Kernel:
    y, x = te.axes(y=rows, x=columns)
    (r,) = te.reduce_axes(r=taps)
    a, b = te.tensor("a", dtype, (rows, taps)), te.tensor("b", dtype, (columns, taps))
    sums = te.sum(a[y, r] * b[x, r], over=r)
    if dtype != "int8":
        return te.kernel("product", te.compute("c", "float32", (y, x), sums))
    scale = te.tensor("scale", "float32", (columns,))
    value = te.clamp(te.requantise(sums, scale[x]), -128, 127)
    constants = {"scale": np.linspace(1e-4, 4e-4, columns, dtype=np.float32)}
    return te.kernel("product", te.compute("c", "int8", (y, x), value), constants)


def shared_product(kernel: Kernel, target: GpuTarget = SM80) -> te.Schedule:
    """Blocks of 16 x 16 sums, four of each thread, with operands in shared memory."""
    s = te.Schedule(kernel, target)
    yo, yi = s.split("c", "y", 16)
    xo, xi = s.split("c", "x", 16)
    ro, ri = s.split("c", "r", 8)
    y, own_y = s.split("c", yi, 2)
    x, own_x = s.split("c", xi, 2)
    s.reorder("c", yo, xo, ro, y, x, ri, own_y, own_x)
    s.bind("c", yo, "block.y")
    s.bind("c", xo, "block.x")
    s.bind("c", y, "thread")
    s.bind("c", x, "thread")
    for tensor in "ab":
        copy = s.cache_read(tensor, "SHARED", "c")
        s.compute_at(copy, "c", ro)
        row, tap = next(stage.loops for stage in s.stages if stage.name == copy)
        _, own = s.split(copy, s.fuse(copy, row, tap), 64)
        s.bind(copy, own, "thread")
    return s


def softmax(rows: int, columns: int) -> Kernel:
    i, j = te.axes(i=rows, j=columns)
    (k,) = te.reduce_axes(k=columns)
    x = te.tensor("x", "float32", (rows, columns))
    most = te.compute("most", "float32", (i,), te.max(x[i, k], over=k))
    power = te.compute("power", "float32", (i, j), te.exp(x[i, j] - most[i]))
    total = te.compute("total", "float32", (i,), te.sum(power[i, k], over=k))
    return te.kernel("softmax", te.compute("out", "float32", (i, j), power[i, j] / total[i]))


def depthwise(size: int, channels: int) -> Kernel:
    y, x, c = te.axes(y=size, x=size, c=channels)
    ky, kx = te.reduce_axes(ky=3, kx=3)
    image = te.tensor("image", "int8", (size, size, channels), pad=-3)
    w = te.tensor("w", "int8", (3, 3, channels))
    sums = te.sum(image[y + ky - 1, x + kx - 1, c] * w[ky, kx, c], over=(ky, kx))
    return te.kernel("depthwise", te.compute("out", "int32", (y, x, c), sums))


def transpose(rows: int, columns: int) -> Kernel:
    y, x = te.axes(y=columns, x=rows)
    a = te.tensor("a", "float32", (rows, columns))
    return te.kernel("transpose", te.compute("out", "float32", (y, x), a[x, y]))
