"""Kernels as OpenCL C, on a device: they compute what `evaluate` does."""

import random
from functools import partial

import numpy as np
import pytest

from tilewright import te
from tilewright.compiler.gpu.lower import compile_program
from tilewright.compiler.gpu.schedules import default_schedule
from tilewright.compiler.gpu.target import GpuTarget
from tilewright.compiler.te.target import ScheduleError
from tilewright.compiler.tensor import Kernel, evaluate
from tilewright.runtime.gpu.opencl import OpenClDriver

from .kernels import depthwise, product, shared_product, softmax, transpose
from .running import drawn, run_opencl, run_schedule

OPENCL = GpuTarget("opencl")


def check(schedule: te.Schedule, driver: OpenClDriver) -> None:
    given = drawn(schedule.kernel)
    expected = np.asarray(evaluate(schedule.kernel, given))
    found = run_schedule(schedule, given, partial(run_opencl, driver))
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, expected)


def functions(size: int) -> Kernel:
    """Every elementary function, and a condition."""
    (i,) = te.axes(i=size)
    x = te.tensor("x", "float32", (size,))
    value, part = x[i], te.select(te.less(x[i], 0.5), x[i], x[i] * x[i])
    found = te.exp(part) + te.tanh(value) + te.erf(value) + te.sigmoid(value) + te.sin(value)
    found += te.cos(te.single(value * 1e6)) + te.log(value * value + 1.0)
    found += te.sqrt(value * value)
    return te.kernel("functions", te.compute("out", "float32", (i,), found))


def wrapping(size: int) -> Kernel:
    """Sums and products beyond int32."""
    (i,) = te.axes(i=size)
    x = te.tensor("x", "int32", (size,))
    wide = x[i] * 0x7FFFFFFF + x[i] * x[i] * x[i] * x[i]
    return te.kernel("wrapping", te.compute("out", "int32", (i,), wide))


def halves(rows: int, columns: int) -> Kernel:
    y, x = te.axes(y=rows, x=columns)
    a = te.tensor("a", "float16", (rows, columns))
    return te.kernel("halves", te.compute("out", "float16", (y, x), a[y, x] * a[y, x] * 0.3))


def test_barriers_and_memories_are_those_of_the_program():
    schedule = shared_product(product(37, 20, 21, "int8"), OPENCL)
    text = compile_program(schedule.program(), OPENCL).code
    assert text.count("barrier(CLK_LOCAL_MEM_FENCE)") == str(schedule.program()).count("barrier")
    assert "__local char shared[256]" in text
    assert "reqd_work_group_size(64, 1, 1)" in text


@pytest.mark.opencl
@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_product_passes_through_shared_memory(driver: OpenClDriver, dtype: str, depth: int):
    schedule = shared_product(product(37, 20, 21, dtype), OPENCL)
    if depth > 1:
        schedule.pipeline("c", "r.o", depth)
    check(schedule, driver)


@pytest.mark.opencl
@pytest.mark.parametrize("seed", range(6))
def test_products_of_any_size_are_right(driver: OpenClDriver, seed: int):
    draw = random.Random(seed)
    sizes = draw.randint(1, 90), draw.randint(1, 90), draw.randint(1, 90)
    check(default_schedule(product(*sizes, draw.choice(["int8", "float32"])), OPENCL), driver)


@pytest.mark.opencl
@pytest.mark.parametrize(
    "kernel",
    [
        softmax(5, 33),
        depthwise(7, 12),
        transpose(9, 21),
        functions(500),
        wrapping(40),
        halves(9, 7),
    ],
    ids=lambda kernel: kernel.name,
)
def test_every_other_kernel_runs_element_by_element(driver: OpenClDriver, kernel: Kernel):
    check(default_schedule(kernel, OPENCL), driver)


@pytest.mark.opencl
def test_copies_move_vectors(driver: OpenClDriver):
    kernel = product(37, 20, 32, "int8")
    schedule = shared_product(kernel, OPENCL)
    text = str(schedule)
    for copy, row in (("a.SHARED", "y"), ("b.SHARED", "x")):
        text = text.replace(
            f"fuse({copy}, {row}, r)", f"split({copy}, r, 4)\nfuse({copy}, {row}, r.o)"
        )
        text = text.replace(f"{copy}, {row}_r", f"{copy}, {row}_r.o") + f"\nvectorise({copy}, r.i)"
    schedule = te.Schedule.parse(kernel, text, OPENCL)
    assert "char4" in compile_program(schedule.program(), OPENCL).code
    check(schedule, driver)


@pytest.mark.opencl
def test_binaries_are_kept(driver: OpenClDriver, monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    module = compile_program(default_schedule(transpose(9, 21), OPENCL).program(), OPENCL)
    driver.load(module)
    (path,) = tmp_path.glob("kernels/*.bin")
    kept = path.read_bytes()

    def refuse(*args):
        raise AssertionError("the binary is kept")

    with monkeypatch.context() as patch:
        patch.setattr("tilewright.runtime.gpu.opencl.keep_kernels", refuse)
        driver.load(module)
    damaged = kept[:-1] + bytes([kept[-1] ^ 1])
    path.write_bytes(damaged)
    driver.load(module)  # nobody signed it
    assert path.read_bytes() != damaged


def test_a_block_keeps_to_what_every_gpu_has():
    schedule = te.Schedule(transpose(32, 16), OPENCL)
    schedule.bind("out", "y", "thread")
    schedule.bind("out", "x", "thread")
    with pytest.raises(ScheduleError, match="512 threads in a block, more than the 256"):
        schedule.program()
