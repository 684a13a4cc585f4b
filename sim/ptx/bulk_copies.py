"""`cp.async.bulk`: copies of whole boxes (TMA) or ranges by the asynchronous proxy.

A copy to shared memory reads its source at once; its mbarrier delivers it late. A copy to global
memory is done at once, but marked: it counts as reading until the issuing thread has waited for its
group, and as writing until that was more than a wait for reads, or until the thread exits.
"""

from dataclasses import dataclass

import numpy as np

from ...tensor_map import TensorMap
from .batch import TYPES, BlockBatch, Step
from .builders import unsupported
from .faults import FaultKind, LaneFault
from .mbarriers import BulkWrite, Mbarriers, shared_addresses
from .memory import PARAMETER_WINDOW, WINDOW_BITS
from .shadow import EPOCH, PENDING
from .syntax import BitPattern, MemoryOperand, PtxInstruction, RegisterVector

PIECE_BYTES = 16
ALIGNED_BYTES = 128
"""Alignment of a box in shared memory."""

QUALIFIERS = {
    *("cp", "async", "bulk", "tensor", "tile", "global", "shared::cluster", "shared::cta"),
    *("mbarrier::complete_tx::bytes", "bulk_group", "commit_group", "wait_group", "read"),
    *("prefetch", "L2", "L2::cache_hint", "1d", "2d", "3d", "4d", "5d"),
}


@dataclass(frozen=True, slots=True)
class BoxRows:
    """Ranges of bytes in global memory, one for each row of a box that lies inside the tensor.

    Attributes
    ----------
    addresses : int[rows]
    indices : int[rows]
        Numbers of the rows within the box.
    start_bytes, size_bytes : int
        The part of each row of the box that lies inside.
    box_rows, row_bytes : int
        Extents of the whole box.
    """

    addresses: np.ndarray
    indices: np.ndarray
    start_bytes: int
    size_bytes: int
    box_rows: int
    row_bytes: int


@dataclass(slots=True)
class BulkStore:
    """A bulk copy to global memory under way: the granules that it reads and writes."""

    lane: int
    group: int
    granules: np.ndarray
    written: np.ndarray
    is_read: bool = False


class BulkStores:
    """The bulk copies to global memory of a batch of blocks, in groups of each lane."""

    def __init__(self, batch: BlockBatch):
        self.batch = batch
        self.committed = np.zeros(batch.count, np.int64)
        self.under_way: list[BulkStore] = []

    @classmethod
    def of(cls, batch: BlockBatch) -> "BulkStores":
        """The copies of a batch, made with the first instruction that asks for them."""
        if batch.bulk_stores is None:
            batch.bulk_stores = cls(batch)
        return batch.bulk_stores

    def wait(self, lanes: np.ndarray, newest: int, read: bool) -> None:
        """Complete copies of `lanes`, or their reads, except for the `newest` groups of each."""
        batch, readers = self.batch, self.batch.shared_shadow.readers
        waiting = set(lanes.tolist())
        kept = []
        for store in self.under_way:
            lane = store.lane
            if lane not in waiting or store.group >= self.committed[lane] - newest:
                kept.append(store)
                continue
            if not store.is_read:
                store.is_read = True
                readers[store.granules, -1] = 0
                readers[store.granules, batch.own_warps[lane]] = batch.clocks.epochs[
                    batch.warps[lane]
                ]
            if read:
                kept.append(store)
            else:
                self._write(store)
        for store in kept:
            if not store.is_read:
                readers[store.granules, -1] = EPOCH
        self.under_way = kept

    def _write(self, store: BulkStore) -> None:
        shadow = self.batch.launch.memory.shadow
        assert shadow is not None
        shadow.writes[store.written] = shadow.stamp(self.batch, np.full(1, store.lane))

    def leave(self, lanes: np.ndarray) -> None:
        """Complete the copies of `lanes`, which exit; refuse those that still read."""
        leaving = set(lanes.tolist())
        for store in self.under_way:
            if store.lane in leaving:
                if not store.is_read:
                    detail = "exits while its bulk copy still reads shared memory"
                    raise LaneFault(FaultKind.PENDING_COPY, detail, store.lane)
                self._write(store)
        self.under_way = [store for store in self.under_way if store.lane not in leaving]


