"""A stand-in for `cuda.bindings.driver`: it records calls, runs kernels in the interpreter of PTX.

Types and enumerations are those of the package. Where there is no driver of NVIDIA, the package
also sees each call: it converts the arguments, and then fails because it finds no library.
"""

import ctypes
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import cuda.bindings.driver as real
import numpy as np
import pytest

from tilewright.sim.ptx import TensorArgument, parse_ptx, run
from tilewright.tensor_map import DATA_TYPES, TensorMap

KINDS = {
    getattr(real.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"): (name, size)
    for name, (kind, size) in reversed(DATA_TYPES.items())
}
"""Types of maps, with their names here and the bytes of an element."""

SUCCESS = real.CUresult.CUDA_SUCCESS


def has_driver() -> bool:
    try:
        real.cuInit(0)
    except RuntimeError:
        return False
    return True


class FakeCuda:
    """A GPU of one compute capability.

    Parameters
    ----------
    capability, shared_bytes
        Properties of the GPU.
    log
        Message of the driver's compiler, when it fails.

    Attributes
    ----------
    fail
        Error of each function that fails.
    before
        Something that happens just before a function works, such as a collection of Python.
    """

    def __init__(
        self, capability: tuple[int, int] = (8, 0), shared_bytes: int = 163 << 10, log: bytes = b""
    ) -> None:
        self.fail: dict[str, Any] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self.log, self.calls = log, list[tuple[str, tuple[Any, ...]]]()
        self._check = not has_driver()
        attribute = real.CUdevice_attribute
        self._attributes = {
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: capability[0],
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: capability[1],
            attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: 108,
            attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: shared_bytes,
        }
        self.memory: dict[int, np.ndarray] = {}
        self._next = 1 << 40
        self._handles: dict[int, Any] = {}
        self._captured: list[tuple[Any, tuple[Any, ...]]] | None = None
        self._clock = 0
        self.waits: list[int] = []
        """Streams that wait for an event."""

    def __getattr__(self, name: str) -> Any:
        if name[:2] != "cu" or name[2].islower():
            return getattr(real, name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, arguments))
            if self._check:
                with pytest.raises(RuntimeError, match="NVIDIA driver library"):
                    getattr(real, name)(*arguments)
            self.before.get(name, lambda: None)()
            work = getattr(self, f"_{name}")
            if name in self.fail:
                if name == "cuModuleLoadDataEx":
                    arguments[3][0][: len(self.log)] = self.log
                if name == "cuStreamEndCapture":
                    self._captured = None
                return self.fail[name], None
            if self._captured is not None:
                assert name not in REFUSED, f"`{name}` during a capture"
                if name in QUEUED:
                    self._captured.append((work, arguments))
                    return (SUCCESS,)
            found = work(*arguments)
            return (SUCCESS,) if found is None else (SUCCESS, found)

        return call

    def names(self) -> list[str]:
        """Names of all functions that were called, in order."""
        return [name for name, _ in self.calls]

    def _keep(self, kind: Any, value: Any) -> Any:
        self._next += 16
        self._handles[self._next] = value
        return kind(self._next)

    # The device --------------------------------------------------------------------------------

    def _cuInit(self, flags: int) -> None:
        assert flags == 0

    def _cuDeviceGet(self, ordinal: int) -> Any:
        return real.CUdevice(ordinal)

    def _cuDeviceGetName(self, length: int, device: Any) -> bytes:
        return b"Fake GPU".ljust(length, b"\0")

    def _cuDeviceGetAttribute(self, attribute: Any, device: Any) -> int:
        return self._attributes[attribute]

    def _cuGetErrorName(self, error: Any) -> bytes:
        return error.name.encode()

    def _cuGetErrorString(self, error: Any) -> bytes:
        return b"text of the driver"

    def _cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        return self._keep(real.CUcontext, "context")

    def _cuDevicePrimaryCtxRelease(self, device: Any) -> None:
        self.memory.clear()

    def _cuCtxSetCurrent(self, context: Any) -> None:
        assert self._handles[int(context)] == "context"

    # Memory ------------------------------------------------------------------------------------

    def _cuMemAlloc(self, size: int) -> Any:
        self._next += -self._next % (1 << 32) + (1 << 32)
        self.memory[self._next] = np.full(size, 0xA5, np.uint8)
        return real.CUdeviceptr(self._next)

    def _cuMemFree(self, address: int) -> None:
        del self.memory[address]

    def _cuMemHostAlloc(self, size: int, flags: int) -> int:
        array = np.zeros(size, np.uint8)
        self._handles[array.ctypes.data] = array
        return array.ctypes.data

    def _cuMemFreeHost(self, address: int) -> None:
        del self._handles[address]

    def _room(self, address: int) -> np.ndarray:
        (start,) = [s for s, array in self.memory.items() if s <= address <= s + array.size]
        return self.memory[start][address - start :]

    def _cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: Any) -> None:
        self._room(to)[:size] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(source))

    def _cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: Any) -> None:
        np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(to))[:] = self._room(source)[
            :size
        ]

    # Modules -----------------------------------------------------------------------------------

    def _cuModuleLoadDataEx(self, image: bytes, count: int, options: list, values: list) -> Any:
        assert image.endswith(b"\0")
        assert count == len(options) == len(values)
        return self._keep(real.CUmodule, parse_ptx(image[:-1].decode()))

    def _cuModuleUnload(self, module: Any) -> None:
        del self._handles[int(module)]

    def _cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        kernel = self._handles[int(module)][name.decode()]
        return self._keep(real.CUfunction, kernel)

    def _cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> None:
        assert int(function) in self._handles

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> None:
        *extents, shared_bytes, _, (values, kinds), extra = rest
        count = kinds.count(ctypes.c_void_p)
        addresses, maps = values[:count], values[count:]
        assert kinds == (ctypes.c_void_p,) * count + (None,) * len(maps)
        assert extra == 0
        # An array reaches to the next one of the launch.
        ends = sorted({*addresses, 1 << 62})
        arrays = {address: self._room(address)[: end - address] for address, end in pairwise(ends)}
        run(
            self._handles[int(function)],
            tuple(extents[:3]),
            tuple(extents[3:]),
            [
                *(arrays[address] for address in addresses),
                *(TensorArgument(one, arrays[address]) for one, address in map(self._map, maps)),
            ],
            shared_bytes,
        )

    def _cuTensorMapEncodeTiled(self, kind: Any, rank: int, address: int, *rest: Any) -> Any:
        dims, strides, box, steps, interleave, swizzle, promotion, fill = rest
        name, bytes_ = KINDS[kind]
        extents = [tuple(map(int, each)) for each in (dims, strides, box, steps)]
        assert len(dims) == rank
        assert interleave.name.endswith("NONE")
        assert promotion.name.endswith("128B")
        assert fill.name.endswith("FILL_NONE")
        *_, span = swizzle.name.split("_")
        tensor = TensorMap(name, *extents, swizzle_bytes=int(span.removesuffix("B")))
        assert tensor.element_bytes == bytes_
        found = real.CUtensorMap()
        self._handles[found.getPtr()] = tensor, address, found
        return found

    def _map(self, encoded: Any) -> tuple[TensorMap, int]:
        return self._handles[encoded.getPtr()][:2]

    # Streams, events and graphs ----------------------------------------------------------------

    def _cuStreamCreate(self, flags: int) -> Any:
        return self._keep(real.CUstream, "stream")

    def _cuStreamDestroy(self, stream: Any) -> None:
        del self._handles[int(stream)]

    def _cuStreamSynchronize(self, stream: Any) -> None:
        assert self._captured is None
        assert self._handles[int(stream)] == "stream"

    def _cuEventCreate(self, flags: int) -> Any:
        return self._keep(real.CUevent, 0)

    def _cuEventRecord(self, event: Any, stream: Any) -> None:
        self._clock += 1
        self._handles[int(event)] = self._clock

    def _cuEventElapsedTime(self, start: Any, end: Any) -> float:
        return float(self._handles[int(end)] - self._handles[int(start)])

    def _cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        assert flags == 0
        assert self._handles[int(event)]
        self.waits.append(int(stream))

    def _cuEventDestroy(self, event: Any) -> None:
        del self._handles[int(event)]

    def _cuStreamBeginCapture(self, stream: Any, mode: Any) -> None:
        self._captured = []

    def _cuStreamEndCapture(self, stream: Any) -> Any:
        captured, self._captured = self._captured, None
        return self._keep(real.CUgraph, captured)

    def _cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        return self._keep(real.CUgraphExec, self._handles[int(graph)])

    def _cuGraphLaunch(self, executable: Any, stream: Any) -> None:
        for work, arguments in self._handles[int(executable)]:
            work(*arguments)

    def _cuGraphDestroy(self, graph: Any) -> None:
        del self._handles[int(graph)]

    def _cuGraphExecDestroy(self, executable: Any) -> None:
        del self._handles[int(executable)]

    def left(self) -> Mapping[int, Any]:
        """Handles and memory that nobody freed, without functions and contexts."""
        return {
            handle: value
            for handle, value in {**self._handles, **self.memory}.items()
            if isinstance(value, np.ndarray | list | dict | int) or value == "stream"
        }


QUEUED = "cuLaunchKernel", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"
"""Functions that a capture records instead of executing."""

REFUSED = "cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuModuleLoadDataEx"
"""Functions that fail within a capture."""


def install(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make `fake` the package's module `driver`."""
    monkeypatch.setattr("cuda.bindings.driver", fake)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    return fake
