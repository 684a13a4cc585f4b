"""Small kernels and schedules that several tests of steps start from."""

import numpy as np
import pytest

from tilewright import Accelerator, lower
from tilewright.compiler import te
from tilewright.compiler.accelerator.executable import Executable
from tilewright.compiler.tensor import Kernel
from tilewright.errors import CompileError
from tilewright.isa.configuration import PRESETS

MACHINE = PRESETS["4x4"]
TARGET = Accelerator(MACHINE)


def network() -> Kernel:
    """A convolution of 6 x 6 pixels, then bias, requantisation and clamp."""
    n, y, x, o = te.axes(n=1, y=6, x=6, o=8)
    ky, kx, i = te.reduce_axes(ky=3, kx=3, i=4)
    image = te.tensor("image", "int8", (1, 6, 6, 4), pad=3)
    w = te.tensor("w", "int8", (3, 3, 4, 8))
    bias, scale = te.tensor("bias", "int32", (8,)), te.tensor("scale", "float32", (8,))
    taps = image[n, y + ky - 1, x + kx - 1, i] * w[ky, kx, i, o]
    acc = te.compute("acc", "int32", (n, y, x, o), te.sum(taps, over=(ky, kx, i)))
    value = te.requantise(acc[n, y, x, o] + bias[o], scale[o]) + 5
    return te.kernel("conv", te.compute("out", "int8", (n, y, x, o), te.clamp(value, -128, 127)))


def pool() -> Kernel:
    """An average of two rows, finished in the same stage."""
    y, c = te.axes(y=4, c=4)
    (ky,) = te.reduce_axes(ky=2)
    image, scale = te.tensor("image", "int8", (5, 4)), te.tensor("scale", "float32", (4,))
    total = te.sum(image[y + ky, c], over=ky)
    value = te.clamp(te.requantise(total, scale[c]) + 0, -128, 127)
    return te.kernel("pool", te.compute("out", "int8", (y, c), value))


def loops(schedule: te.Schedule, stage: str) -> tuple[str, ...]:
    return next(s.loops for s in schedule.stages if s.name == stage)


def accelerated() -> te.Schedule:
    """All of the convolution in scratchpads, the whole of it one tile."""
    schedule = te.Schedule(network(), TARGET)
    schedule.set_scope("acc", "ACC")
    schedule.cache_write("out", "ACT")
    schedule.cache_read("image", "ACT", "acc")
    schedule.cache_read("w", "WGT", "acc")
    schedule.cache_read("bias", "PARAM", "out.ACT")
    schedule.cache_read("scale", "PARAM", "out.ACT")
    return schedule


def refused(schedule: te.Schedule, text: str) -> str:
    """The message of the last step of a text; the schedule is as before it."""
    *good, bad = text.splitlines()
    for line in good:
        schedule.apply(te.parse_step(line))
    before = (schedule.steps, schedule.stages, schedule.program())
    with pytest.raises(te.ScheduleError) as caught:
        schedule.apply(te.parse_step(bad))
    assert (schedule.steps, schedule.stages, schedule.program()) == before
    assert isinstance(caught.value, CompileError)
    return str(caught.value)


def convolution() -> Kernel:
    """`7 x 5` pixels of 8 channels into 8, one border of padding, two columns at a time."""
    n, y, x, o = te.axes(n=1, y=7, x=5, o=8)
    ky, kx, i = te.reduce_axes(ky=3, kx=3, i=8)
    image = te.tensor("image", "int8", (1, 7, 10, 8), pad=3)
    w = te.tensor("w", "int8", (3, 3, 8, 8))
    bias, scale = te.tensor("bias", "int32", (8,)), te.tensor("scale", "float32", (8,))
    taps = image[n, y + ky - 1, x * 2 + kx - 1, i] * w[ky, kx, i, o]
    acc = te.compute("acc", "int32", (n, y, x, o), te.sum(taps, over=(ky, kx, i)))
    value = te.requantise(acc[n, y, x, o] + bias[o], scale[o]) + 5
    return te.kernel("conv", te.compute("out", "int8", (n, y, x, o), te.clamp(value, -90, 127)))


PLACES = """
set_scope(acc, ACC)
cache_write(out, ACT)
cache_read(image, ACT, acc)
cache_read(w, WGT, acc)
cache_read(bias, PARAM, out.ACT)
cache_read(scale, PARAM, out.ACT)
"""
SCHEDULES = {
    "one tile": """
        tensorise(acc, n)
        tensorise(out.ACT, n)
    """,
    "rows, the last tile cut": """
        split(out, y, 3)
        compute_at(out.ACT, out, y.o)
        compute_at(acc, out, y.o)
        compute_at(image.ACT, out, y.o)
        pipeline(out, y.o, 2)
        tensorise(acc, n)
        tensorise(out.ACT, n)
    """,
    "channels inside rows, a reduction in chunks": """
        split(out, y, 2)
        split(out, o, 4)
        reorder(out, y.o, o.o, n, y.i, x, o.i)
        compute_at(out.ACT, out, o.o)
        compute_at(acc, out, o.o)
        split(acc, i, 4)
        reorder(acc, i.o, n, y, x, o, ky, kx, i.i)
        compute_at(image.ACT, acc, i.o)
        compute_at(w.WGT, acc, i.o)
        pipeline(acc, i.o, 3)
        pipeline(out, o.o, 2)
        tensorise(acc, n)
        tensorise(out.ACT, y)
    """,
}


def values_for(kernel: Kernel) -> dict[str, np.ndarray]:
    """Random values for every tensor that a convolution is given."""
    generator = np.random.default_rng(3)
    shapes = {name: kernel.tensors[name].shape for name in kernel.inputs}
    return {
        "image": generator.integers(-128, 128, shapes["image"]).astype(np.int8),
        "w": generator.integers(-128, 128, shapes["w"]).astype(np.int8),
        "bias": generator.integers(-1000, 1000, shapes["bias"]).astype(np.int32),
        "scale": generator.uniform(0.0005, 0.002, shapes["scale"]).astype(np.float32),
    }


def lowered(steps: str, kernel: Kernel | None = None) -> Executable:
    """The convolution of `accelerated`, in rows of two."""
    schedule = te.Schedule.parse(kernel or network(), PLACES + steps, TARGET)
    return lower(schedule)


ROWS = """
    split(out, y, 2)
    compute_at(out.ACT, out, y.o)
    compute_at(acc, out, y.o)
    compute_at(image.ACT, out, y.o)
    pipeline(out, y.o, {depth})
    tensorise(acc, n)
    tensorise(out.ACT, n)
"""
