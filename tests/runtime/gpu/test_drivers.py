"""Drivers of GPUs: one protocol, two implementations, and every error of NVIDIA's driver."""

import os
import sys
import threading
from dataclasses import replace
from typing import Any

import cuda.bindings.driver as real
import numpy as np
import pyopencl
import pytest

from tilewright import te
from tilewright.compiler.gpu import GpuModule, GpuTarget, KernelLaunch, compile_program
from tilewright.compiler.gpu.schedules import default_schedule
from tilewright.compiler.tensor import evaluate
from tilewright.errors import CompileError, DeviceError, ProgramError, ToolError
from tilewright.runtime.gpu import GpuDriver, open_driver
from tilewright.runtime.gpu.cuda import CudaDriver
from tilewright.runtime.gpu.cuda_errors import INVALID_CODE, REMEDIES
from tilewright.runtime.gpu.interpreter import InterpreterDriver

from ...compiler.gpu.kernels import product
from ...compiler.gpu.running import drawn
from .fake_cuda import FakeCuda, install

SM80 = GpuTarget()


def doubled(rows: int = 5, target: GpuTarget = SM80) -> GpuModule:
    i, j = te.axes(i=rows, j=7)
    a = te.tensor("a", "int32", (rows, 7))
    kernel = te.kernel("double", te.compute("out", "int32", (i, j), a[i, j] + a[i, j]))
    return compile_program(default_schedule(kernel, target).program(), target)


def numbers(rows: int = 5) -> np.ndarray:
    return np.arange(rows * 7, dtype=np.int32).reshape(rows, 7) - 9


def test_a_module_runs_between_copies(driver: GpuDriver):
    module, given = doubled(target=driver.target), numbers()
    (function,) = driver.load(module)
    memory = driver.allocate(1024)
    source, out = memory.part(0, given.nbytes), memory.part(512, given.nbytes)
    staged = driver.host_array(given.nbytes)
    driver.copy_in(source, given)
    driver.launch(function, function.kernel.grid, function.kernel.threads, [source, out])
    driver.copy_out(out, staged)
    driver.synchronise()
    np.testing.assert_array_equal(staged.view(np.int32).reshape(given.shape), given * 2)
    driver.close()


def test_captured_work_reads_what_is_there_when_it_is_repeated(driver: GpuDriver):
    module, given = doubled(target=driver.target), numbers()
    (function,) = driver.load(module)
    source, out = driver.allocate(given.nbytes), driver.allocate(given.nbytes)
    staged, result = driver.host_array(given.nbytes), driver.host_array(given.nbytes)

    def work() -> None:
        driver.copy_in(source, staged)
        driver.launch(function, function.kernel.grid, function.kernel.threads, [source, out])
        driver.copy_out(out, result)

    repeat = driver.capture(work)
    for factor in (1, 3):
        staged.view(np.int32)[:] = given.reshape(-1) * factor
        repeat()
        driver.synchronise()
        np.testing.assert_array_equal(result.view(np.int32), given.reshape(-1) * factor * 2)


def test_events_measure_time(driver: GpuDriver):
    start, end = driver.event(), driver.event()
    driver.record(start)
    driver.record(end)
    driver.synchronise()
    assert 0 < driver.elapsed_s(start, end) < 1


@pytest.mark.parametrize("array", [np.zeros(3, np.uint8), np.zeros((4, 4), np.uint8)[:, 1]])
def test_copies_of_another_size_are_refused(driver: GpuDriver, array: np.ndarray):
    memory = driver.allocate(4)
    for copy in (driver.copy_in, driver.copy_out):
        with pytest.raises(DeviceError, match=r"copy of 4 bytes of a GPU: expected a contiguous"):
            copy(memory, array)


def test_a_fault_of_a_kernel_names_it():
    driver = InterpreterDriver()
    (function,) = driver.load(doubled())
    small, out = driver.allocate(8), driver.allocate(140)
    with pytest.raises(DeviceError, match=r"kernel `kernel0` on a, out: .* access out of bounds"):
        driver.launch(function, function.kernel.grid, function.kernel.threads, [small, out])


