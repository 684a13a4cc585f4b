"""The interpreter of PTX as a driver: very slow, and every fault of a kernel is an error."""

import ctypes
import time
from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from ...compiler.gpu import GpuModule, GpuTarget
from ...errors import DeviceError
from ...sim.ptx import PtxFault, TensorArgument, parse_ptx, run
from .driver import GpuBuffer, GpuDriver, GpuFunction, check_copy

FILL = 0xA5
"""Bytes of new memory, in which a kernel that reads what nobody wrote shows."""


class InterpreterDriver(GpuDriver):
    """Kernels run in NumPy, one after the other.

    Parameters
    ----------
    level
        The GPU's level.
    order
        Order of warps, as in `sim.ptx.run`.
    """

    name = "interpreter"
    device = "PTX interpreter in software; its times are not those of a GPU"
    dlpack_device = (1, 0)  # memory of the host

    def __init__(self, level: str = "sm80", order: str | int = "together") -> None:
        self.target, self.order = GpuTarget(level), order

    @override
    def load(self, module: GpuModule) -> tuple[GpuFunction, ...]:
        kernels = parse_ptx(module.code)
        return tuple(GpuFunction(kernels[kernel.name], kernel) for kernel in module.kernels)

    @override
    def allocate(self, size_bytes: int) -> GpuBuffer:
        return GpuBuffer(np.full(size_bytes, FILL, np.uint8), 0, size_bytes)

    @override
    def host_array(self, size_bytes: int) -> np.ndarray:
        return np.empty(size_bytes, np.uint8)

    @override
    def copy_in(self, buffer: GpuBuffer, array: np.ndarray) -> None:
        check_copy(buffer, array)
        _bytes(buffer)[...] = array.reshape(-1).view(np.uint8)

    @override
    def copy_out(self, buffer: GpuBuffer, array: np.ndarray) -> None:
        check_copy(buffer, array)
        array.reshape(-1).view(np.uint8)[...] = _bytes(buffer)

    @override
    def launch(
        self,
        function: GpuFunction,
        grid: tuple[int, int, int],
        block: int,
        arguments: Sequence[GpuBuffer],
    ) -> None:
        kernel = function.kernel
        # A kernel writes its last array alone; the same memory is the same array.
        views: dict[tuple[int, int, int], np.ndarray] = {}
        for buffer in arguments:
            views.setdefault(_key(buffer), _bytes(buffer)).flags.writeable = False
        views[_key(arguments[-1])].flags.writeable = True
        given = [views[_key(buffer)] for buffer in arguments]
        maps = [TensorArgument(one, given[kernel.tensors.index(n)]) for n, one in kernel.maps]
        try:
            run(function.handle, grid, block, [*given, *maps], kernel.shared_bytes, self.order)
        except PtxFault as fault:
            raise DeviceError(
                f"device `gpu:{self.name}`: kernel `{kernel.name}` on {', '.join(kernel.tensors)}: "
                f"{fault}; this is a fault of Tilewright: report it with the model"
            ) from fault

    @override
    def synchronise(self) -> None:
        return

    @override
    def event(self) -> list[float]:
        return []

    @override
    def record(self, event: list[float]) -> None:
        event[:] = [time.perf_counter()]

    @override
    def elapsed_s(self, start: list[float], end: list[float]) -> float:
        return end[0] - start[0]

    @override
    def foreign(self, address: int, offset: int, size_bytes: int) -> GpuBuffer:
        bytes_ = (ctypes.c_uint8 * size_bytes).from_address(address + offset)
        return GpuBuffer(np.ctypeslib.as_array(bytes_), 0, size_bytes)

    @override
    def address_of(self, buffer: GpuBuffer) -> tuple[int, int]:
        return buffer.memory.ctypes.data, buffer.offset

    @override
    def close(self) -> None:
        return


def _key(buffer: GpuBuffer) -> tuple[int, int, int]:
    return id(buffer.memory), buffer.offset, buffer.size_bytes


def _bytes(buffer: GpuBuffer) -> np.ndarray:
    return buffer.memory[buffer.offset : buffer.offset + buffer.size_bytes]
