"""Scheduling of lanes: groups of lanes at one instruction run together until they part.

Among the lanes that may run, those with the lowest instruction go first, so that branches meet
again; instructions of whole warps wait for the lanes they name. `order` chooses between warps:
all of a batch together (the fastest), or one warp of each block at a time until it has to wait.
"""

import numpy as np

from .barriers import Barriers
from .batch import (
    EXITED,
    FULL,
    PARKED,
    RUNNING,
    BlockBatch,
    Lanes,
    Step,
    refuse_uninitialised,
)
from .faults import FaultKind, LaneFault, PtxFault
from .mbarriers import Mbarriers, build_wait, is_wait
from .step_table import StepTable
from .syntax import PtxInstruction
from .warps import check_warpgroups


class LaneScheduler:
    """Run the blocks of a batch to their end."""

    def __init__(self, batch: BlockBatch, order: str | int):
        self.batch, self.order = batch, order
        self.kernel = batch.launch.kernel
        self.barriers, self.mbarriers = Barriers(batch), Mbarriers.of(batch)
        self.random = np.random.default_rng(order if isinstance(order, int) else 0)
        self.index = 0
        self.next_index = 0
        self.progress = True
        self.table = StepTable(batch)
        self.table.build(self._control)

    def run(self) -> None:
        """Run until all lanes have exited."""
        batch = self.batch
        try:
            while (lanes := self._pick()) is not None:
                self._advance(FULL if len(lanes) == batch.count else lanes, int(batch.pc[lanes[0]]))
            self.mbarriers.finish()
            check_warpgroups(batch)
        except LaneFault as fault:
            block, thread = batch.thread(fault.lane)
            line = self.kernel.instructions[self.index].line
            raise PtxFault(fault.fault, fault.detail, line, block, thread) from None

    def _pick(self) -> np.ndarray | None:
        batch = self.batch
        running = batch.state == RUNNING
        if not running.any():
            if (batch.state == EXITED).all():
                return None
            parked = batch.state == PARKED
            if parked.any() and self.progress:
                self.progress = False
                batch.state[parked] = RUNNING
            elif not self.mbarriers.time_out():
                self._refuse_deadlock()
            running = batch.state == RUNNING
        if self.order != "together":
            warps = running.reshape(len(batch.block_ids), batch.warps_per_block, 32).any(axis=2)
            count = batch.warps_per_block
            rank = np.arange(count)
            if self.order == "descending":
                rank = rank[::-1]
            elif self.order != "ascending":
                rank = self.random.permutation(count)
            best = np.argmin(np.where(warps, rank, count), axis=1)
            running &= best[batch.blocks] == batch.own_warps
        lanes = np.flatnonzero(running)
        at = batch.pc[lanes]
        return lanes[at == at.min()]

    def _refuse_deadlock(self) -> None:
        batch = self.batch
        if (fault := self.mbarriers.deadlock()) is not None:
            self.index = int(batch.pc[fault.lane])
            raise fault
        parked = np.flatnonzero(batch.state == PARKED)
        if len(parked):
            lane = int(parked[0])
            self.index = int(batch.pc[lane])
            instruction = self.kernel.instructions[self.index]
            same_warp = (batch.warps == batch.warps[lane]) & (batch.pc != self.index)
            others = np.flatnonzero(same_warp & (batch.state != EXITED))
            detail = f"`{instruction.opcode}` waits for lanes of its warp that "
            if len(others):
                place = self.kernel.instructions[int(batch.pc[others[0]])]
                detail += f"wait in line {place.line}, at `{place.opcode}`"
            else:
                detail += "have exited"
            barrier = self.index in self.table.arrivals
            raise LaneFault(
                FaultKind.DIVERGENT_BARRIER if barrier else FaultKind.DIVERGENT_WARP, detail, lane
            )
        lane = int(np.flatnonzero(batch.state != EXITED)[0])
        self.index = int(batch.pc[lane]) - 1
        block = batch.blocks[lane]
        number = int(self.barriers.waits_at[lane])
        arrived = int(self.barriers.arrived[block, number])
        expected = int(self.barriers.expected[block, number])
        detail = f"barrier {number} has {arrived} threads"
        detail += f" of {expected}" if expected else ""
        raise LaneFault(FaultKind.DEADLOCK, detail + ", and no other can arrive", lane)

    def _advance(self, lanes: Lanes, start: int) -> None:
        """Run `lanes` from `start` on, until they part, wait or may meet others."""
        batch, steps, count = self.batch, self.table.steps, len(self.table.steps)
        whole = lanes is FULL or self._is_whole(batch.ids(lanes))
        index = start
        while True:
            if whole:
                end = self.table.end_of_run[index]
                for step_index in range(index, end):
                    self.index = step_index
                    steps[step_index](lanes)
                batch.executed += end - index
                index = end
                self.progress = True
            else:
                index = self._advance_partly(batch.ids(lanes), index)
                if index < 0:
                    return
            if index == count:
                self._leave(batch.ids(lanes))
                return
            self.index = index
            batch.executed += 1
            if batch.executed > batch.launch.max_instructions:
                detail = f"more than {batch.launch.max_instructions} instructions"
                raise LaneFault(FaultKind.ENDLESS, detail, int(batch.ids(lanes)[0]))
            steps[index](lanes)
            self.progress = True
            index = self.next_index
            if index < 0 or (lanes is not FULL and index in self.table.targets):
                if index >= 0:
                    batch.pc[lanes] = index
                return

    def _is_whole(self, lanes: np.ndarray) -> bool:
        if len(lanes) % 32:
            return False
        warps = lanes.reshape(-1, 32)
        return bool(((warps[:, 0] % 32 == 0) & (warps[:, 31] - warps[:, 0] == 31)).all())

    def _advance_partly(self, lanes: np.ndarray, start: int) -> int:
        """Run lanes of split warps to the next control instruction; -1 if they had to stop."""
        batch, index = self.batch, start
        while index < self.table.end_of_run[index]:
            if index in self.table.needs and not self.table.ready(index, lanes).all():
                self._park(index, lanes)
                return -1
            self.index = index
            self.table.steps[index](lanes)
            batch.executed += 1
            self.progress = True
            index += 1
            if index in self.table.targets:
                batch.pc[lanes] = index
                return -1
        aligned = index in self.table.arrivals and self.table.arrivals[index].aligned
        if aligned and not self.table.ready(index, lanes).all():
            self._park(index, lanes)
            return -1
        return index

    def _park(self, index: int, lanes: np.ndarray) -> None:
        """Let the lanes whose warp is together run on alone, and the others wait."""
        ready = self.table.ready(index, lanes)
        self.batch.pc[lanes] = index
        self.batch.state[lanes[~ready]] = PARKED

    def _control(self, index: int, instruction: PtxInstruction) -> Step:
        """A step that sets `next_index`, or -1 after it has set the lanes' own."""
        batch = self.batch
        guard = None
        if instruction.guard is not None:
            row = batch.row(instruction.guard, np.dtype(bool))
            guard = (lambda lanes: ~row[lanes]) if instruction.guard_negated else row.__getitem__
        act = self._checked(index, instruction, self._action(index, instruction))

        def run(lanes: Lanes) -> None:
            self.next_index = index + 1
            if guard is None:
                act(lanes, lanes)
                return
            holds = guard(lanes)
            if holds.all():
                act(lanes, lanes)
            elif holds.any():
                ids = batch.ids(lanes)
                batch.pc[ids[~holds]] = index + 1
                self.next_index = -1
                act(ids[holds], None)

        return run

    def _checked(self, index: int, instruction: PtxInstruction, act):
        """Refuse uninitialised operands in the lanes whose guard holds."""
        guard = instruction.guard.name if instruction.guard else None
        doubtful = self.batch.launch.doubtful.get(index, [])
        names = [name for name in doubtful if name != guard]
        if not names:
            return act
        check = refuse_uninitialised(self.batch, names, lambda lanes: None)

        def checked(lanes: Lanes, all_lanes) -> None:
            check(lanes)
            act(lanes, all_lanes)

        return checked

    def _action(self, index: int, instruction: PtxInstruction):
        batch, kernel = self.batch, self.kernel
        if index in self.table.arrivals:
            arrival = self.table.arrivals[index]

            def arrive(lanes: Lanes, all_lanes) -> None:
                ids = batch.ids(lanes)
                if arrival.aligned and not (lanes is FULL or self.table.ready(index, ids).all()):
                    detail = f"`{instruction.opcode}` for a part of a warp"
                    raise LaneFault(FaultKind.DIVERGENT_BARRIER, detail, int(ids[0]))
                batch.pc[ids] = index + 1
                self.barriers.arrive(arrival, ids)
                self.mbarriers.timeouts = 0
                self.next_index = index + 1 if lanes is FULL and self._all_run() else -1

            return arrive
        if instruction.name == "brx":
            return self._indexed_branch(instruction)
        if is_wait(instruction):
            return self._wait(index, instruction)
        if instruction.name == "bra":
            target = kernel.labels[self.table.labels_of(instruction)[0]]

            def branch(lanes: Lanes, all_lanes) -> None:
                if all_lanes is None:
                    batch.pc[lanes] = target
                else:
                    self.next_index = target

            return branch
        trap = instruction.name == "trap"

        def leave(lanes: Lanes, all_lanes) -> None:
            if trap:
                raise LaneFault(FaultKind.TRAP, "the kernel gave up", int(batch.ids(lanes)[0]))
            self.next_index = -1
            self._leave(batch.ids(lanes))

        return leave

    def _leave(self, lanes: np.ndarray) -> None:
        self.batch.state[lanes] = EXITED
        self.mbarriers.timeouts = 0
        if self.batch.bulk_stores is not None:
            self.batch.bulk_stores.leave(lanes)
        self.barriers.release_after_exit()

    def _wait(self, index: int, instruction: PtxInstruction):
        wait, batch = build_wait(self.batch, instruction), self.batch

        def act(lanes: Lanes, all_lanes) -> None:
            ids = batch.ids(lanes)
            on = wait(ids)
            batch.pc[ids] = np.where(on, index + 1, index)
            if all_lanes is not None and not on.all():
                self.next_index = -1

        return act

    def _all_run(self) -> bool:
        return bool((self.batch.state == RUNNING).all())

    def _indexed_branch(self, instruction: PtxInstruction):
        selector = self.batch.source(instruction.operands[0], np.dtype(np.uint32))
        targets = np.array(
            [self.kernel.labels[n] for n in self.table.labels_of(instruction)], np.int32
        )

        def branch(lanes: Lanes, all_lanes) -> None:
            ids = self.batch.ids(lanes)
            self.batch.pc[ids] = targets[selector[ids]]
            self.next_index = -1

        return branch
