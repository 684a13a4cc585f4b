"""Last writers and readers of each granule of a memory: races and uninitialised reads.

A write leaves a stamp of 64 bits: block + 1, thread, epoch of its warp, and marks for atomics and
for asynchronous copies under way. Bulk copies write as a thread beyond the last one of the block.
Threads of a warp are told apart, since only `bar.warp.sync` and barriers order their accesses.
Reads are kept by warp (`SharedShadow`) or as the last one (`GlobalShadow`), so a write after a read
of the same warp is not seen as a race.
"""

from typing import TYPE_CHECKING

import numpy as np

from .faults import FaultKind, LaneFault

if TYPE_CHECKING:
    from .batch import BlockBatch

EPOCH = np.uint64(0xFFFFFFFF)
THREAD_SHIFT, BLOCK_SHIFT = np.uint64(32), np.uint64(43)
THREAD = np.uint64(0x7FF)
PENDING = np.uint64(1 << 63)
ATOMIC = np.uint64(1 << 62)
PLAIN = np.uint64(0)
SEVERAL_BLOCKS = np.uint64(1 << 61)
BLOCK = np.uint64((1 << 61) - (1 << 43))


def _thread_of(stamp: int) -> int:
    return stamp >> int(THREAD_SHIFT) & int(THREAD)


def _block_of(stamp: int) -> int:
    return ((stamp & int(BLOCK)) >> int(BLOCK_SHIFT)) - 1