def find_tensor_map(batch: BlockBatch, lane: int, address: int) -> tuple[TensorMap, int]:
    """The tensor map at a generic address, and the address of its tensor."""
    lanes, addresses = np.full(1, lane), np.full(1, address)
    if address % 64:
        raise LaneFault(FaultKind.MISALIGNED, f"a tensor map at {address:#x}, not 64 bytes", lane)
    if address >> WINDOW_BITS == PARAMETER_WINDOW:
        addresses -= PARAMETER_WINDOW << WINDOW_BITS
        words = batch.parameters.load(batch, lanes, addresses, 8, 2)[0]
    else:
        words = batch.launch.memory.load(batch, lanes, addresses, 8, 2)[0]
    found = batch.launch.tensor_maps.get((int(words[0]), int(words[1])))
    if found is None:
        raise LaneFault(FaultKind.TENSOR_MAP, f"no tensor map is at {address:#x}", lane)
    if found.interleave_bytes or found.swizzle_bytes not in (0, found.box[0] * found.element_bytes):
        detail = "an interleaved tensor, or an inner box narrower than its swizzle"
        raise LaneFault(FaultKind.UNSUPPORTED, detail, lane)
    return found, int(words[1])


def rows_of(tensor: TensorMap, start: int, coordinates: list[int]) -> BoxRows:
    """The rows of the box at `coordinates` that lie inside the tensor at `start`."""
    extents, width = tensor.box_extents, tensor.element_bytes
    addresses, inside = np.full(1, start, np.int64), np.ones(1, bool)
    for dimension in range(1, len(extents)):
        steps = np.arange(extents[dimension]) * tensor.element_strides[dimension]
        index = coordinates[dimension] + steps
        stride = tensor.strides_bytes[dimension - 1]
        addresses = (index[:, None] * stride + addresses).ravel()
        inside = (((index >= 0) & (index < tensor.dims[dimension]))[:, None] & inside).ravel()
    first = max(0, -coordinates[0])
    last = max(first, min(extents[0], tensor.dims[0] - coordinates[0]))
    indices = np.flatnonzero(inside & (last > first))
    return BoxRows(
        addresses[indices] + (coordinates[0] + first) * width,
        indices,
        first * width,
        (last - first) * width,
        len(inside),
        extents[0] * width,
    )


def locate_rows(batch: BlockBatch, lane: int, rows: BoxRows, width: int, store: bool) -> np.ndarray:
    """Offsets of rows in global memory, whose first and last elements have to be in a buffer."""
    lanes, memory = np.full(len(rows.addresses), lane), batch.launch.memory
    memory.locate(batch, lanes, rows.addresses + rows.size_bytes - width, width, store)
    return memory.locate(batch, lanes, rows.addresses, width, store)


