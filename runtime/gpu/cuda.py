"""NVIDIA's driver, through `cuda-bindings`: one stream, and graphs of what a run queues.

The driver compiles PTX for the GPU that is there, and keeps the result in its own cache.
"""

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from ...compiler.gpu import LEVELS, GpuModule, GpuTarget, KernelLaunch
from ...errors import CompileError, DeviceError, ToolError, install_command
from .cuda_errors import INVALID_CODE, REMEDIES, CudaError
from .driver import GpuBuffer, GpuDriver, GpuFunction, check_copy, one_line

STATIC_SHARED_BYTES = 48 << 10
"""Shared memory that every kernel may use; more has to be allowed."""

LEGACY_STREAM, NO_WAIT = 1, -1
"""Streams of DLPack: CUDA's default one, and none."""

LOG_BYTES = 1 << 13
"""Longest message of the driver's compiler."""


class CudaDriver(GpuDriver):
    """A GPU of NVIDIA, through its primary context.

    Parameters
    ----------
    ordinal
        The GPU, in the driver's numbering; `CUDA_VISIBLE_DEVICES` chooses as everywhere.

    Raises
    ------
    ToolError
        `cuda-bindings` or NVIDIA's driver is not installed.
    DeviceError
        There is no GPU, or none that kernels can be compiled for.
    """

    name = "cuda"
    device = "GPU"

    def __init__(self, ordinal: int = 0) -> None:
        self._cuda = _bindings()
        self._process, self._entered = os.getpid(), threading.local()
        self._open = False
        self._owned: dict[int, tuple[str, Any]] = {}
        self._unused = deque[int]()
        try:
            self._call("cuInit", 0)
        except RuntimeError as problem:  # raised by `cuda-pathfinder`, which looks for the library
            raise ToolError(
                "device `gpu:cuda`: NVIDIA's driver is not installed; install it, or use "
                "`--device host`"
            ) from problem
        self._device = self._call("cuDeviceGet", ordinal)
        self.dlpack_device = 2, ordinal
        text = self._call("cuDeviceGetName", 256, self._device)
        self.device = text.rstrip(b"\0").decode("utf-8", "replace")
        major = self._attribute("COMPUTE_CAPABILITY_MAJOR")
        minor = self._attribute("COMPUTE_CAPABILITY_MINOR")
        units = self._attribute("MULTIPROCESSOR_COUNT")
        self.target = GpuTarget(level_of(self.device, major, minor), units=units)
        self._shared_bytes = self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self._context = self._call("cuDevicePrimaryCtxRetain", self._device)
        self._open = True
        try:
            self._stream = self._enter(
                "cuStreamCreate", int(self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
            )
        except DeviceError:
            self._call("cuDevicePrimaryCtxRelease", self._device)
            raise

    @property
    @override
    def dlpack_stream(self) -> int:
        return int(self._stream)

    def _attribute(self, name: str) -> int:
        kind = getattr(self._cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return self._call("cuDeviceGetAttribute", kind, self._device)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the driver; its result, or None.

        Raises
        ------
        CudaError
            It failed.
        """
        status, *results = getattr(self._cuda, name)(*arguments)
        if int(status) != 0:
            raise self._error(name, status)
        return results[0] if results else None

    def _enter(self, name: str, *arguments: Any) -> Any:
        """Call a function of the context, which belongs to a thread and dies with a fork."""
        if not self._open:
            raise DeviceError(f"{self._where}: it is closed; open it again")
        if os.getpid() != self._process:
            raise DeviceError(f"{self._where}: opened before a fork; open it in the child")
        if not hasattr(self._entered, "context"):
            self._call("cuCtxSetCurrent", self._context)
            self._entered.context = self._context
        return self._call(name, *arguments)

    @property
    def _where(self) -> str:
        return f"device `gpu:cuda` ({self.device})"

    def _error(self, function: str, status: Any) -> "CudaError":
        text = []
        for ask in (self._cuda.cuGetErrorName, self._cuda.cuGetErrorString):
            failed, found = ask(status)
            text.append(f"error {int(status)}" if int(failed) else found.decode("utf-8", "replace"))
        name, meaning = text
        remedy = f"; {REMEDIES[name]}" if name in REMEDIES else ""
        return CudaError(f"{self._where}: `{function}` failed: {name} ({meaning}){remedy}", name)

    def _own(self, handle: Any, function: str) -> "_Owned":
        """Something that a function of the driver destroys, once Python no longer uses it."""
        self._owned[int(handle)] = function, handle
        return _Owned(handle, self._unused)

    def _destroy_unused(self) -> None:
        if not (self._unused and self._owned):
            return
        self.synchronise()  # queued work may still need it
        while self._unused:
            self._enter(*self._owned.pop(self._unused.popleft()))

    @override
    def load(self, module: GpuModule) -> tuple[GpuFunction, ...]:
        self._destroy_unused()
        for kernel in module.kernels:
            if kernel.shared_bytes > self._shared_bytes:
                raise CompileError(
                    f"{self._where}: a kernel needs {kernel.shared_bytes} bytes of shared memory, "
                    f"and a block has at most {self._shared_bytes}"
                )
        option, log = self._cuda.CUjit_option, bytearray(LOG_BYTES)
        options = {
            option.CU_JIT_ERROR_LOG_BUFFER: log,
            option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
        }
        image = module.code.encode("ascii") + b"\0"
        try:
            handle = self._enter(
                "cuModuleLoadDataEx", image, len(options), [*options], [*options.values()]
            )
        except CudaError as problem:
            if problem.name not in INVALID_CODE:
                raise
            said = one_line(log.rstrip(b"\0").decode("utf-8", "replace"))
            raise CompileError(f"{problem}: {said or 'no reason given'}") from problem
        loaded = self._own(handle, "cuModuleUnload")
        return tuple(self._function(loaded, kernel) for kernel in module.kernels)

    def _function(self, module: "_Owned", kernel: KernelLaunch) -> GpuFunction:
        handle = self._enter("cuModuleGetFunction", module.handle, kernel.name.encode("ascii"))
        if kernel.shared_bytes > STATIC_SHARED_BYTES:
            attribute = self._cuda.CUfunction_attribute
            self._enter(
                "cuFuncSetAttribute",
                handle,
                attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                kernel.shared_bytes,
            )
        return GpuFunction(_Function(handle, module), kernel)

    @override
    def allocate(self, size_bytes: int) -> GpuBuffer:
        self._destroy_unused()
        address = int(self._enter("cuMemAlloc", max(size_bytes, 1)))
        return GpuBuffer(self._own(address, "cuMemFree"), 0, size_bytes)

    @override
    def host_array(self, size_bytes: int) -> np.ndarray:
        self._destroy_unused()
        room = max(size_bytes, 1)
        address = int(self._enter("cuMemHostAlloc", room, 0))
        return np.asarray(_HostMemory(self._own(address, "cuMemFreeHost"), room))[:size_bytes]

    @override
    def copy_in(self, buffer: GpuBuffer, array: np.ndarray) -> None:
        check_copy(buffer, array)
        size = buffer.size_bytes
        self._enter("cuMemcpyHtoDAsync", _address(buffer), array.ctypes.data, size, self._stream)

    @override
    def copy_out(self, buffer: GpuBuffer, array: np.ndarray) -> None:
        check_copy(buffer, array)
        size = buffer.size_bytes
        self._enter("cuMemcpyDtoHAsync", array.ctypes.data, _address(buffer), size, self._stream)

    @override
    def launch(
        self,
        function: GpuFunction,
        grid: tuple[int, int, int],
        block: int,
        arguments: Sequence[GpuBuffer],
    ) -> None:
        kernel, addresses = function.kernel, tuple(map(_address, arguments))
        maps = tuple(
            self._enter(
                "cuTensorMapEncodeTiled",
                *one.encode_arguments(self._cuda, addresses[kernel.tensors.index(name)]),
            )
            for name, one in kernel.maps
        )
        # Bindings copy a map themselves, and need no type for it.
        kinds = *(ctypes.c_void_p for _ in addresses), *(None for _ in maps)
        self._enter(
            "cuLaunchKernel", function.handle.function, *grid, block, 1, 1,
            kernel.shared_bytes, self._stream, ((*addresses, *maps), kinds), 0,
        )  # fmt: skip

    @override
    def synchronise(self) -> None:
        self._enter("cuStreamSynchronize", self._stream)

    @override
    def event(self) -> Any:
        event = self._enter("cuEventCreate", int(self._cuda.CUevent_flags.CU_EVENT_DEFAULT))
        return self._own(event, "cuEventDestroy")

    @override
    def record(self, event: Any) -> None:
        self._enter("cuEventRecord", event.handle, self._stream)

    @override
    def elapsed_s(self, start: Any, end: Any) -> float:
        return self._enter("cuEventElapsedTime", start.handle, end.handle) / 1e3

    @override
    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        mode = self._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._enter("cuStreamBeginCapture", self._stream, mode)
        try:
            work()
        except BaseException:
            with suppress(DeviceError):  # the first problem is the cause
                self._enter("cuGraphDestroy", self._enter("cuStreamEndCapture", self._stream))
            raise
        graph = self._own(self._enter("cuStreamEndCapture", self._stream), "cuGraphDestroy")
        repeated = self._own(
            self._enter("cuGraphInstantiate", graph.handle, 0), "cuGraphExecDestroy"
        )
        return lambda: self._enter("cuGraphLaunch", repeated.handle, self._stream)

    @override
    def foreign(self, address: int, offset: int, size_bytes: int) -> GpuBuffer:
        return GpuBuffer(_Foreign(address), offset, size_bytes)

    @override
    def address_of(self, buffer: GpuBuffer) -> tuple[int, int]:
        return _address(buffer), 0

    @override
    def let_wait(self, stream: int | None) -> None:
        if stream == NO_WAIT:
            return
        event = self.event()
        self.record(event)
        other = self._cuda.CUstream(LEGACY_STREAM if stream is None else stream)
        self._enter("cuStreamWaitEvent", other, event.handle, 0)

    @override
    def close(self) -> None:
        if not self._open or os.getpid() != self._process:
            return
        # After a fault of a kernel every call fails; what is left is freed with the process.
        with suppress(DeviceError):
            self._enter("cuStreamSynchronize", self._stream)
            while self._owned:
                _, found = self._owned.popitem()
                self._enter(*found)
            self._enter("cuStreamDestroy", self._stream)
        self._owned.clear()
        with suppress(DeviceError):
            self._call("cuDevicePrimaryCtxRelease", self._device)
        self._open = False


class _Owned:
    """A handle that outlives its last use in Python.

    Python ends its use at any moment: within another call, or while a graph is captured, when
    CUDA refuses to free memory. So it is only noted here, and destroyed before more is asked for.
    """

    def __init__(self, handle: Any, unused: deque[int]) -> None:
        self.handle, self._unused = handle, unused

    def __del__(self) -> None:
        self._unused.append(int(self.handle))


@dataclass(frozen=True, slots=True)
class _HostMemory:
    """Memory of the host that arrays show and keep."""

    owned: _Owned
    size_bytes: int

    @property
    def __array_interface__(self) -> dict[str, Any]:
        place = self.owned.handle, False
        return {"shape": (self.size_bytes,), "typestr": "|u1", "data": place, "version": 3}


class _Foreign(NamedTuple):
    """Memory that another library owns."""

    handle: int


class _Function(NamedTuple):
    """A function, and the module that must stay loaded for it."""

    function: Any
    module: _Owned


def level_of(device: str, major: int, minor: int) -> str:
    """The most capable level that a GPU of a compute capability runs.

    Raises
    ------
    DeviceError
        It runs none.
    """
    chip = 10 * major + minor
    for name in LEVELS:
        if not name.startswith("sm"):
            continue
        least = int(name.removeprefix("sm").removesuffix("a"))
        if chip == least or (chip > least and not name.endswith("a")):
            return name
    raise DeviceError(
        f"device `gpu:cuda` ({device}): expected a compute capability of 8.0 or more, got "
        f"{major}.{minor}; use `--device host`"
    )


def _bindings() -> Any:
    try:
        return import_module("cuda.bindings.driver")
    except ImportError:
        raise ToolError(
            "device `gpu:cuda`: the Python package `cuda-bindings` is not installed; run "
            f"`{install_command('gpu')}`"
        ) from None


def _address(buffer: GpuBuffer) -> int:
    return buffer.memory.handle + buffer.offset