def test_a_kernel_that_writes_an_input_is_found():
    text = """
.version 7.1
.target sm_80
.address_size 64
.visible .entry kernel0(.param .u64 a, .param .u64 out)
{
    .reg .b32 %r<2>; .reg .b64 %d<2>;
    ld.param.u64 %d0, [a];
    mov.u32 %r0, 1;
    st.global.b32 [%d0], %r0;
    ret;
}
"""
    driver = InterpreterDriver()
    kernel = KernelLaunch("kernel0", ("a", "out"), (1, 1, 1), 1, 0)
    (function,) = driver.load(GpuModule(text, (kernel,), (), {}))
    memory, other = driver.allocate(4), driver.allocate(4)
    driver.launch(function, (1, 1, 1), 1, [memory, memory])
    with pytest.raises(DeviceError, match="store to read-only memory"):
        driver.launch(function, (1, 1, 1), 1, [memory, other])


@pytest.mark.parametrize(
    ("capability", "level"),
    [((8, 0), "sm80"), ((8, 9), "sm80"), ((9, 0), "sm90a"), ((12, 0), "sm90")],
)
def test_the_level_follows_from_the_compute_capability(monkeypatch, capability, level):
    install(FakeCuda(capability), monkeypatch)
    assert CudaDriver().target == GpuTarget(level, units=108)


def test_an_old_gpu_is_refused(monkeypatch: pytest.MonkeyPatch):
    install(FakeCuda((7, 5)), monkeypatch)
    with pytest.raises(DeviceError) as caught:
        CudaDriver()
    assert str(caught.value) == (
        "device `gpu:cuda` (Fake GPU): expected a compute capability of 8.0 or more, got 7.5; use "
        "`--device host`"
    )


def test_much_shared_memory_is_allowed_first_and_too_much_refused(fake: FakeCuda):
    driver, module = CudaDriver(), doubled()

    def wants(size: int) -> GpuModule:
        (kernel,) = module.kernels
        launch = KernelLaunch(kernel.name, kernel.tensors, kernel.grid, kernel.threads, size)
        return GpuModule(module.code, (launch,), (), {})

    driver.load(wants(48 << 10))
    assert "cuFuncSetAttribute" not in fake.names()
    driver.load(wants(100 << 10))
    assert dict(fake.calls)["cuFuncSetAttribute"][2] == 100 << 10
    with pytest.raises(CompileError, match=r"needs 204800 bytes of shared memory, .* 166912"):
        driver.load(wants(200 << 10))


CALLS = [
    "cuInit", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
    "cuStreamCreate", "cuCtxSetCurrent", "cuModuleLoadDataEx", "cuModuleGetFunction", "cuMemAlloc",
    "cuMemHostAlloc", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuLaunchKernel",
    "cuStreamSynchronize", "cuEventCreate", "cuEventRecord", "cuEventElapsedTime",
    "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphLaunch",
]  # fmt: skip


def use_all() -> None:
    driver = CudaDriver()
    try:
        (function,) = driver.load(doubled())
        memory, staged = driver.allocate(140), driver.host_array(140)
        start, end = driver.event(), driver.event()

        def work() -> None:
            driver.copy_in(memory, staged)
            driver.launch(function, function.kernel.grid, function.kernel.threads, [memory, memory])
            driver.copy_out(memory, staged)

        repeat = driver.capture(work)
        driver.record(start)
        repeat()
        driver.record(end)
        driver.synchronise()
        driver.elapsed_s(start, end)
    finally:
        driver.close()


def test_closing_frees_everything(fake: FakeCuda):
    use_all()
    assert set(CALLS) <= set(fake.names())
    assert not fake.left()


def test_what_is_no_longer_used_is_freed_before_more_is_loaded(fake: FakeCuda):
    driver = CudaDriver()
    memory, staged, event = driver.allocate(1024), driver.host_array(4), driver.event()
    functions, repeat = driver.load(doubled()), driver.capture(lambda: None)
    part, view = memory.part(512, 4), staged[:2]
    del memory, staged
    driver.allocate(0)
    assert not {"cuMemFree", "cuMemFreeHost"} & set(fake.names())
    del part, view, event, functions, repeat
    kept = driver.allocate(4)
    assert len(fake.left()) == 2, "a stream, and the memory that is kept"
    del kept