def locate_pieces(batch: BlockBatch, lane: int, address: int, size: int, swizzle: int, store: bool):
    """Offsets in shared memory of the 16-byte pieces of a box, in the order of the box."""
    at = address + np.arange(0, size, PIECE_BYTES)
    at ^= (at >> 7 & max(swizzle // PIECE_BYTES - 1, 0)) << 4
    return batch.shared.locate(batch, np.full(len(at), lane), at, PIECE_BYTES, store)


class BulkCopyStep:
    """One `cp.async.bulk` between global and shared memory, compiled."""

    def __init__(self, batch: BlockBatch, instruction: PtxInstruction):
        self.batch, parts, operands = batch, instruction.parts, list(instruction.operands)
        self.is_load = "mbarrier::complete_tx::bytes" in parts
        if self.is_load == ("bulk_group" in parts):
            raise unsupported(instruction)
        self.is_tensor = "tensor" in parts
        if "L2::cache_hint" in parts:
            operands.pop()
        if self.is_load:
            self.mbarrier = shared_addresses(batch, operands.pop())
        target, source, *size = operands
        outside, inside = (source, target) if self.is_load else (target, source)
        self.inside = shared_addresses(batch, inside)
        self.outside = batch.addresses(outside)
        self.coordinates, self.size = [], None
        if not self.is_tensor:
            self.size = batch.source(size[0], TYPES["u32"])
            return
        if not isinstance(outside, MemoryOperand) or size:
            raise unsupported(instruction)
        vector = outside.extra[0]
        elements = vector.elements if isinstance(vector, RegisterVector) else (vector,)
        self.coordinates = [batch.source(element, TYPES["s32"]) for element in elements]
        if f"{len(elements)}d" not in parts:
            raise unsupported(instruction)

    def _rows(self, lane: int, index: np.ndarray) -> tuple[BoxRows, int, int, TensorMap | None]:
        """The rows of a lane's copy, the width of their elements, the swizzle and the map."""
        batch, address = self.batch, int(self.outside(index)[0])
        if self.size is not None:
            size = int(self.size[lane])
            if size % PIECE_BYTES or not size or address % PIECE_BYTES:
                detail = f"a bulk copy of {size} bytes at {address:#x}; expected multiples of 16"
                raise LaneFault(FaultKind.MISALIGNED, detail, lane)
            return BoxRows(np.full(1, address), np.zeros(1, int), 0, size, 1, size), 16, 0, None
        tensor, start = find_tensor_map(batch, lane, address)
        if len(tensor.dims) != len(self.coordinates):
            detail = f"{len(self.coordinates)} coordinates for a tensor of rank {len(tensor.dims)}"
            raise LaneFault(FaultKind.TENSOR_MAP, detail, lane)
        place = [int(row[lane]) for row in self.coordinates]
        return rows_of(tensor, start, place), tensor.element_bytes, tensor.swizzle_bytes, tensor

    def __call__(self, lanes) -> None:
        for lane in self.batch.ids(lanes).tolist():
            self._copy(lane, np.full(1, lane))

    def _copy(self, lane: int, index: np.ndarray) -> None:
        batch, address = self.batch, int(self.inside(index)[0])
        rows, width, swizzle, tensor = self._rows(lane, index)
        unit = ALIGNED_BYTES if tensor else PIECE_BYTES
        if address % unit:
            detail = f"a bulk copy at shared address {address:#x}; expected a multiple of {unit}"
            raise LaneFault(FaultKind.MISALIGNED, detail, lane)
        size = rows.box_rows * rows.row_bytes
        pieces = locate_pieces(batch, lane, address, size, swizzle, self.is_load)
        offsets = locate_rows(batch, lane, rows, width, not self.is_load)
        columns = slice(rows.start_bytes, rows.start_bytes + rows.size_bytes)
        if self.is_load:
            box = np.zeros((rows.box_rows, rows.row_bytes), np.uint8)
            if tensor is not None and tensor.fills_with_nan:
                dtype = TYPES["bf16"] if tensor.dtype == "bfloat16" else np.dtype(f"f{width}")
                box.view(dtype)[...] = np.nan
            box[rows.indices, columns] = self._read(lane, offsets, rows.size_bytes)
            self._load(lane, index, pieces, box.reshape(-1, PIECE_BYTES))
        else:
            content = batch.shared.data.reshape(-1, PIECE_BYTES)[pieces // PIECE_BYTES]
            box = content.reshape(rows.box_rows, rows.row_bytes)
            self._store(lane, pieces, offsets, box[rows.indices, columns])

    def _read(self, lane: int, offsets: np.ndarray, size: int) -> np.ndarray:
        memory = self.batch.launch.memory
        if memory.shadow is not None and len(offsets):
            memory.shadow.read(self.batch, np.full(len(offsets), lane), offsets, size)
        return memory.data[offsets[:, None] + np.arange(size)]

    def _load(self, lane: int, index: np.ndarray, pieces, content: np.ndarray) -> None:
        batch, shadow, mbarriers = self.batch, self.batch.shared_shadow, Mbarriers.of(self.batch)
        barrier, _ = next(mbarriers.find(index, self.mbarrier(index)))
        if barrier.offset in mbarriers.unannounced:
            detail = f"no fence or barrier follows `mbarrier.init` of {barrier.name}"
            raise LaneFault(FaultKind.MBARRIER_STATE, detail, lane)
        lanes = np.full(len(pieces), lane)
        shadow.refuse_unfenced(batch, lanes, pieces, PIECE_BYTES, "overwrites")
        shadow.write(batch, lanes, pieces, PIECE_BYTES, PENDING)
        barrier.copies.append(BulkWrite(pieces, content))
        mbarriers.settle(barrier, lane)

    def _store(self, lane: int, pieces, offsets: np.ndarray, content: np.ndarray) -> None:
        batch, shadow, stores = self.batch, self.batch.shared_shadow, BulkStores.of(self.batch)
        lanes = np.full(len(pieces), lane)
        shadow.read(batch, lanes, pieces, PIECE_BYTES)
        shadow.refuse_unfenced(batch, lanes, pieces, PIECE_BYTES, "reads")
        granules = shadow.granules(pieces, PIECE_BYTES)
        shadow.readers[granules, -1] = EPOCH
        memory, group = batch.launch.memory, int(stores.committed[lane])
        assert memory.shadow is not None
        width = content.shape[1]
        index, lanes = offsets[:, None] + np.arange(width), np.full(len(offsets), lane)
        same = (memory.data[index] == content).all(axis=1)
        if len(offsets):
            memory.shadow.write(batch, lanes, offsets, width, PENDING, same)
        memory.data[index] = content
        written = memory.shadow.granules(offsets, width)
        stores.under_way.append(BulkStore(lane, group, granules, written))


def build_bulk_copy(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`cp.async.bulk`, also of tensors, with the groups of copies to global memory."""
    parts = instruction.parts
    if not QUALIFIERS.issuperset(parts):
        raise unsupported(instruction)
    if "prefetch" in parts:
        return lambda lanes: None
    stores = BulkStores.of(batch)
    if "commit_group" in parts:

        def commit(lanes) -> None:
            stores.committed[lanes] += 1

        return commit
    if "wait_group" in parts:
        count = instruction.operands[0]
        if not isinstance(count, BitPattern):
            raise unsupported(instruction)
        newest, read = count.bits, "read" in parts
        return lambda lanes: stores.wait(batch.ids(lanes), newest, read)
    return BulkCopyStep(batch, instruction)
