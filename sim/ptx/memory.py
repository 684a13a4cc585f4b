"""Address spaces: device buffers with bounds, shared memory of blocks, local memory, parameters."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from .faults import FaultKind, LaneFault, PtxFault
from .shadow import ATOMIC, GlobalShadow, SharedShadow

if TYPE_CHECKING:
    from .batch import BlockBatch

WINDOW_BITS = 32
"""Each buffer has a window of 4 GiB of addresses, so that no overrun lands in another buffer."""

SHARED_WINDOW, LOCAL_WINDOW, PARAMETER_WINDOW = 0x7F00, 0x7F01, 0x7F02
"""Windows of generic addresses; buffers have the windows from 1 on."""


class AddressSpace(ABC):
    """Bytes with typed views; offsets are checked by `locate`."""

    shadow: SharedShadow | GlobalShadow | None = None

    def __init__(self, size_bytes: int):
        self.data = np.zeros(-(-size_bytes // 16) * 16, np.uint8)
        self.words = {width: self.data.view(f"u{width}") for width in (1, 2, 4, 8)}

    @abstractmethod
    def locate(
        self, batch: "BlockBatch", lanes: np.ndarray, addresses: np.ndarray, size: int, store: bool
    ) -> np.ndarray:
        """Offsets into `data` of accesses of `size` bytes; refuse those outside and misaligned."""

    def load(
        self,
        batch: "BlockBatch",
        lanes: np.ndarray,
        addresses: np.ndarray,
        width: int,
        count: int = 1,
    ) -> np.ndarray:
        """Load `count` words of `width` bytes for each lane, as `[lanes, count]`."""
        offsets = self.locate(batch, lanes, addresses, width * count, store=False)
        if self.shadow is not None:
            self.shadow.read(batch, lanes, offsets, width * count)
        return self.words[width][(offsets // width)[:, None] + np.arange(count)]

    def store(
        self, batch: "BlockBatch", lanes: np.ndarray, addresses: np.ndarray, values: np.ndarray
    ) -> None:
        """Store `values`, unsigned words as `[lanes, count]`."""
        width, count = values.itemsize, values.shape[1]
        offsets = self.locate(batch, lanes, addresses, width * count, store=True)
        index = (offsets // width)[:, None] + np.arange(count)
        words = self.words[width]
        if self.shadow is not None:
            same = (words[index] == values).all(axis=1)
            self.shadow.write(batch, lanes, offsets, width * count, same=same)
        words[index] = values
        if self.shadow is not None and (differs := words[index] != values).any():
            lane = int(lanes[np.argwhere(differs)[0][0]])
            detail = "two threads store different values to one address in one instruction"
            raise LaneFault(self.shadow.race, detail, lane)

    def atomic(
        self, batch: "BlockBatch", lanes: np.ndarray, addresses: np.ndarray, width: int
    ) -> np.ndarray:
        """Check and record atomic accesses; return indices into `words[width]`."""
        offsets = self.locate(batch, lanes, addresses, width, store=True)
        if self.shadow is not None:
            self.shadow.write(batch, lanes, offsets, width, ATOMIC)
        return offsets // width


def _refuse_misaligned(lanes: np.ndarray, addresses: np.ndarray, size: int) -> None:
    if (addresses & (size - 1)).any():
        row = np.flatnonzero(addresses & (size - 1))[0]
        detail = f"{size} bytes at {int(addresses[row]):#x}"
        raise LaneFault(FaultKind.MISALIGNED, detail, int(lanes[row]))


class PrivateMemory(AddressSpace):
    """Memory that each block (shared) or thread (local) has of its own.

    Parameters
    ----------
    space : str
        Its name in messages.
    owners : int
        Blocks or lanes.
    size_bytes, stride_bytes : int
        What an owner may access, and the distance to the next owner.
    """

    def __init__(self, space: str, owners: int, size_bytes: int, stride_bytes: int):
        super().__init__(owners * stride_bytes)
        self.space, self.size_bytes, self.stride_bytes = space, size_bytes, stride_bytes

    @override
    def locate(self, batch, lanes, addresses, size, store):
        if ((addresses < 0) | (addresses > self.size_bytes - size)).any():
            row = np.flatnonzero((addresses < 0) | (addresses > self.size_bytes - size))[0]
            detail = (
                f"{size} bytes at {self.space} address {int(addresses[row]):#x}, "
                f"of {self.size_bytes} bytes"
            )
            raise LaneFault(FaultKind.OUT_OF_BOUNDS, detail, int(lanes[row]))
        _refuse_misaligned(lanes, addresses, size)
        owners = batch.blocks[lanes] if self.space == "shared" else lanes
        return addresses + owners * self.stride_bytes


class ParameterMemory(AddressSpace):
    """Parameters of the launch, the same for all threads."""

    def __init__(self, data: bytes):
        super().__init__(len(data))
        self.size_bytes = len(data)
        self.data[: len(data)] = np.frombuffer(data, np.uint8)

    @override
    def locate(self, batch, lanes, addresses, size, store):
        if store:
            raise LaneFault(FaultKind.READ_ONLY, "parameters", int(lanes[0]))
        if ((addresses < 0) | (addresses > self.size_bytes - size)).any():
            detail = f"{size} bytes at parameter offset {int(addresses.max())}"
            raise LaneFault(FaultKind.OUT_OF_BOUNDS, detail, int(lanes[0]))
        _refuse_misaligned(lanes, addresses, size)
        return addresses


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """A range of device memory; `array` is the caller's, or None for a variable of the module."""

    name: str
    start: int
    size_bytes: int
    read_only: bool
    array: np.ndarray | None


