"""`mbarrier`: barriers in shared memory that count arrivals and the bytes of bulk copies.

A phase ends when no arrival and no byte is missing. A bulk copy is delivered as late as PTX allows:
when a thread waits for a phase that lacks nothing else. The first test of a phase that is not over
fails at once, as the time limit of `try_wait` permits; the next one parks the thread until the
phase can end, and returns without success only when no other thread can run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from .batch import RUNNING, TYPES, WAITING, BlockBatch, Step
from .builders import builds, unsupported
from .faults import FaultKind, LaneFault
from .memory import SHARED_WINDOW, WINDOW_BITS
from .shadow import BLOCK, THREAD_SHIFT
from .syntax import MemoryOperand, PtxInstruction, VirtualRegister

MAX_COUNT = (1 << 20) - 1
MAX_TIMEOUTS = 3
"""Rounds in which all waits may return without success before they count as a deadlock."""


@dataclass(slots=True)
class BulkWrite:
    """A bulk copy to shared memory under way.

    Attributes
    ----------
    offsets : int[n]
        Where its pieces of 16 bytes go.
    content : uint8[n, 16]
    """

    offsets: np.ndarray
    content: np.ndarray


@dataclass(slots=True)
class Mbarrier:
    """One mbarrier.

    Attributes
    ----------
    count, pending : int
        Arrivals of a phase, and those that the current one lacks.
    missing_bytes : int
        Bytes that the current phase expects; those of `copies` included.
    stamps : uint64[granules]
        What its initialisation left in the shadow of shared memory.
    mail, published : uint32[columns]
        Clocks of those who arrived, up to now and until the last phase ended.
    seen : int[threads]
        The last phase whose end each thread of the block has seen.
    """

    block: int
    address: int
    offset: int
    count: int
    pending: int
    initialiser: int
    stamps: np.ndarray
    mail: np.ndarray
    published: np.ndarray
    seen: np.ndarray
    phase: int = 0
    missing_bytes: int = 0
    copies: list[BulkWrite] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"the mbarrier at shared address {self.address:#x}"

    @property
    def copied_bytes(self) -> int:
        """Bytes of the copies under way."""
        return sum(copy.content.size for copy in self.copies)

    @property
    def is_ready(self) -> bool:
        """Whether delivering its copies ends the phase."""
        return self.pending == 0 and self.missing_bytes == self.copied_bytes


class Mbarriers:
    """The mbarriers of a batch of blocks.

    Attributes
    ----------
    at : dict[int, Mbarrier]
        By offset in shared memory.
    waits_at, tried : int[lanes]
        The one at which each lane is parked, and the one that it tested last, without success.
    unannounced : set[int]
        Those with neither a fence nor a barrier after their initialisation.
    timeouts : int
        Rounds of waits that returned since anything happened.
    """

    def __init__(self, batch: BlockBatch):
        self.batch = batch
        self.at: dict[int, Mbarrier] = {}
        self.waits_at = np.full(batch.count, -1)
        self.tried = np.full(batch.count, -1)
        self.unannounced: set[int] = set()
        self.timeouts = 0

    @classmethod
    def of(cls, batch: BlockBatch) -> "Mbarriers":
        """The mbarriers of a batch, made with the first instruction that asks for them."""
        if batch.mbarriers is None:
            batch.mbarriers = cls(batch)
        return batch.mbarriers

    def find(self, lanes, addresses) -> Iterator[tuple[Mbarrier, np.ndarray]]:
        """The mbarriers at `addresses`, each with the indices of the lanes that use it."""
        batch, shadow = self.batch, self.batch.shared_shadow
        offsets = batch.shared.locate(batch, lanes, addresses, 8, store=False)
        for offset in np.unique(offsets):
            members = np.flatnonzero(offsets == offset)
            ids = lanes[members]
            barrier = self.at.get(int(offset))
            granules = shadow.granules(offsets[members], 8)
            problem = None
            if barrier is None:
                problem = f"no mbarrier is at shared address {int(addresses[members[0]]):#x}"
            elif (shadow.writes[granules[0]] != barrier.stamps).any():
                problem = f"{barrier.name} was overwritten"
            elif not (known := shadow.ordered(batch, ids, shadow.writes[granules])).all():
                ids = ids[~known.all(axis=1)]
                problem = f"no barrier orders this use after `mbarrier.init` of {barrier.name}"
            if problem or barrier is None:
                raise LaneFault(FaultKind.MBARRIER_STATE, problem or "", int(ids[0]))
            warps = batch.warps[ids]
            shadow.readers[granules, batch.own_warps[ids][:, None]] = batch.clocks.epochs[warps][
                :, None
            ]
            yield barrier, members

    def initialise(self, lanes: np.ndarray, addresses: np.ndarray, counts: np.ndarray) -> None:
        """`mbarrier.init`: `counts` arrivals in each phase."""
        batch, shadow = self.batch, self.batch.shared_shadow
        offsets = batch.shared.locate(batch, lanes, addresses, 8, store=True)
        shadow.write(batch, lanes, offsets, 8)
        batch.clocks.epochs[np.unique(batch.warps[lanes])] += 1  # later stores leave other stamps
        for lane, address, offset, count in zip(
            lanes.tolist(), addresses.tolist(), offsets.tolist(), counts.tolist(), strict=True
        ):
            if not 0 < count <= MAX_COUNT:
                detail = f"`mbarrier.init` for {count} arrivals; expected 1 to {MAX_COUNT}"
                raise LaneFault(FaultKind.MBARRIER_COUNT, detail, lane)
            if offset in self.at:
                detail = f"{self.at[offset].name} is initialised twice, without `mbarrier.inval`"
                raise LaneFault(FaultKind.MBARRIER_STATE, detail, lane)
            stamps = shadow.writes[shadow.granules(np.array([offset]), 8)[0]]
            mail = np.zeros(batch.clocks.rows.shape[1], np.uint32)
            seen = np.full(32 * batch.warps_per_block, -1)
            self.unannounced.add(offset)
            self.at[offset] = Mbarrier(
                int(batch.blocks[lane]), address, offset, count, count, lane, stamps, mail, mail,
                seen,
            )  # fmt: skip

    def invalidate(self, lanes: np.ndarray, addresses: np.ndarray) -> None:
        """`mbarrier.inval`: its memory may serve another purpose."""
        batch = self.batch
        for barrier, members in self.find(lanes, addresses):
            if barrier.copies or (self.waits_at == barrier.offset).any():
                detail = f"`mbarrier.inval` of {barrier.name}, which is still in use"
                raise LaneFault(FaultKind.MBARRIER_STATE, detail, int(lanes[members[0]]))
            offsets = np.full(1, barrier.offset)
            batch.shared_shadow.write(batch, lanes[members[:1]], offsets, 8)
            del self.at[barrier.offset]
            self.unannounced.discard(barrier.offset)

    def announce(self, lanes: np.ndarray) -> None:
        """After a fence or a barrier of `lanes`, bulk copies may use what they have initialised."""
        if self.unannounced:
            passed = set(lanes.tolist())
            self.unannounced -= {at for at in self.unannounced if self.at[at].initialiser in passed}

    def arrive(
        self,
        lanes: np.ndarray,
        addresses: np.ndarray,
        counts: np.ndarray,
        releases: bool,
    ) -> np.ndarray:
        """Arrive `counts` times; return the phases."""
        batch = self.batch
        phases = np.zeros(len(lanes), np.uint64)
        for barrier, members in self.find(lanes, addresses):
            ids, total = lanes[members], int(counts[members].sum())
            phases[members] = barrier.phase
            if total > barrier.pending or (counts[members] < 1).any():
                detail = f"{total} arrivals at {barrier.name}, which lacks {barrier.pending}"
                raise LaneFault(FaultKind.MBARRIER_COUNT, detail, int(ids[0]))
            if releases:
                rows = batch.clocks.publish(np.unique(batch.warps[ids]))
                barrier.mail = np.maximum(barrier.mail, rows.max(axis=0))
            barrier.pending -= total
            self.settle(barrier, int(ids[0]))
        return phases

    def expect(self, lanes: np.ndarray, addresses: np.ndarray, sizes: np.ndarray) -> None:
        """Let the current phases expect more bytes, or fewer where `sizes` are negative."""
        for barrier, members in self.find(lanes, addresses):
            barrier.missing_bytes += int(sizes[members].sum())
            if abs(barrier.missing_bytes) > MAX_COUNT:
                detail = f"{barrier.name} expects {barrier.missing_bytes} bytes, of {MAX_COUNT}"
                raise LaneFault(FaultKind.MBARRIER_BYTES, detail, int(lanes[members[0]]))
            self.settle(barrier, int(lanes[members[0]]))

    def settle(self, barrier: Mbarrier, lane: int) -> None:
        """End the phase if nothing is missing; wake the waiters if it can end."""
        self.timeouts = 0
        if barrier.pending == 0 and barrier.copied_bytes > barrier.missing_bytes:
            detail = (
                f"bulk copies bring {barrier.copied_bytes} bytes to {barrier.name}, "
                f"which expects {barrier.missing_bytes}"
            )
            raise LaneFault(FaultKind.MBARRIER_BYTES, detail, lane)
        if not barrier.is_ready:
            return
        if not barrier.copies:
            self._end_phase(barrier)
        waiters = np.flatnonzero(self.waits_at == barrier.offset)
        self.waits_at[waiters] = -1
        self.batch.state[waiters] = RUNNING

    def _end_phase(self, barrier: Mbarrier) -> None:
        barrier.phase += 1
        barrier.pending, barrier.missing_bytes = barrier.count, 0
        barrier.published = barrier.mail.copy()

    def _deliver(self, barrier: Mbarrier) -> None:
        batch, shadow = self.batch, self.batch.shared_shadow
        writer = np.uint64(32 * batch.warps_per_block) << THREAD_SHIFT
        block = batch.stamp_base[batch.blocks == barrier.block][0] & BLOCK
        for copy in barrier.copies:
            batch.shared.data.reshape(-1, 16)[copy.offsets // 16] = copy.content
            epoch = batch.clocks.end_copy(barrier.block)
            shadow.writes[shadow.granules(copy.offsets, 16)] = block | writer | np.uint64(epoch)
            barrier.mail[batch.warps_per_block] = epoch
        barrier.copies = []
        self._end_phase(barrier)

    def test(
        self,
        lanes: np.ndarray,
        addresses: np.ndarray,
        phases: np.ndarray,
        parity: bool,
        acquires: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tell which lanes see the end of their phases, and which of the others have to wait."""
        batch = self.batch
        over = np.zeros(len(lanes), bool)
        waits = np.zeros(len(lanes), bool)
        for barrier, members in self.find(lanes, addresses):
            ids, wanted = lanes[members], phases[members].astype(np.int64)
            if not parity and (wanted < barrier.phase - 1).any():
                detail = f"phase {int(wanted.min())} of {barrier.name}, now in {barrier.phase}"
                raise LaneFault(FaultKind.MBARRIER_PHASE, detail, int(ids[0]))
            current = (wanted - barrier.phase) % 2 == 0
            tried = self.tried[ids] == barrier.offset
            if barrier.copies and barrier.is_ready and (current & tried).any():
                self._deliver(barrier)
                current = (wanted - barrier.phase) % 2 == 0
            seeing = ids[~current]
            barrier.seen[batch.threads[seeing]] = barrier.phase - 1
            self.tried[seeing] = -1
            if acquires and len(seeing):
                warps = np.unique(batch.warps[seeing])
                batch.clocks.learn(warps, np.tile(barrier.published, (len(warps), 1)))
            waits[members] = current & tried
            self.tried[ids[current]] = barrier.offset
            self.waits_at[ids[current & tried]] = barrier.offset
            over[members] = ~current
        batch.state[lanes[waits]] = WAITING
        return over, waits

    def time_out(self) -> bool:
        """Let all waits return without success; tell whether they may."""
        waiters = np.flatnonzero(self.waits_at >= 0)
        self.timeouts += 1
        if not len(waiters) or self.timeouts > MAX_TIMEOUTS:
            return False
        self.waits_at[waiters] = -1
        self.batch.pc[waiters] += 1
        self.batch.state[waiters] = RUNNING
        return True

    def deadlock(self) -> LaneFault | None:
        """The fault of a lane that waits at an mbarrier for ever, if there is one."""
        waiters = np.flatnonzero(self.waits_at >= 0)
        if not len(waiters):
            return None
        for lane in waiters.tolist():
            barrier = self.at[int(self.waits_at[lane])]
            seen = int(barrier.seen[self.batch.threads[lane]])
            if seen + 1 < barrier.phase and (barrier.phase - seen) % 2:
                detail = f"waits for phase {seen + 1} of {barrier.name}, now in {barrier.phase}"
                return LaneFault(FaultKind.MBARRIER_PHASE, detail, lane)
        # Whoever lacks bytes alone is not the victim of another deadlock.
        lane = min(waiters.tolist(), key=lambda lane: self.at[int(self.waits_at[lane])].pending > 0)
        barrier = self.at[int(self.waits_at[lane])]
        detail = f"{barrier.name} lacks {barrier.pending} arrivals of {barrier.count}"
        if barrier.missing_bytes:
            detail += f" and {barrier.missing_bytes} bytes, of which copies bring "
            detail += f"{barrier.copied_bytes}"
        return LaneFault(FaultKind.DEADLOCK, f"{detail}, in phase {barrier.phase}", lane)

    def finish(self) -> None:
        """Refuse bulk copies that are under way when their blocks have ended."""
        for barrier in self.at.values():
            if barrier.copies:
                detail = f"the block ends before a bulk copy to {barrier.name} was waited for"
                raise LaneFault(FaultKind.PENDING_COPY, detail, barrier.initialiser)


