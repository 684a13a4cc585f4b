"""Add the tokens that a program needs to order its conflicts.

The method is simple and always correct, but not minimal. In a walk in program order, each
instruction waits for the latest conflicting instruction of each unit that is not known to be
complete. That instruction always follows the last signal to the waiting unit; otherwise it would be
known to be complete. Tokens therefore stay first in, first out.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence

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

_PEERS = [peers(unit) for unit in Unit]
"""For each unit, the other three."""


class _Weaver:
    """Builds a program with tokens, one instruction at a time.

    Attributes
    ----------
    instructions, waits, signals
        The program so far. A wait or a signal has one bit for each unit that it names.
    passed, footprints
        For each unit, its instructions as indices into the program, and their footprints.
    clocks
        For each unit and each of its instructions, the number of instructions of every unit that
        are complete when that instruction is.
    known
        For each unit, the number of instructions of every unit that are complete when its next
        instruction starts.
    takers
        For a source and a target, the instructions of the target that wait for the source, as
        indices into the program.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.instructions: list[Instruction] = []
        self.waits: list[int] = []
        self.signals: list[int] = []
        self.passed: list[list[int]] = [[] for _ in Unit]
        self.footprints: list[list[Footprint]] = [[] for _ in Unit]
        self.clocks: list[list[list[int]]] = [[] for _ in Unit]
        self.known = [[0] * len(Unit) for _ in Unit]
        self.takers: list[list[list[int]]] = [[[] for _ in Unit] for _ in Unit]

    def append(self, instruction: Instruction, redundant: Pick | None) -> None:
        """Order an instruction after all earlier ones that conflict with it."""
        used, wait = footprint(instruction, self.configuration), 0
        unit = used.unit
        if unit is not None:
            known = self.known[unit]
            for other in _PEERS[unit]:
                passed, first = self.footprints[other], known[other]
                latest = None if first == len(passed) else last_conflict(passed, first, used)
                if latest is None and redundant is not None:
                    choice = redundant(len(passed) - first)
                    if choice is not None and self._room(first + choice, other, unit):
                        latest = first + choice
                if latest is not None:
                    self._order(latest, other, unit)
                    wait |= 1 << other
        self._place(instruction, used, wait)

    def _place(self, instruction: Instruction, used: Footprint, wait: int) -> None:
        place, unit = len(self.instructions), used.unit
        self.instructions.append(instruction)
        self.waits.append(wait)
        self.signals.append(0)
        if unit is not None:
            self.passed[unit].append(place)
            self.footprints[unit].append(used)
            clock = self.known[unit].copy()
            clock[unit] = len(self.passed[unit])
            self.clocks[unit].append(clock)
            for giver in _UNITS[wait]:
                self.takers[giver][unit].append(place)

    def _room(self, giver: int, source: Unit, target: Unit) -> bool:
        """Whether the token counter has room for a token that this instruction signals."""
        takers = self.takers[source][target]
        pending = len(takers) - bisect_right(takers, self.passed[source][giver])
        return pending < self.configuration.token_limit

    def _order(self, giver: int, source: Unit, target: Unit) -> None:
        """Make the target's next instruction wait for this instruction of the source.

        If the counter is full, it waits for a later one instead, at worst for a new SYNC.
        """
        passed = self.passed[source]
        while not self._room(giver, source, target):
            giver += 1
            if giver == len(passed):
                sync = Sync(target=source)
                self._place(sync, footprint(sync, self.configuration), 0)
                break
        self.signals[passed[giver]] |= 1 << target
        known = self.known[target]
        for unit, complete in enumerate(self.clocks[source][giver]):
            if complete > known[unit]:
                known[unit] = complete


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
            weaver.append(with_tokens(instruction, 0, 0), redundant)
    woven = map(with_tokens, weaver.instructions, weaver.waits, weaver.signals)
    return (*woven, Halt())


def beginning(program: Sequence[Instruction], end: int) -> tuple[Instruction, ...]:
    """Return the first instructions of a program as a program that leaves no token over."""
    first = list(program[:end])
    waits = Counter[tuple[Unit | None, Unit | None]](
        (giver, each.home) for each in first for giver in each.wait
    )
    for place, each in enumerate(first):
        taken = frozenset(taker for taker in each.signal if waits[each.home, taker] > 0)
        waits.subtract((each.home, taker) for taker in taken)
        first[place] = each.with_tokens(each.wait, taken)
    return (*first, Halt())


def with_tokens(instruction: Instruction, wait: int, signal: int) -> Instruction:
    """The instruction with these tokens and no others."""
    if not (wait or signal or instruction.wait or instruction.signal):
        return instruction
    return instruction.with_tokens(_UNITS[wait], _UNITS[signal])