def test_use_may_end_at_any_moment(fake: FakeCuda):
    """Python's collector ends the use of sessions within a capture too, and within `close`."""
    driver = CudaDriver()
    used: dict[str, Any] = {name: driver.allocate(4) for name in ("first", "second", "third")}
    driver.event()
    driver.capture(used.clear)
    assert len(fake.memory) == 3
    used["array"] = driver.host_array(4)
    assert not fake.memory
    used["event"] = driver.event()
    fake.before["cuEventDestroy"] = used.clear
    driver.close()
    assert not fake.left()


@pytest.mark.parametrize("name", CALLS)
def test_every_function_of_the_driver_may_fail(fake: FakeCuda, name: str):
    fake.fail[name] = real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError) as caught:
        use_all()
    assert f"`{name}` failed: CUDA_ERROR_ILLEGAL_ADDRESS (text of the driver)" in str(caught.value)
    # After a failed wait the driver refuses everything, as CUDA does.
    assert name == "cuStreamSynchronize" or not fake.left()


@pytest.mark.parametrize("error", [e for e in real.CUresult if int(e)], ids=lambda e: e.name)
def test_every_error_has_a_sentence(fake: FakeCuda, error):
    driver = CudaDriver()
    fake.fail["cuMemAlloc"] = error
    with pytest.raises(DeviceError) as caught:
        driver.allocate(4)
    text = f"device `gpu:cuda` (Fake GPU): `cuMemAlloc` failed: {error.name} (text of the driver)"
    assert str(caught.value).startswith(text)
    assert getattr(caught.value, "name", None) == error.name


def test_remedies_are_for_errors_that_exist():
    assert {*REMEDIES, *INVALID_CODE} <= {*real.CUresult.__members__}


def test_an_error_without_a_name_has_its_number(fake: FakeCuda):
    driver = CudaDriver()
    fake.fail |= dict.fromkeys(
        ("cuMemAlloc", "cuGetErrorName", "cuGetErrorString"), real.CUresult.CUDA_ERROR_UNKNOWN
    )
    with pytest.raises(DeviceError, match=r"failed: error 999 \(error 999\)"):
        driver.allocate(4)


def test_out_of_memory_says_what_to_do(fake: FakeCuda):
    driver = CudaDriver()
    fake.fail["cuMemAlloc"] = real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceError, match="; free memory of the GPU, or compile a smaller network"):
        driver.allocate(4)


def test_the_compilers_message_is_told(monkeypatch: pytest.MonkeyPatch):
    fake = install(FakeCuda(log=b"ptxas error: line 3\n"), monkeypatch)
    driver = CudaDriver()
    fake.fail["cuModuleLoadDataEx"] = real.CUresult.CUDA_ERROR_INVALID_PTX
    with pytest.raises(CompileError, match=r"CUDA_ERROR_INVALID_PTX .*: ptxas error: line 3$"):
        driver.load(doubled())


def test_each_thread_takes_the_context_once(fake: FakeCuda):
    """Also one that has the number of an earlier thread, which has ended."""
    driver = CudaDriver()
    for _ in range(2):
        thread = threading.Thread(target=driver.allocate, args=(4,))
        thread.start()
        thread.join()
    driver.allocate(4)
    assert fake.names().count("cuCtxSetCurrent") == 3


def test_a_forked_child_and_a_closed_driver_are_refused(fake: FakeCuda, monkeypatch):
    driver = CudaDriver()
    memory = driver.allocate(4)
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    with pytest.raises(DeviceError, match="opened before a fork; open it in the child"):
        driver.allocate(4)
    del memory
    with pytest.raises(DeviceError, match="opened before a fork; open it in the child"):
        driver.allocate(4)
    driver.close()
    assert fake.memory
    monkeypatch.undo()
    driver.close()
    driver.close()
    with pytest.raises(DeviceError, match="it is closed; open it again"):
        driver.allocate(4)


@pytest.mark.parametrize(
    ("name", "module", "package", "extra"),
    [
        ("cuda", "cuda.bindings.driver", "cuda-bindings", "gpu"),
        ("opencl", "pyopencl", "pyopencl", "opencl"),
    ],
)
def test_without_the_package_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str, extra: str
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ToolError, match=rf"`{package}` is not installed; run `.*\[{extra}\]'`$"):
        open_driver(name)