def shared_addresses(batch: BlockBatch, operand):
    """Read addresses within shared memory that may be generic ones."""
    addresses = batch.addresses(operand)

    def read(lanes) -> np.ndarray:
        values = addresses(lanes)
        is_generic = values >> WINDOW_BITS == SHARED_WINDOW
        return np.where(is_generic, values & ((1 << WINDOW_BITS) - 1), values)

    return read


def is_wait(instruction: PtxInstruction) -> bool:
    """Tell `test_wait` and `try_wait` from the other instructions of mbarriers."""
    return instruction.name == "mbarrier" and instruction.parts[1] in ("test_wait", "try_wait")


def build_wait(batch: BlockBatch, instruction: PtxInstruction):
    """`mbarrier.test_wait` and `try_wait`: a function of lanes that tells which of them go on."""
    mbarriers = Mbarriers.of(batch)
    parity, acquires = "parity" in instruction.parts, "relaxed" not in instruction.parts
    result, address, phase = instruction.operands[:3]
    row = batch.row(result, TYPES["pred"])
    addresses = shared_addresses(batch, address)
    phases = batch.source(phase, TYPES["u32" if parity else "u64"])
    name = result.name if isinstance(result, VirtualRegister) else "_"
    initialised = batch.initialised.get(name)

    def run(lanes: np.ndarray) -> np.ndarray:
        over, waits = mbarriers.test(lanes, addresses(lanes), phases[lanes], parity, acquires)
        row[lanes] = over
        if initialised is not None:
            initialised[lanes] = True
        return ~waits

    return run