class Shadow:
    """Stamps of the writes of one memory.

    Parameters
    ----------
    size_bytes : int
        Size of the memory.
    granule_bytes : int
        Smallest access of the kernel; a power of two.
    """

    race: FaultKind

    def __init__(self, size_bytes: int, granule_bytes: int):
        self.granule_bytes = granule_bytes
        self.writes = np.zeros(-(-size_bytes // granule_bytes), np.uint64)

    def granules(self, offsets: np.ndarray, size_bytes: int) -> np.ndarray:
        """Granules of accesses of `size_bytes`, as `[lanes, granules]`."""
        first = offsets // self.granule_bytes
        return first[:, None] + np.arange(max(size_bytes // self.granule_bytes, 1))

    def ordered(self, batch: "BlockBatch", lanes: np.ndarray, stamps: np.ndarray) -> np.ndarray:
        """Tell which `stamps`, `[lanes, n]`, are ordered before what their lanes do now."""
        threads = (stamps >> THREAD_SHIFT) & THREAD
        warps = (threads >> np.uint64(5)).astype(np.intp)
        own_block = (stamps & BLOCK) == (batch.stamp_base[lanes] & BLOCK)[:, None]
        own_thread = threads == (batch.threads[lanes].astype(np.uint64))[:, None]
        # Warps of other blocks may have indices that this block lacks: they are not ordered anyway.
        known = batch.clocks.known[
            batch.warps[lanes][:, None], np.minimum(warps, batch.clocks.known.shape[1] - 1)
        ]
        synchronised = known >= (stamps & EPOCH)
        before = own_block & (own_thread | synchronised) & (stamps < PENDING)
        if not own_block.all() and len(batch.launch.releases.seen) > 1:
            others = ((stamps & BLOCK) >> BLOCK_SHIFT).astype(np.int64) - 1
            mine = batch.block_ids[batch.blocks[lanes]]
            before |= ~own_block & batch.launch.releases.ordered(mine, others)
        return (stamps == 0) | before

    def refuse(
        self, batch: "BlockBatch", lanes: np.ndarray, bad: np.ndarray, stamps, what: str
    ) -> None:
        """Raise the fault of the first lane whose access conflicts with a stamp."""
        row, column = np.argwhere(bad)[0]
        stamp, lane = int(stamps[row, column]), int(lanes[row])
        thread, block = _thread_of(stamp), _block_of(stamp)
        if stamp & int(PENDING):
            detail = f"{what} what an asynchronous copy of thread {thread} still writes"
            raise LaneFault(FaultKind.PENDING_COPY, detail, lane)
        own = block == _block_of(int(batch.stamp_base[lane]))
        if own and thread == 32 * batch.warps_per_block:
            detail = f"{what} what a bulk copy wrote, without a wait for its mbarrier"
            raise LaneFault(FaultKind.PENDING_COPY, detail, lane)
        where = "" if own else f" of block {block}"
        detail = f"{what} what thread {thread}{where} wrote, with no barrier in between"
        raise LaneFault(self.race, detail, lane)

    def stamp(self, batch: "BlockBatch", lanes: np.ndarray) -> np.ndarray:
        """Stamps of what the lanes write now."""
        return batch.stamp_base[lanes] | batch.clocks.epochs[batch.warps[lanes]]

    def check_written(
        self, batch: "BlockBatch", lanes: np.ndarray, granules, what: str
    ) -> np.ndarray:
        """Refuse an access to what others write unordered; return the stamps found."""
        stamps = self.writes[granules]
        bad = ~self.ordered(batch, lanes, stamps)
        if bad.any():
            self.refuse(batch, lanes, bad, stamps, what)
        return stamps


class SharedShadow(Shadow):
    """Shadow of the shared memory of all blocks in a batch; precise about readers."""

    race = FaultKind.SHARED_RACE

    def __init__(self, size_bytes: int, granule_bytes: int, columns: int):
        super().__init__(size_bytes, granule_bytes)
        self.readers = np.zeros((len(self.writes), columns), np.uint32)

    def read(
        self, batch: "BlockBatch", lanes: np.ndarray, offsets: np.ndarray, size_bytes: int
    ) -> None:
        """Check and record reads of `size_bytes` by each lane."""
        granules = self.granules(offsets, size_bytes)
        stamps = self.writes[granules]
        if not stamps.all():
            row = np.argwhere(stamps == 0)[0][0]
            address = int(offsets[row]) % batch.shared_stride
            detail = f"{size_bytes} bytes at shared address {address:#x} were never written"
            raise LaneFault(FaultKind.UNINITIALISED_SHARED, detail, int(lanes[row]))
        if (stamps & EPOCH).max() > batch.clocks.floor:
            bad = ~self.ordered(batch, lanes, stamps)
            if bad.any():
                self.refuse(batch, lanes, bad, stamps, "reads")
        warps = batch.warps[lanes]
        self.readers[granules, batch.own_warps[lanes][:, None]] = batch.clocks.epochs[warps][
            :, None
        ]

    def refuse_unfenced(
        self,
        batch: "BlockBatch",
        lanes: np.ndarray,
        offsets: np.ndarray,
        size_bytes: int,
        what: str,
    ) -> None:
        """Refuse the asynchronous proxy where a thread wrote and no proxy fence followed."""
        stamps = self.writes[self.granules(offsets, size_bytes)]
        threads = ((stamps >> THREAD_SHIFT) & THREAD).astype(np.intp)
        threads_per_block = 32 * batch.warps_per_block
        generic = (stamps != 0) & (threads < threads_per_block)
        threads = np.minimum(threads, threads_per_block - 1)
        fenced = batch.clocks.proxied[batch.warps[lanes][:, None], threads]
        bad = generic & (fenced < (stamps & EPOCH))
        if bad.any():
            row, column = np.argwhere(bad)[0]
            detail = (
                f"the asynchronous proxy {what} what thread {threads[row, column]} wrote, "
                "with no `fence.proxy.async` in between"
            )
            raise LaneFault(FaultKind.MISSING_FENCE, detail, int(lanes[row]))

    def write(
        self,
        batch: "BlockBatch",
        lanes: np.ndarray,
        offsets: np.ndarray,
        size_bytes: int,
        mark: np.uint64 = PLAIN,
        same: np.ndarray | None = None,
    ) -> None:
        """Check and record writes; `same` tells which lanes write what is there already.

        With `mark` PENDING the epoch is the last one of all, so that no reader is ordered after it.
        """
        granules = self.granules(offsets, size_bytes)
        stamps = self.writes[granules]
        floor = batch.clocks.floor
        if (stamps & EPOCH).max() > floor:
            bad = ~self.ordered(batch, lanes, stamps)
            if mark == ATOMIC:
                bad &= (stamps & ATOMIC) == 0
            if same is not None:
                bad &= ~same[:, None] | (stamps >= PENDING)
            if bad.any():
                self.refuse(batch, lanes, bad, stamps, "overwrites")
        readers = self.readers[granules]
        if readers.max() > floor:
            late = readers > batch.clocks.known[batch.warps[lanes]][:, None, :]
            np.put_along_axis(late, batch.own_warps[lanes][:, None, None], False, axis=2)
            if same is not None:
                late &= ~same[:, None, None]
            if late.any():
                row, _, warp = np.argwhere(late)[0]
                if warp == batch.warps_per_block:
                    detail = "overwrites what a bulk copy to global memory still reads"
                    raise LaneFault(FaultKind.PENDING_COPY, detail, int(lanes[row]))
                detail = f"overwrites what warp {warp} read, with no barrier in between"
                raise LaneFault(self.race, detail, int(lanes[row]))
        stamp = self.stamp(batch, lanes) | mark
        if mark == PENDING:
            stamp |= EPOCH
        self.writes[granules] = stamp[:, None]


class GlobalShadow(Shadow):
    """Shadow of the buffers of a launch; knows the last reader of each granule only."""

    race = FaultKind.GLOBAL_RACE

    def __init__(self, size_bytes: int, granule_bytes: int):
        super().__init__(size_bytes, granule_bytes)
        self.reads = np.zeros(len(self.writes), np.uint64)

    def read(
        self, batch: "BlockBatch", lanes: np.ndarray, offsets: np.ndarray, size_bytes: int
    ) -> None:
        """Check and record reads of `size_bytes` by each lane."""
        granules = self.granules(offsets, size_bytes)
        if self.writes[granules].any():
            self.check_written(batch, lanes, granules, "reads")
        stamp = self.stamp(batch, lanes)[:, None]
        before = self.reads[granules]
        others = (before != 0) & ((before & BLOCK) != (stamp & BLOCK))
        self.reads[granules] = stamp | np.where(others, SEVERAL_BLOCKS, before & SEVERAL_BLOCKS)

    def write(
        self,
        batch: "BlockBatch",
        lanes: np.ndarray,
        offsets: np.ndarray,
        size_bytes: int,
        mark: np.uint64 = PLAIN,
        same: np.ndarray | None = None,
    ) -> None:
        """Check and record writes; `same` tells which lanes write what is there already."""
        granules = self.granules(offsets, size_bytes)
        stamps, reads = self.writes[granules], self.reads[granules]
        if stamps.any() or reads.any():
            bad = ~self.ordered(batch, lanes, stamps)
            if mark == ATOMIC:
                bad &= (stamps & ATOMIC) == 0
            changes = True if same is None else ~same[:, None]
            bad &= changes
            if bad.any():
                self.refuse(batch, lanes, bad, stamps, "overwrites")
            several = (reads & SEVERAL_BLOCKS) != 0
            late = (several | ~self.ordered(batch, lanes, reads & ~SEVERAL_BLOCKS)) & changes
            warps = (((reads >> THREAD_SHIFT) & THREAD) >> np.uint64(5)).astype(np.intp)
            own_block = (reads & BLOCK) == (batch.stamp_base[lanes] & BLOCK)[:, None]
            late &= ~(own_block & ~several & (warps == batch.own_warps[lanes][:, None]))
            if late.any():
                row, column = np.argwhere(late)[0]
                reader = int(reads[row, column])
                who = f"thread {_thread_of(reader)} of block {_block_of(reader)}"
                detail = f"overwrites what {who} read, with no barrier in between"
                raise LaneFault(self.race, detail, int(lanes[row]))
        self.writes[granules] = (self.stamp(batch, lanes) | mark)[:, None]
