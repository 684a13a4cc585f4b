"""Add the tokens that a program needs to order its conflicts.

The method is simple and always correct, but not minimal. In a walk in program order, each
instruction waits for the latest conflicting instruction of each unit that is not known to be
complete. That instruction always follows the last signal to the waiting unit; otherwise it would be
known to be complete. Tokens therefore stay first in, first out.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .configuration import Configuration
from .footprints import Footprint, footprint, last_conflict
from .instructions import Halt, Instruction, Sync, Unit
from .instructions.common import peers

Pick = Callable[[int], int | None]
"""Chooses one of the given number of instructions that may signal, or None."""


_UNITS = [
    frozenset(unit for unit in Unit if number >> unit & 1) for number in range(1 << len(Unit))
]
"""Sets of units, by one bit per unit."""


@dataclass(slots=True)
class _Entry:
    """An instruction, the clock after it, and the units that it waits for and signals as bits."""

    instruction: Instruction
    place: int
    footprint: Footprint
    clock: Sequence[int] = ()
    wait: int = 0
    signal: int = 0


class _Weaver:
    """Entries so far, and those that are complete when a unit's next instruction starts."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.entries: list[_Entry] = []
        self.passed: dict[Unit, list[_Entry]] = {unit: [] for unit in Unit}
        self.footprints: dict[Unit, list[Footprint]] = {unit: [] for unit in Unit}
        self.known = {unit: [0] * len(Unit) for unit in Unit}
        self.takers: dict[tuple[Unit, Unit], list[int]] = {(u, v): [] for u in Unit for v in Unit}

    def append(self, instruction: Instruction, redundant: Pick | None) -> None:
        """Order an instruction after all earlier ones that conflict with it."""
        entry = _Entry(instruction, 0, footprint(instruction, self.configuration))
        unit = instruction.home
        if unit is not None:
            for other in peers(unit):
                passed, first = self.passed[other], self.known[unit][other]
                latest = last_conflict(self.footprints[other], first, entry.footprint)
                if latest is not None:
                    self._order(passed[latest], other, unit, entry)
                elif (
                    redundant is not None
                    and (choice := redundant(len(passed) - first)) is not None
                    and self._room(passed[first + choice], other, unit)
                ):
                    self._order(passed[first + choice], other, unit, entry)
        self._place(entry)

    def _place(self, entry: _Entry) -> None:
        entry.place = len(self.entries)
        self.entries.append(entry)
        unit = entry.instruction.home
        if unit is not None:
            self.passed[unit].append(entry)
            self.footprints[unit].append(entry.footprint)
            clock = entry.clock = self.known[unit].copy()
            clock[unit] = len(self.passed[unit])
            for giver in _UNITS[entry.wait]:
                self.takers[giver, unit].append(entry.place)

    def _room(self, giver: _Entry, source: Unit, target: Unit) -> bool:
        takers = self.takers[source, target]
        pending = len(takers) - bisect_right(takers, giver.place)
        return pending < self.configuration.token_limit

    def _order(self, giver: _Entry, source: Unit, target: Unit, taker: _Entry) -> None:
        later = self.passed[source][giver.clock[source] - 1 :]
        giver = next((e for e in later if self._room(e, source, target)), giver)
        if not self._room(giver, source, target):
            sync = Sync(target=source)
            giver = _Entry(sync, 0, footprint(sync, self.configuration))
            self._place(giver)
        giver.signal |= 1 << target
        taker.wait |= 1 << source
        self.known[target] = list(map(max, self.known[target], giver.clock))


def synthesise_tokens(
    program: Sequence[Instruction],
    configuration: Configuration,
    redundant: Pick | None = None,
) -> tuple[Instruction, ...]:
    """Order all conflicts of a program by tokens; the order of instructions is kept.

    Parameters
    ----------
    program
        Instructions; their tokens are removed first. HALT may be missing.
    redundant
        Adds unnecessary tokens, for tests.

    Returns
    -------
    The instructions with `wait` and `signal`, a SYNC wherever a token counter would otherwise
    overflow, and HALT.
    """
    weaver = _Weaver(configuration)
    for instruction in program:
        if not isinstance(instruction, Halt):
            weaver.append(_with_tokens(instruction, 0, 0), redundant)
    woven = [_with_tokens(e.instruction, e.wait, e.signal) for e in weaver.entries]
    return (*woven, Halt())


def _with_tokens(instruction: Instruction, wait: int, signal: int) -> Instruction:
    """The instruction with these tokens and no others."""
    if not (wait or signal or instruction.wait or instruction.signal):
        return instruction
    return instruction.with_tokens(_UNITS[wait], _UNITS[signal])