@builds("mbarrier")
def build_mbarrier(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`mbarrier` without its waits."""
    mbarriers = Mbarriers.of(batch)
    action, parts = instruction.parts[1], instruction.parts
    operands = list(instruction.operands)
    state = None if isinstance(operands[0], MemoryOperand) else operands.pop(0)
    addresses = shared_addresses(batch, operands[0])
    one = np.broadcast_to(np.int64(1), batch.count)
    number = batch.source(operands[1], TYPES["s32"]) if len(operands) > 1 else one
    if action == "init":
        return lambda lanes: mbarriers.initialise(batch.ids(lanes), addresses(lanes), number[lanes])
    if action == "inval":
        return lambda lanes: mbarriers.invalidate(batch.ids(lanes), addresses(lanes))
    if action in ("expect_tx", "complete_tx"):
        sign = 1 if action == "expect_tx" else -1
        return lambda lanes: mbarriers.expect(
            batch.ids(lanes), addresses(lanes), sign * number[lanes].astype(np.int64)
        )
    if action != "arrive" or "noComplete" in parts:
        raise unsupported(instruction)
    row = None if state is None else batch.row(state, TYPES["u64"])
    expects, releases = "expect_tx" in parts, "relaxed" not in parts
    counts = one if expects else number

    def arrive(lanes) -> None:
        ids, at = batch.ids(lanes), addresses(lanes)
        if expects:
            mbarriers.expect(ids, at, number[lanes].astype(np.int64))
        phases = mbarriers.arrive(ids, at, counts[lanes], releases)
        if row is not None:
            row[lanes] = phases

    return arrive
