"""Interface of all drivers of GPUs: modules, memory, and work that runs in order.

Copies and launches only enter a queue, in order; `synchronise` waits for them. A fault of a kernel
may therefore be raised by a later call. Memory, kernels and events are freed once Python no longer
uses them, which must not be before the work that does is done.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...compiler.gpu import GpuModule, GpuTarget, KernelLaunch, digest_of
from ...errors import DeviceError

ALIGNED_BYTES = 256
"""Parts of a buffer start at multiples of this."""


def device_parameters(driver: str, device: str, target: GpuTarget) -> Mapping[str, int | str]:
    """Return what tuned schedules of a GPU depend on."""
    return {
        "kind": "gpu",
        "driver": driver,
        "device": device,
        "level": target.level,
        "tf32": int(target.tf32),
    }


@dataclass(frozen=True, slots=True)
class GpuBuffer:
    """Memory of a GPU, or a part of one.

    Parameters
    ----------
    memory
        The driver's own handle of the whole allocation.
    offset, size_bytes
        The part.
    """

    memory: Any
    offset: int
    size_bytes: int

    def part(self, offset: int, size_bytes: int) -> "GpuBuffer":
        """A part of this memory, which starts `offset` bytes after it."""
        assert 0 <= offset <= offset + size_bytes <= self.size_bytes
        return replace(self, offset=self.offset + offset, size_bytes=size_bytes)


@dataclass(frozen=True, slots=True)
class GpuFunction:
    """A kernel that a driver has loaded.

    Parameters
    ----------
    handle
        The driver's own.
    kernel
        Its arguments and its shared memory.
    """

    handle: Any
    kernel: KernelLaunch


class GpuDriver(ABC):
    """A GPU, its memory and its queue; one thread uses it at a time.

    Attributes
    ----------
    name
        As in `--device gpu:NAME`.
    device
        The GPU's name, for people.
    target
        The GPU that kernels are compiled for.
    dlpack_device
        Its memory in DLPack: type and number of the device.
    dlpack_stream
        The queue for which tensors of other libraries get ready; None where there is only one.
    """

    name: str
    device: str
    target: GpuTarget
    dlpack_device: tuple[int, int]
    dlpack_stream: int | None = None

    @property
    def digest(self) -> str:
        """Hash that keys the tuned schedules of this GPU."""
        parameters = device_parameters(self.name, self.device, self.target)
        return digest_of(json.dumps(dict(parameters), sort_keys=True))

    @abstractmethod
    def load(self, module: GpuModule) -> tuple[GpuFunction, ...]:
        """Load a module's kernels, in its order.

        Raises
        ------
        CompileError
            The GPU cannot run them.
        """

    @abstractmethod
    def allocate(self, size_bytes: int) -> GpuBuffer:
        """Allocate memory of the GPU; its contents are undefined."""

    @abstractmethod
    def host_array(self, size_bytes: int) -> np.ndarray:
        """Allocate memory of the host, uint8[bytes]; between it and the GPU copies are fast."""

    @abstractmethod
    def copy_in(self, buffer: GpuBuffer, array: np.ndarray) -> None:
        """Copy a contiguous array of the host, which must not change before `synchronise`."""

    @abstractmethod
    def copy_out(self, buffer: GpuBuffer, array: np.ndarray) -> None:
        """Copy to a contiguous array of the host, valid after `synchronise`."""

    @abstractmethod
    def launch(
        self,
        function: GpuFunction,
        grid: tuple[int, int, int],
        block: int,
        arguments: Sequence[GpuBuffer],
    ) -> None:
        """Run a kernel on `grid` blocks of `block` threads; one argument for each of its arrays."""

    @abstractmethod
    def synchronise(self) -> None:
        """Wait for all queued work.

        Raises
        ------
        DeviceError
            Some of it failed.
        """

    @abstractmethod
    def event(self) -> Any:
        """A point in time, which `record` sets."""

    @abstractmethod
    def record(self, event: Any) -> None:
        """Set an event to the time when all work queued so far is done."""

    @abstractmethod
    def elapsed_s(self, start: Any, end: Any) -> float:
        """Seconds between two events, after `synchronise`."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """A function that queues again all that `work` queues, at less cost where possible.

        `work` must not wait, and nothing but its copies and launches is repeated.
        """
        return work

    # Memory that is shared with other libraries --------------------------------------------------

    @abstractmethod
    def foreign(self, address: int, offset: int, size_bytes: int) -> GpuBuffer:
        """Memory of another library at an address, or behind a handle, as DLPack gives it.

        Raises
        ------
        InputError
            The GPU cannot use it.
        """

    @abstractmethod
    def address_of(self, buffer: GpuBuffer) -> tuple[int, int]:
        """Address or handle of memory, and an offset, as DLPack gives them."""

    def let_wait(self, stream: int | None) -> None:
        """Let another library's queue wait for all work queued so far."""
        del stream
        self.synchronise()

    @abstractmethod
    def close(self) -> None:
        """Free everything."""


def check_copy(buffer: GpuBuffer, array: np.ndarray) -> None:
    """Reject a copy between memory and an array of another size.

    Raises
    ------
    DeviceError
        The sizes differ, or the array is not contiguous.
    """
    if array.nbytes != buffer.size_bytes or not array.flags.c_contiguous:
        raise DeviceError(
            f"copy of {buffer.size_bytes} bytes of a GPU: expected a contiguous array of this "
            f"size, got {array.nbytes} bytes; use `numpy.ascontiguousarray`"
        )


def one_line(text: object) -> str:
    """Join the lines of a driver's message."""
    return " ".join(str(text).split())
