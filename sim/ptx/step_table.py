"""The steps of a kernel: one for each instruction, with the checks that it needs."""

from collections.abc import Callable

import numpy as np

from . import (
    atomics,
    bits,
    comparisons,
    conversions,
    copies,
    floats,
    integers,
    matrices,
    mbarriers,
    moves,
    warps,
)
from .barriers import Arrival, build_arrival
from .batch import (
    EXITED,
    FULL,
    BlockBatch,
    Lanes,
    Step,
    guarded,
    refuse_uninitialised,
)
from .builders import BUILDERS, unsupported
from .faults import FaultKind, LaneFault, PtxFault
from .initialisation import ENDS, registers_in
from .moves import results_of
from .syntax import PtxInstruction, Symbol
from .warpgroups import product_registers, refuse_pending
from .warps import needed_lanes

BUILDER_MODULES = (
    atomics, bits, comparisons, conversions, copies, floats, integers, matrices, mbarriers, moves,
    warps,
)  # fmt: skip
"""Modules that fill the table of builders when they are imported."""

CONTROL = ("bra", "brx", "bar", "barrier", *ENDS)


def _is_control(instruction: PtxInstruction) -> bool:
    if instruction.name in ("bar", "barrier"):
        return "warp" not in instruction.parts and instruction.parts[1:3] != ("cluster", "arrive")
    return instruction.name in CONTROL or mbarriers.is_wait(instruction)


class StepTable:
    """Compiled instructions of a kernel, for one batch of blocks.

    Attributes
    ----------
    steps : list of Step
        One for each instruction.
    end_of_run : list[int]
        The next control instruction from each instruction on.
    targets : set[int]
        Instructions that branches go to, where lanes can meet.
    arrivals : dict[int, Arrival]
        The barrier instructions.
    needs : dict[int, function(lanes) -> masks]
        Instructions that need other lanes of their warp, and which.
    """

    def __init__(self, batch: BlockBatch):
        self.batch = batch
        self.kernel = batch.launch.kernel
        self.steps: list[Step] = []
        self.end_of_run: list[int] = []
        self.targets: set[int] = set()
        self.products: set[str] = set()
        self.arrivals: dict[int, Arrival] = {}
        self.needs: dict[int, Callable[[np.ndarray], np.ndarray]] = {}

    def build(self, control: Callable[[int, PtxInstruction], Step]) -> None:
        """Compile all instructions; `control` makes the steps of those that end a run."""
        instructions = self.kernel.instructions
        count = len(instructions)
        doubtful = self.batch.launch.doubtful
        watched = {name for names in doubtful.values() for name in names}
        self.batch.initialised = {name: np.zeros(self.batch.count, bool) for name in watched}
        self.products = {name for i in instructions for name in product_registers(i)}
        branches = {name for i in instructions for name in self.labels_of(i)}
        self.targets = {self.kernel.labels[name] for name in branches}
        self.end_of_run = [count] * (count + 1)
        for index in reversed(range(count)):
            instruction = instructions[index]
            end = index if _is_control(instruction) else self.end_of_run[index + 1]
            self.end_of_run[index] = end
        for index, instruction in enumerate(instructions):
            try:
                self.steps.append(
                    self._step(index, instruction, doubtful.get(index), watched, control)
                )
            except PtxFault as fault:
                raise PtxFault(fault.fault, fault.detail, instruction.line) from None
            except (ValueError, IndexError, StopIteration) as error:
                raise unsupported(instruction) from error

    def labels_of(self, instruction: PtxInstruction) -> tuple[str, ...]:
        """The labels that a branch may go to."""
        labels = [operand for operand in instruction.operands if isinstance(operand, Symbol)]
        if instruction.name == "bra":
            return tuple(label.name for label in labels)
        return self.kernel.branch_tables[labels[0].name] if instruction.name == "brx" else ()

    def _step(
        self, index: int, instruction: PtxInstruction, doubtful, watched: set[str], control
    ) -> Step:
        batch = self.batch
        if self.end_of_run[index] == index:
            if instruction.name in ("bar", "barrier"):
                self.arrivals[index] = build_arrival(batch, instruction)
            step = control(index, instruction)
            if doubtful and instruction.guard and instruction.guard.name in doubtful:
                step = refuse_uninitialised(batch, [instruction.guard.name], step)
            return step
        if instruction.name not in BUILDERS:
            raise unsupported(instruction)
        step = BUILDERS[instruction.name](batch, instruction)
        if (needed := needed_lanes(batch, instruction)) is not None:
            self.needs[index] = needed
            step = self._whole_warps(index, step)
        if self.products and instruction.name != "wgmma":
            touched = {r.name for operand in instruction.operands for r in registers_in(operand)}
            if touched & self.products:
                step = refuse_pending(batch, step)
        results = [r.name for r in results_of(instruction) if r.name in watched]
        if doubtful:
            guard = instruction.guard.name if instruction.guard else None
            step = refuse_uninitialised(batch, [name for name in doubtful if name != guard], step)
        if results:
            step = self._marking(results, step)
        step = guarded(batch, instruction, step)
        if doubtful and instruction.guard and instruction.guard.name in doubtful:
            step = refuse_uninitialised(batch, [instruction.guard.name], step)
        return step

    def _marking(self, names: list[str], step: Step) -> Step:
        rows = [self.batch.initialised[name] for name in names]

        def run(lanes: Lanes) -> None:
            step(lanes)
            for row in rows:
                row[lanes] = True

        return run

    def _whole_warps(self, index: int, step: Step) -> Step:
        """Refuse an instruction of a warp whose guard differs between the lanes."""

        def run(lanes: Lanes) -> None:
            if lanes is not FULL:
                ready = self.ready(index, self.batch.ids(lanes))
                if not ready.all():
                    lane = int(self.batch.ids(lanes)[int(np.argmin(ready))])
                    detail = f"`{self.kernel.instructions[index].opcode}` for a part of its lanes"
                    raise LaneFault(FaultKind.DIVERGENT_WARP, detail, lane)
            step(lanes)

        return run

    def ready(self, index: int, lanes: np.ndarray) -> np.ndarray:
        """Tell which of `lanes` have all lanes of their warp beside them that they need."""
        warps = self.batch.warps
        present = np.zeros(int(warps[-1]) + 1, np.uint64)
        bits = np.uint64(1) << (lanes % 32).astype(np.uint64)
        np.bitwise_or.at(present, warps[lanes], bits)
        if index in self.arrivals:
            alive = self.batch.state.reshape(-1, 32) != EXITED
            needed = (alive << np.arange(32, dtype=np.uint64)).sum(axis=1)[warps[lanes]]
        else:
            needed = self.needs[index](lanes)
        return (present[warps[lanes]] & needed) == needed
