"""The time-independent part of a program's timing: units, order and token dependences."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ...isa.instructions import Gemm, Halt, Instruction, Load, Store, Sync, Unit

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Links:
    """A program's fixed graph, one row per instruction; -1 means none.

    Parameters
    ----------
    unit
        int64[instructions]: its unit.
    works
        bool[instructions]: it is not a SYNC or HALT.
    before
        int64[instructions]: the previous instruction of its unit.
    givers
        int64[instructions, units]: the instruction whose token of that unit it takes.
    takers
        int64[instructions, units]: the instruction that must take a token of that unit before the
        counter has room for one more.
    rows, moved_bytes
        int64[instructions]: rows per tile of a GEMM; bytes of a LOAD or STORE on the memory port.
    """

    unit: np.ndarray
    works: np.ndarray
    before: np.ndarray
    givers: np.ndarray
    takers: np.ndarray
    rows: np.ndarray
    moved_bytes: np.ndarray

    @staticmethod
    def of(program: Sequence[Instruction], token_limit: int) -> "Links":
        """Match the tokens of a program that the checker accepts."""
        count = len(program)
        unit, before, rows, moved = np.full((4, count), NOBODY, dtype=np.int64)
        givers, takers = np.full((2, count, len(Unit)), NOBODY, dtype=np.int64)
        works = np.zeros(count, dtype=bool)
        given: dict[tuple[Unit, Unit], list[int]] = {(u, v): [] for u in Unit for v in Unit}
        taken: dict[tuple[Unit, Unit], list[int]] = {(u, v): [] for u in Unit for v in Unit}
        latest = dict.fromkeys(Unit, NOBODY)
        for index, instruction in enumerate(program):
            home = instruction.home
            if home is None or isinstance(instruction, Halt):
                break
            unit[index], before[index] = home, latest[home]
            latest[home] = index
            works[index] = not isinstance(instruction, Sync)
            rows[index] = instruction.rows() if isinstance(instruction, Gemm) else 0
            moved[index] = moved_bytes(instruction)
            for other in instruction.wait:
                pair = other, home
                givers[index, other] = given[pair][len(taken[pair])]
                taken[pair].append(index)
            for other in instruction.signal:
                pair = home, other
                if len(given[pair]) >= token_limit:
                    takers[index, other] = taken[pair][len(given[pair]) - token_limit]
                given[pair].append(index)
        return Links(unit, works, before, givers, takers, rows, moved)

    def of_unit(self, unit: Unit) -> np.ndarray:
        """Instructions of a unit in order, int64[count]."""
        return np.flatnonzero(self.unit == unit)


def moved_bytes(instruction: Instruction) -> int:
    """Bytes that an instruction moves over the memory port."""
    if isinstance(instruction, Store) or (isinstance(instruction, Load) and not instruction.fill):
        return instruction.length * prod(loop.extent for loop in instruction.loops)
    return 0
