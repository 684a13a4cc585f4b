"""Critical path of a program: the chain of causes from its end back to its start.

Every event of the model is the latest of a few earlier events plus a constant. Following the latest
cause leads from the last retirement back to the start. The steps of the path have no gaps, so their
cycles sum to those of the run.
"""

from dataclasses import dataclass

import numpy as np

from ...isa.durations import tile_cycles
from ...isa.instructions import Unit
from ...isa.pipeline import GEMM_REVISIT_STEPS, LEAVING_CYCLES, READY_CYCLES
from .stalls import Wait
from .timing import Timing
from .transfers import COLUMNS

START = -1
"""Instruction index of a step without instruction: the program's first words are in flight."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step of the critical path.

    Parameters
    ----------
    instruction
        Index of the instruction that takes this time.
    wait
        Its activity: WORK, MEMORY, FETCH (its word is in flight) or FILL (pipelines).
    begin, end
        First cycle, and end (exclusive).
    """

    instruction: int
    wait: Wait
    begin: int
    end: int

    @property
    def cycles(self) -> int:
        return self.end - self.begin


def critical_path(timing: Timing) -> list[PathStep]:
    """The steps that determine the duration of the program, in order of time."""
    return _PathWalk(timing).run()


class _PathWalk:
    """Walk from the end back to the start; `now` is the first cycle already explained."""

    def __init__(self, timing: Timing) -> None:
        self.timing, self.links = timing, timing.links
        self.times = {name: timing.column(name).tolist() for name in COLUMNS}
        self.retired = self.times["retired"]
        self.works = {unit: self._works(unit) for unit in Unit}
        self.now = timing.cycles
        self.steps: list[PathStep] = []

    def _works(self, unit: Unit) -> dict[int, int]:
        """Per instruction of a unit, the previous one that is not a SYNC."""
        mine = self.links.of_unit(unit)
        before, latest = {}, START
        for index in mine.tolist():
            before[index] = latest
            if self.links.works[index]:
                latest = index
        return before

    def run(self) -> list[PathStep]:
        """Follow the latest cause until the start."""
        halt = int(np.count_nonzero(self.links.unit >= 0))
        last = int(np.argmax(self.timing.column("retired")))
        halts_last = self.times["word"][halt] > self.retired[last]
        event, index = ("word", halt) if halts_last else ("retired", last)
        while index != START:
            event, index = getattr(self, f"_{event}")(index)
        self._step(START, Wait.FETCH, 0)
        return self.steps[::-1]

    def _step(self, index: int, wait: Wait, begin: int) -> None:
        begin = max(0, min(begin, self.now))
        if begin == self.now:
            return
        if self.steps and self.steps[-1].instruction == index and self.steps[-1].wait == wait:
            self.steps[-1] = PathStep(index, wait, begin, self.steps[-1].end)
        else:
            self.steps.append(PathStep(index, wait, begin, self.now))
        self.now = begin

    def _retired(self, index: int) -> tuple[str, int]:
        before = int(self.links.before[index])
        retired = self.retired[index]
        if retired > self.times["complete"][index]:
            if before != START and retired == self.retired[before] + 1:
                self._step(index, Wait.FILL, self.retired[before])
                return "retired", before
            for taker in self.links.takers[index].tolist():
                if taker != START and retired == self.times["start"][taker] + 1:
                    self._step(index, Wait.FILL, self.times["start"][taker])
                    return "start", taker
        return "complete", index

    def _complete(self, index: int) -> tuple[str, int]:
        unit = Unit(int(self.links.unit[index]))
        last = self.times["last"][index] + 1
        self._step(index, Wait.MEMORY if unit is Unit.STORE else Wait.FILL, last)
        return "last", index

    def _last(self, index: int) -> tuple[str, int]:
        first = self.times["first"][index]
        self._step(index, Wait.WORK, first)
        return "first", index

    def _first(self, index: int) -> tuple[str, int]:
        unit, first = Unit(int(self.links.unit[index])), self.times["first"][index]
        before = self.works[unit][index]
        if before != START:
            last = self.times["last"][before]
            rest = GEMM_REVISIT_STEPS if unit is Unit.GEMM else 1
            streams = unit in (Unit.LOAD, Unit.STORE) and first == last + 1
            if streams or (unit is Unit.GEMM and first == last + rest):
                self._step(index, Wait.FILL, last + 1)
                return "last", before
            if unit is Unit.GEMM and first != self.times["ready"][index] + self._tile_cycles():
                tile = last - int(self.links.rows[before]) + 1
                if first == tile + 1 + self._tile_cycles():
                    self._step(index, Wait.FILL, last + 1)
                    return "last", before
        self._step(index, Wait.MEMORY if unit is Unit.LOAD else Wait.FILL, self._start_of(index))
        return "start", index

    def _start_of(self, index: int) -> int:
        if Unit(int(self.links.unit[index])) is Unit.GEMM:
            return min(self.times["start"][index], self.times["first"][index])
        return self.times["start"][index]

    def _tile_cycles(self) -> int:
        return tile_cycles(self.timing.configuration)

    def _start(self, index: int) -> tuple[str, int]:
        unit = Unit(int(self.links.unit[index]))
        before = self.works[unit][index]
        if self.times["start"][index] > self.times["ready"][index] and before != START:
            if self.times["last"][before] < self.now:
                self._step(index, Wait.UNIT, self.times["last"][before] + 1)
                return "last", before
            # The previous instruction still moves data, and its requests occupy the nest.
            self._step(before, Wait.MEMORY, self.times["start"][before])
            return "start", before
        self._step(index, Wait.FILL, self.times["ready"][index])
        return "ready", index

    def _ready(self, index: int) -> tuple[str, int]:
        ready = self.times["ready"][index]
        if ready > self.times["valid"][index] + READY_CYCLES:
            for giver in self.links.givers[index].tolist():
                if giver != START and ready == self.retired[giver] + 1 + READY_CYCLES:
                    self._step(index, Wait.FILL, self.retired[giver])
                    return "retired", giver
            unit = self.links.of_unit(Unit(int(self.links.unit[index])))
            for other in unit[unit < index][::-1].tolist():
                if ready == self.retired[other] + 1 + READY_CYCLES:
                    self._step(index, Wait.FILL, self.retired[other])
                    return "retired", other
        self._step(index, Wait.FILL, self.times["valid"][index])
        return "valid", index

    def _valid(self, index: int) -> tuple[str, int]:
        before = int(self.links.before[index])
        started = self.times["start"][before] if before != START else START
        moved = started + LEAVING_CYCLES
        if self.times["valid"][index] == moved + 1 > self.times["entered"][index] + 2:
            self._step(index, Wait.FILL, started)
            return "start", before
        self._step(index, Wait.FILL, self.times["entered"][index])
        return "entered", index

    def _entered(self, index: int) -> tuple[str, int]:
        entered = self.times["entered"][index]
        if entered > self.times["word"][index]:
            unit = self.links.of_unit(Unit(int(self.links.unit[index])))
            depth = self.timing.configuration.queue_depth
            holder = int(unit[np.searchsorted(unit, index) - depth])
            self._step(index, Wait.FILL, self.times["start"][holder])
            return "start", holder
        return "word", index

    def _word(self, index: int) -> tuple[str, int]:
        if index == 0:
            return "", START
        self._step(index, Wait.FETCH, self.times["entered"][index - 1])
        return "entered", index - 1
