"""`cp.async`: copies from global to shared memory, delivered as late as PTX allows.

The destination is marked from the moment of issue until the issuing thread has waited; every
access to it in between is a fault, whatever the order of warps.
"""

from dataclasses import dataclass

import numpy as np

from .batch import TYPES, BlockBatch, Step
from .builders import builds, unsupported
from .bulk_copies import build_bulk_copy
from .faults import FaultKind, LaneFault
from .shadow import PENDING
from .syntax import BitPattern, Not, PtxInstruction, VirtualRegister

U32 = TYPES["u32"]


@dataclass(slots=True)
class AsyncCopies:
    """Copies of 4-byte words under way, one row for each word, and the commits of each lane."""

    lanes: np.ndarray
    groups: np.ndarray
    offsets: np.ndarray
    words: np.ndarray
    committed: np.ndarray

    @classmethod
    def of(cls, batch: BlockBatch) -> "AsyncCopies":
        """The copies of a batch, made with the first instruction that asks for them."""
        if batch.copies is None:
            empty = np.zeros(0, np.int64)
            commits = np.zeros(batch.count, np.int64)
            batch.copies = cls(empty, empty, empty, np.zeros(0, np.uint32), commits)
        return batch.copies

    def add(self, lanes: np.ndarray, offsets: np.ndarray, words: np.ndarray) -> None:
        """Begin copies of `words`, as `[lanes, n]`, to `offsets` of shared memory."""
        count = words.shape[1]
        self.lanes = np.concatenate((self.lanes, np.repeat(lanes, count)))
        self.groups = np.concatenate((self.groups, np.repeat(self.committed[lanes], count)))
        targets = (offsets[:, None] // 4 + np.arange(count)).ravel()
        self.offsets = np.concatenate((self.offsets, targets))
        self.words = np.concatenate((self.words, words.ravel()))

    def deliver(self, batch: BlockBatch, lanes: np.ndarray, newest: int | None) -> None:
        """Complete the copies of `lanes`, except for each lane's `newest` groups."""
        waiting = np.zeros(batch.count, bool)
        waiting[lanes] = True
        done = waiting[self.lanes]
        if newest is not None:
            done &= self.groups < self.committed[self.lanes] - newest
        offsets, owners = self.offsets[done], self.lanes[done]
        batch.shared.words[4][offsets] = self.words[done]
        shadow = batch.shared_shadow
        granules = shadow.granules(offsets * 4, 4)
        shadow.writes[granules] = shadow.stamp(batch, owners)[:, None]
        keep = ~done
        self.lanes, self.groups = self.lanes[keep], self.groups[keep]
        self.offsets, self.words = self.offsets[keep], self.words[keep]


@builds("cp")
def build_copy(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`cp.async` with its groups."""
    parts = instruction.parts
    if parts[1:3] == ("async", "bulk"):
        return build_bulk_copy(batch, instruction)
    if parts[1] != "async" or "mbarrier" in parts:
        raise unsupported(instruction)
    copies = AsyncCopies.of(batch)
    if "commit_group" in parts:

        def commit(lanes) -> None:
            copies.committed[lanes] += 1

        return commit
    if "wait_all" in parts or "wait_group" in parts:
        count = instruction.operands[0] if "wait_group" in parts else None
        if count is not None and not isinstance(count, BitPattern):
            raise unsupported(instruction)
        newest = count.bits if count is not None else None
        return lambda lanes: copies.deliver(batch, batch.ids(lanes), newest)
    target, source, size, *rest = instruction.operands
    if not isinstance(size, BitPattern) or size.bits not in (4, 8, 16):
        raise unsupported(instruction)
    if "cg" in parts and size.bits != 16:
        raise unsupported(instruction)
    targets, sources = batch.addresses(target), batch.addresses(source)
    full_bytes = size.bits
    if "L2::cache_hint" in parts:
        rest.pop()
    sizes, ignored = None, None
    if rest and isinstance(rest[0], Not | VirtualRegister) and is_predicate(rest[0]):
        ignored = batch.predicate(rest[0])
    elif rest:
        sizes = batch.source(rest[0], U32)

    def run(lanes) -> None:
        ids = batch.ids(lanes)
        words = np.zeros((len(ids), full_bytes // 4), np.uint32)
        addresses = sources(lanes)
        wanted = np.full(len(ids), full_bytes) if sizes is None else sizes[lanes].astype(np.int64)
        if ignored is not None:
            wanted = np.where(ignored(lanes), 0, full_bytes)
        if (wanted > full_bytes).any():
            row = int(np.argmax(wanted > full_bytes))
            detail = f"{wanted[row]} bytes of a copy of {full_bytes} bytes"
            raise LaneFault(FaultKind.OUT_OF_BOUNDS, detail, int(ids[row]))
        for count in np.unique(wanted):
            if count:
                here = wanted == count
                words[here] = _read(batch, ids[here], addresses[here], int(count), full_bytes)
        offsets = batch.shared.locate(batch, ids, targets(lanes), full_bytes, True)
        batch.shared_shadow.write(batch, ids, offsets, full_bytes, PENDING)
        copies.add(ids, offsets, words)

    return run


def is_predicate(operand: Not | VirtualRegister) -> bool:
    """Tell `ignore-src`, a predicate, from the number of bytes to copy."""
    return isinstance(operand, Not) or operand.bits == 0


def _read(batch: BlockBatch, lanes, addresses, count: int, full_bytes: int) -> np.ndarray:
    memory = batch.launch.memory
    if count == full_bytes:
        return memory.load(batch, lanes, addresses, 4, full_bytes // 4)
    octets = np.zeros((len(lanes), full_bytes), np.uint8)
    for position in range(count):
        octets[:, position] = memory.load(batch, lanes, addresses + position, 1)[:, 0]
    return octets.view(np.uint32)
