"""GPUs of all makers through OpenCL 1.2, by `pyopencl`: one queue that runs in order.

The device's driver compiles OpenCL C. Its binaries are kept, with this user's mark.
"""

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from typing_extensions import override

from ...compiler.gpu import GpuModule, GpuTarget
from ...errors import CompileError, DeviceError, InputError, ToolError, install_command
from ...signing import is_signed, sign
from ..kernel_cache import keep_kernels, kept_kernel
from .driver import GpuBuffer, GpuDriver, GpuFunction, check_copy, one_line

EXACT_DIVISION = "-cl-fp32-correctly-rounded-divide-sqrt"

POCL = "Portable Computing Language"
POCL_KERNEL = "#define __kernel __kernel __attribute__((cold))\n"
"""pocl 3.1 ends the process where LLVM unswitched loops near barriers, which it never does in cold
code."""

PURPOSE = "OpenCL binary"
"""Purpose of the marks of binaries."""

MARK_BYTES = 64


class OpenClDriver(GpuDriver):
    """A device with OpenCL: the first GPU, otherwise the first device.

    Raises
    ------
    ToolError
        `pyopencl`, or a driver with OpenCL, is not installed.
    """

    name = "opencl"

    def __init__(self) -> None:
        self._cl = cl = _bindings()
        self._device = self._first_device()
        self.device = self._device.name.strip()
        self.dlpack_device = 4, self._number()
        self.target = GpuTarget("opencl", units=self._device.max_compute_units)
        self._context = cl.Context([self._device])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self._queue = cl.CommandQueue(self._context, properties=profiling)
        self._is_open, self._process = True, os.getpid()
        exact = cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        has_exact = self._device.single_fp_config & exact
        self._options = ["-cl-std=CL1.2", *([EXACT_DIVISION] if has_exact else [])]

    def _first_device(self) -> Any:
        try:
            platforms = self._cl.get_platforms()
        except self._cl.Error:  # raised by the loader that finds none
            platforms = []
        devices = [device for platform in platforms for device in platform.get_devices()]
        devices.sort(key=lambda device: not device.type & self._cl.device_type.GPU)
        if not devices:
            raise ToolError(
                f"device `gpu:{self.name}`: no driver with OpenCL is installed; install that of "
                "the GPU's maker, or `pocl-opencl-icd`, which runs kernels on the processor"
            )
        return devices[0]

    def _number(self) -> int:
        """The device's place among all devices, platform by platform."""
        platforms = self._cl.get_platforms()
        return [d for one in platforms for d in one.get_devices()].index(self._device)

    @property
    def _where(self) -> str:
        return f"device `gpu:{self.name}` ({self.device})"

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Work with the device, whose errors are raised as `DeviceError`."""
        if not self._is_open:
            raise DeviceError(f"{self._where}: it is closed; open it again")
        if os.getpid() != self._process:
            raise DeviceError(f"{self._where}: opened before a fork; open it in the child")
        try:
            yield
        except self._cl.Error as problem:
            raise DeviceError(f"{self._where}: {one_line(problem)}") from problem

    # Modules -------------------------------------------------------------------------------------

    @override
    def load(self, module: GpuModule) -> tuple[GpuFunction, ...]:
        for kernel in module.kernels:
            for what, needed, most in (
                ("threads in a block", kernel.threads, self._device.max_work_group_size),
                ("bytes of shared memory", kernel.shared_bytes, self._device.local_mem_size),
            ):
                if needed > most:
                    raise CompileError(
                        f"{self._where}: a kernel needs {needed} {what}, more than its {most}"
                    )
        with self._working():
            program = self._program(module.code)
            return tuple(
                GpuFunction(self._cl.Kernel(program, kernel.name), kernel)
                for kernel in module.kernels
            )

    def _program(self, source: str) -> Any:
        """A built program, from the kept binary if there is one."""
        cl, platform = self._cl, self._device.platform
        if platform.name == POCL:
            source = POCL_KERNEL + source
        parts = (self.device, self._device.driver_version, platform.version, *self._options, source)
        key = hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()
        kept = kept_kernel(key) or b""
        mark, binary = kept[:MARK_BYTES].decode("ascii", "replace"), kept[MARK_BYTES:]
        if binary and is_signed(key.encode("ascii") + binary, mark, PURPOSE):
            try:
                return cl.Program(self._context, [self._device], [binary]).build(self._options)
            except cl.Error:  # the driver was changed without a new version
                pass
        try:
            program = cl.Program(self._context, source).build(self._options)
        except cl.Error as problem:
            raise CompileError(f"{self._where}: {one_line(problem)}") from problem
        (binary,) = program.get_info(cl.program_info.BINARIES)
        mark = sign(key.encode("ascii") + binary, PURPOSE)
        keep_kernels({key: mark.encode("ascii") + binary})
        return program

    # Memory --------------------------------------------------------------------------------------

    @override
    def allocate(self, size_bytes: int) -> GpuBuffer:
        with self._working():
            way = self._cl.mem_flags.READ_WRITE
            memory = self._cl.Buffer(self._context, way, max(size_bytes, 1))
        return GpuBuffer(memory, 0, size_bytes)

    @override
    def host_array(self, size_bytes: int) -> np.ndarray:
        return np.empty(size_bytes, np.uint8)

    @override
    def copy_in(self, buffer: GpuBuffer, array: np.ndarray) -> None:
        check_copy(buffer, array)
        with self._working():
            if array.nbytes:
                self._cl.enqueue_copy(
                    self._queue, buffer.memory, array, dst_offset=buffer.offset, is_blocking=False
                )

    @override
    def copy_out(self, buffer: GpuBuffer, array: np.ndarray) -> None:
        check_copy(buffer, array)
        with self._working():
            if array.nbytes:
                self._cl.enqueue_copy(
                    self._queue, array, buffer.memory, src_offset=buffer.offset, is_blocking=False
                )

    @override
    def foreign(self, address: int, offset: int, size_bytes: int) -> GpuBuffer:
        with self._working():
            memory = self._cl.MemoryObject.from_int_ptr(address, retain=True)
            if memory.context != self._context:
                raise InputError(
                    f"{self._where}: expected memory of the device's own context, got that of "
                    "another one; copy it to the host"
                )
        return GpuBuffer(memory, offset, size_bytes)

    @override
    def address_of(self, buffer: GpuBuffer) -> tuple[int, int]:
        return buffer.memory.int_ptr, buffer.offset

    # The queue -----------------------------------------------------------------------------------

    @override
    def launch(
        self,
        function: GpuFunction,
        grid: tuple[int, int, int],
        block: int,
        arguments: Sequence[GpuBuffer],
    ) -> None:
        x, y, z = grid
        with self._working():
            places = ((buffer.memory, np.uint64(buffer.offset)) for buffer in arguments)
            function.handle.set_args(*itertools.chain.from_iterable(places))
            self._cl.enqueue_nd_range_kernel(
                self._queue, function.handle, (x * block, y, z), (block, 1, 1)
            )

    @override
    def synchronise(self) -> None:
        with self._working():
            self._queue.finish()

    @override
    def event(self) -> list[Any]:
        return []

    @override
    def record(self, event: list[Any]) -> None:
        with self._working():
            event[:] = [self._cl.enqueue_marker(self._queue)]

    @override
    def elapsed_s(self, start: list[Any], end: list[Any]) -> float:
        with self._working():
            return (end[0].profile.end - start[0].profile.end) / 1e9

    @override
    def close(self) -> None:
        if not self._is_open or os.getpid() != self._process:
            return
        self.synchronise()
        self._is_open = False
        del self._queue, self._context


def _bindings() -> Any:
    # Its own cache holds pickles, and nobody signed those.
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    try:
        return import_module("pyopencl")
    except ImportError:
        raise ToolError(
            "device `gpu:opencl`: the Python package `pyopencl` is not installed; run "
            f"`{install_command('opencl')}`"
        ) from None