def test_a_gpu_is_the_first_of_cuda_and_opencl(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch):
    assert open_driver().name == "cuda"
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    monkeypatch.setattr(pyopencl, "get_platforms", lambda: [])
    with pytest.raises(ToolError) as caught:
        open_driver()
    for package in ("`cuda-bindings` is not installed", "no driver with OpenCL is installed"):
        assert package in str(caught.value)


@pytest.mark.opencl
def test_without_cuda_a_gpu_is_one_with_opencl(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    driver = open_driver()
    assert driver.name == "opencl"
    driver.close()
    with pytest.raises(DeviceError, match="it is closed; open it again"):
        driver.allocate(4)


@pytest.mark.opencl
def test_a_kernel_that_a_device_cannot_run_is_refused():
    driver = open_driver("opencl")
    module = doubled(target=driver.target)
    (launch,) = module.kernels
    large = replace(module, kernels=(replace(launch, threads=1 << 20),))
    with pytest.raises(CompileError, match="a kernel needs 1048576 threads in a block, more than"):
        driver.load(large)
    with pytest.raises(CompileError, match=r"device `gpu:opencl` .*BUILD_PROGRAM_FAILURE"):
        driver.load(replace(module, code="kernel"))


def test_without_nvidias_driver_a_sentence_says_so(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch):
    def missing(flags: int) -> None:
        raise RuntimeError('"cuda" is a library\nthat is not there')

    monkeypatch.setattr(fake, "_cuInit", missing)
    with pytest.raises(ToolError) as caught:
        open_driver("cuda")
    assert str(caught.value) == (
        "device `gpu:cuda`: NVIDIA's driver is not installed; install it, or use `--device host`"
    )


def test_an_unknown_driver_is_refused():
    with pytest.raises(DeviceError) as caught:
        open_driver("vulkan")
    assert str(caught.value) == (
        "device `gpu:vulkan`: unknown driver; expected one of gpu:cuda, gpu:opencl, gpu:interpreter"
    )


# Tensor maps -------------------------------------------------------------------------------------


def hopper(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeCuda, CudaDriver]:
    fake = install(FakeCuda((9, 0), 227 << 10), monkeypatch)
    return fake, CudaDriver()


def multiplied(driver: GpuDriver, offset: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A product whose operands a tensor map copies, on a driver and by definition."""
    kernel = product(70, 72, 256, "float16")
    schedule = default_schedule(kernel, driver.target)
    (function,) = driver.load(compile_program(schedule.program(), driver.target))
    assert {name for name, _ in function.kernel.maps} == {"a", "b"}
    given, buffers = drawn(kernel), []
    for name in function.kernel.tensors:
        array = given.get(name, np.zeros((70, 72), np.float32))
        buffers.append(driver.allocate(array.nbytes + offset).part(offset, array.nbytes))
        driver.copy_in(buffers[-1], array)
    driver.synchronise()
    driver.launch(function, function.kernel.grid, function.kernel.threads, buffers)
    found = np.zeros((70, 72), np.float32)
    driver.copy_out(buffers[-1], found)
    driver.synchronise()
    return found, np.asarray(evaluate(kernel, given))


def test_tensor_maps_are_encoded_for_each_launch(monkeypatch: pytest.MonkeyPatch):
    fake, driver = hopper(monkeypatch)
    for each in (driver, InterpreterDriver("sm90a", "descending")):
        np.testing.assert_allclose(*multiplied(each), rtol=1e-5, atol=1e-4)
    assert fake.names().count("cuTensorMapEncodeTiled") == 2


def test_a_map_that_cannot_be_encoded_is_an_error(monkeypatch: pytest.MonkeyPatch):
    fake, driver = hopper(monkeypatch)
    with pytest.raises(ProgramError, match=r"tensor map: address is .*; expected a multiple of 16"):
        multiplied(driver, offset=8)
    fake.fail["cuTensorMapEncodeTiled"] = real.CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DeviceError, match="`cuTensorMapEncodeTiled` failed"):
        multiplied(driver)