def _is_same(one: np.ndarray | None, other: np.ndarray) -> bool:
    """Whether two arrays are the same memory, in different shapes."""
    return (
        one is not None
        and one.nbytes == other.nbytes > 0
        and one.flags.writeable == other.flags.writeable
        and one.ctypes.data == other.ctypes.data
    )


class DeviceMemory(AddressSpace):
    """All buffers of a launch. Arrays are copied in, and copied back by `write_back`."""

    def __init__(self, granule_bytes: int):
        super().__init__(0)
        self.buffers: list[DeviceBuffer] = []
        self._granule_bytes = granule_bytes
        self._contents: list[np.ndarray] = []
        self._size = 0

    def add(self, name: str, array: np.ndarray, read_only: bool, variable: bool = False) -> int:
        """Add a buffer before `freeze`; return its address. The same memory has one address."""
        if not array.flags.c_contiguous:
            raise PtxFault(FaultKind.ARGUMENTS, f"{name} is not contiguous")
        for index, buffer in enumerate(self.buffers):
            if buffer.array is array or _is_same(buffer.array, array):
                return index + 1 << WINDOW_BITS
            if buffer.array is not None and np.shares_memory(buffer.array, array):
                raise PtxFault(FaultKind.ARGUMENTS, f"{name} overlaps {buffer.name}")
        self._contents.append(array.reshape(-1).view(np.uint8))
        kept = None if variable else array
        self.buffers.append(DeviceBuffer(name, self._size, array.nbytes, read_only, kept))
        self._size += -(-array.nbytes // 256) * 256
        return len(self.buffers) << WINDOW_BITS

    def freeze(self) -> None:
        """Allocate the memory of all buffers."""
        AddressSpace.__init__(self, max(self._size, 16))
        for buffer, content in zip(self.buffers, self._contents, strict=True):
            self.data[buffer.start : buffer.start + buffer.size_bytes] = content
        self.shadow = GlobalShadow(len(self.data), self._granule_bytes)
        self._starts = np.array([0, *(buffer.start for buffer in self.buffers)])
        self._sizes = np.array([0, *(buffer.size_bytes for buffer in self.buffers)])
        self._read_only = np.array([False, *(buffer.read_only for buffer in self.buffers)])

    def write_back(self) -> None:
        """Copy the buffers to the caller's arrays."""
        for buffer in self.buffers:
            if buffer.array is not None and not buffer.read_only:
                content = self.data[buffer.start : buffer.start + buffer.size_bytes]
                buffer.array.reshape(-1).view(np.uint8)[:] = content

    @override
    def locate(self, batch, lanes, addresses, size, store):
        windows = addresses >> WINDOW_BITS
        valid = (windows >= 1) & (windows < len(self._starts))
        windows = np.where(valid, windows, 0)
        offsets = addresses & ((1 << WINDOW_BITS) - 1)
        valid &= offsets <= self._sizes[windows] - size
        if not valid.all():
            row = int(np.argmin(valid))
            raise LaneFault(
                FaultKind.OUT_OF_BOUNDS,
                self._describe(int(windows[row]), int(addresses[row]), size),
                int(lanes[row]),
            )
        _refuse_misaligned(lanes, addresses, size)
        if store and self._read_only[windows].any():
            row = int(np.argmax(self._read_only[windows]))
            name = self.buffers[int(windows[row]) - 1].name
            raise LaneFault(FaultKind.READ_ONLY, name, int(lanes[row]))
        return offsets + self._starts[windows]

    def _describe(self, window: int, address: int, size: int) -> str:
        if not window:
            return f"{size} bytes at {address:#x}, where no buffer is"
        buffer = self.buffers[window - 1]
        offset = address - (window << WINDOW_BITS)
        return f"{size} bytes at offset {offset} of {buffer.name}, of {buffer.size_bytes} bytes"
