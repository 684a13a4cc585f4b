"""GPUs of all makers through OpenCL 1.2, by `pyopencl`: one queue that runs in order.

The driver of the device compiles OpenCL C. Its binaries are kept, with this user's mark.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ..compiler.gpu import GpuModule, GpuTarget, KernelLaunch
from ..errors import CompileError, DeviceError, ToolError, install_command
from ..signing import is_signed, sign
from .kernel_cache import keep_kernels, kept_kernel

EXACT_DIVISION = "-cl-fp32-correctly-rounded-divide-sqrt"
POCL = "Portable Computing Language"
POCL_KERNEL = "#define __kernel __kernel __attribute__((cold))\n"
"""pocl 3.1 ends the process where LLVM unswitched loops near barriers, which it never does in cold
code."""

PURPOSE = "OpenCL binary"
"""Purpose of the marks of binaries."""

MARK_BYTES = 64


@dataclass(frozen=True, slots=True)
class OpenClFunction:
    """A kernel that is ready to run.

    Parameters
    ----------
    handle
        The driver's own.
    kernel
        Its arguments.
    """

    handle: Any
    kernel: KernelLaunch


class OpenClDriver:
    """A device with OpenCL: the first GPU, otherwise the first device.

    Attributes
    ----------
    device
        The device's name, for people.
    target
        The level that kernels are compiled for.

    Raises
    ------
    ToolError
        `pyopencl`, or a driver with OpenCL, is not installed.
    """

    name = "opencl"

    def __init__(self) -> None:
        self._cl = _bindings()
        self._device = self._first_device()
        self.device = self._device.name.strip()
        self.target = GpuTarget("opencl")
        self._context = self._cl.Context([self._device])
        self._queue = self._cl.CommandQueue(self._context)
        kinds = self._cl.device_fp_config
        exact = self._device.single_fp_config & kinds.CORRECTLY_ROUNDED_DIVIDE_SQRT
        self._options = ("-cl-std=CL1.2", *([EXACT_DIVISION] if exact else []))

    def _first_device(self) -> Any:
        try:
            platforms = self._cl.get_platforms()
        except self._cl.Error:  # the loader raises where there is none
            platforms = []
        devices = [device for platform in platforms for device in platform.get_devices()]
        devices.sort(key=lambda device: not device.type & self._cl.device_type.GPU)
        if not devices:
            raise ToolError(
                "device `gpu:opencl`: no driver with OpenCL is installed; install that of the "
                "GPU's maker, or `pocl-opencl-icd`, which runs kernels on the processor"
            )
        return devices[0]

    def load(self, module: GpuModule) -> tuple[OpenClFunction, ...]:
        """Build a module's kernels, in its order.

        Raises
        ------
        CompileError
            When the device cannot run them.
        """
        limits = (
            ("threads in a block", "threads", self._device.max_work_group_size),
            ("bytes of shared memory", "shared_bytes", self._device.local_mem_size),
        )
        for kernel in module.kernels:
            for what, attribute, most in limits:
                if getattr(kernel, attribute) > most:
                    raise CompileError(
                        f"device `gpu:opencl` ({self.device}): a kernel needs "
                        f"{getattr(kernel, attribute)} {what}, more than its {most}"
                    )
        program = self._program(module.ptx)
        return tuple(
            OpenClFunction(self._cl.Kernel(program, kernel.name), kernel)
            for kernel in module.kernels
        )

    def _program(self, source: str) -> Any:
        """A built program, from the kept binary if there is one."""
        platform = self._device.platform
        if platform.name == POCL:
            source = POCL_KERNEL + source
        parts = (self.device, self._device.driver_version, platform.version, *self._options, source)
        key = hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()
        kept = kept_kernel(key) or b""
        mark, binary = kept[:MARK_BYTES].decode("ascii", "replace"), kept[MARK_BYTES:]
        if binary and is_signed(key.encode("ascii") + binary, mark, PURPOSE):
            try:
                return self._built(self._cl.Program(self._context, [self._device], [binary]))
            except CompileError:  # the driver was changed without a new version
                pass
        program = self._built(self._cl.Program(self._context, source))
        (binary,) = program.get_info(self._cl.program_info.BINARIES)
        mark = sign(key.encode("ascii") + binary, PURPOSE).encode("ascii")
        keep_kernels({key: mark + binary})
        return program

    def _built(self, program: Any) -> Any:
        try:
            return program.build([*self._options])
        except self._cl.Error as problem:
            said = " ".join(str(problem).split())
            raise CompileError(f"device `gpu:opencl` ({self.device}): {said}") from problem

    def allocate(self, size_bytes: int) -> Any:
        """Allocate memory of the device; its contents are undefined."""
        return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(size_bytes, 1))

    def free(self, buffer: Any) -> None:
        buffer.release()

    def copy_in(self, buffer: Any, array: np.ndarray) -> None:
        """Copy a contiguous array of the host, which must not change before `synchronise`."""
        self._copy(buffer, array, array.nbytes)

    def copy_out(self, buffer: Any, array: np.ndarray) -> None:
        """Copy to a contiguous array of the host, valid after `synchronise`."""
        self._copy(array, buffer, array.nbytes)

    def _copy(self, target: Any, source: Any, size_bytes: int) -> None:
        if size_bytes:
            self._cl.enqueue_copy(self._queue, target, source, is_blocking=False)

    def launch(
        self,
        function: OpenClFunction,
        grid: tuple[int, int, int],
        block: int,
        arguments: Sequence[Any],
    ) -> None:
        """Run a kernel on `grid` blocks of `block` threads; one argument for each of its arrays."""
        function.handle.set_args(*arguments)
        x, y, z = grid
        self._cl.enqueue_nd_range_kernel(
            self._queue, function.handle, (x * block, y, z), (block, 1, 1)
        )

    def synchronise(self) -> None:
        """Wait for all queued work.

        Raises
        ------
        DeviceError
            When some of it failed.
        """
        try:
            self._queue.finish()
        except self._cl.Error as problem:
            raise DeviceError(f"device `gpu:opencl` ({self.device}): {problem}") from problem


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
