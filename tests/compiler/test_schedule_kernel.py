"""Default schedules: kernels that nobody scheduled run on the accelerator and on this processor."""

import numpy as np
import pytest

from tilewright import PRESETS, Accelerator, lower, open_device, schedule_kernel, te
from tilewright.compiler.cpu import Declared, compile_kernel
from tilewright.compiler.host import host_target
from tilewright.compiler.tensor import Kernel
from tilewright.errors import CompileError

TARGET = host_target()
assert TARGET is not None
PROCESSOR = TARGET.processor


def pointwise(*shape: int) -> Kernel:
    index = te.axes(**dict(zip("nyxc"[-len(shape) :], shape, strict=True)))
    a, b = (te.tensor(name, "int8", shape) for name in "ab")
    return te.kernel("sum", te.compute("out", "int8", index, te.clamp(a[index] + b[index], -9, 9)))


def sums(rows: int, depth: int, columns: int) -> tuple[te.DeclaredTensor, te.Index, te.Index]:
    m, o = te.axes(m=rows, o=columns)
    (k,) = te.reduce_axes(k=depth)
    a, b = te.tensor("a", "int8", (rows, depth)), te.tensor("b", "int8", (depth, columns))
    return te.compute("sums", "int32", (m, o), te.sum(a[m, k] * b[k, o], over=k)), m, o


def product(rows: int, depth: int, columns: int) -> Kernel:
    return te.kernel("product", sums(rows, depth, columns)[0])


def requantised(rows: int, depth: int, columns: int) -> Kernel:
    total, m, o = sums(rows, depth, columns)
    scale = te.tensor("scale", "float32", (columns,))
    value = te.clamp(te.requantise(total[m, o], scale[o]), -128, 127)
    return te.kernel("requantised", te.compute("out", "int8", (m, o), value))


def pooled(rows: int, channels: int) -> Kernel:
    y, c = te.axes(y=rows, c=channels)
    (ky,) = te.reduce_axes(ky=3)
    image = te.tensor("image", "int8", (rows + 2, channels))
    return te.kernel("pooled", te.compute("out", "int8", (y, c), te.max(image[y + ky, c], over=ky)))


def correlation(rows: int, channels: int) -> Kernel:
    y, c = te.axes(y=rows, c=channels)
    (ky,) = te.reduce_axes(ky=3)
    a, b = (te.tensor(name, "int8", (rows, channels), pad=0) for name in "ab")
    total = te.sum(a[y + ky - 1, c] * b[y + ky - 1, c], over=ky)
    return te.kernel("correlation", te.compute("out", "int32", (y, c), total))


def table(rows: int, channels: int) -> Kernel:
    y, c = te.axes(y=rows, c=channels)
    x, entries = te.tensor("x", "int8", (rows, channels)), te.tensor("entries", "int8", (256,))
    return te.kernel("table", te.compute("out", "int8", (y, c), te.lookup(entries, x[y, c])))


FORMS = {
    "a row": pointwise(16),
    "three axes": pointwise(5, 8, 16),
    "an image": pointwise(1, 6, 8, 16),
    "longer than the memory": pointwise(40, 40, 32),
    "product": product(6, 16, 32),
    "product in tiles": product(50, 1024, 64),
    "requantised": requantised(6, 16, 32),
    "requantised in tiles": requantised(30, 512, 64),
    "pool": pooled(6, 16),
    "two activations": correlation(9, 16),
    "table": table(7, 16),
}


def arrays_of(kernel: Kernel) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        name: random.random(kernel.tensors[name].shape).astype(np.float32) / 64
        if kernel.tensors[name].dtype == "float32"
        else random.integers(-90, 90, kernel.tensors[name].shape).astype(np.int8)
        for name in kernel.inputs
    }


def expected(kernel: Kernel, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The result of plain loops."""
    names = Declared(kernel).operands
    return compile_kernel(Declared(kernel), TARGET)(*(arrays[name] for name in names))


def test_plain_loops_are_what_the_interpreter_computes():
    for form in ("three axes", "requantised", "two activations"):
        kernel = FORMS[form]
        arrays = arrays_of(kernel)
        assert np.array_equal(
            te.interpret(te.Schedule(kernel).program(), arrays), expected(kernel, arrays)
        )


@pytest.mark.parametrize("machine", ["4x4", "16x16"])
@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_runs_on_the_accelerator(form, machine):
    kernel, configuration = FORMS[form], PRESETS[machine]
    schedule = schedule_kernel(kernel, Accelerator(configuration))
    arrays = arrays_of(kernel)
    with open_device("sim", configuration) as device:
        found = lower(schedule).run(device, arrays).output
    assert np.array_equal(found, expected(kernel, arrays))
    assert te.Schedule.parse(kernel, str(schedule), schedule.target).steps == schedule.steps


@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_runs_in_vectors_on_the_processor(form):
    kernel = FORMS[form]
    schedule = schedule_kernel(kernel, PROCESSOR)
    arrays = arrays_of(kernel)
    described = Declared(kernel, str(schedule))
    names = described.operands
    found = compile_kernel(described, TARGET)(*(arrays[name] for name in names))
    assert np.array_equal(found, expected(kernel, arrays))
    for stage in kernel.stages:
        assert f"vectorise({stage.output.name}, " in str(schedule)


def test_what_no_instruction_computes_is_refused():
    (x,) = te.axes(x=16)
    a = te.tensor("a", "int8", (16,))
    kernel = te.kernel("cube", te.compute("cube", "int32", (x,), a[x] * a[x] * a[x]))
    with pytest.raises(CompileError, match="no instruction matches"):
        schedule_kernel(kernel, Accelerator(PRESETS["4x4"]))


def test_lanes_that_are_not_full_are_refused():
    with pytest.raises(CompileError, match="declare it padded"):
        schedule_kernel(pointwise(4, 6), Accelerator(PRESETS["4x4"]))


def test_a_machine_that_is_too_small_is_named():
    with pytest.raises(CompileError, match="raise `act_depth`"):
        schedule_kernel(product(300, 512, 256), Accelerator(PRESETS["tiny"]))


def test_plain_targets_have_no_default():
    with pytest.raises(CompileError, match="give an Accelerator or a Processor"):
        schedule_kernel(pointwise(4, 16), te.Schedule(pointwise(4, 16)).target)
