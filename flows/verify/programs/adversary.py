"""Run a program in a random order that tokens and queues allow: a second opinion on the checker.

Timing is random: which unit proceeds next, how long an instruction is in flight, and when it reads
and writes in between. A program that the checker accepts must give the same memories for every
seed.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from ....errors import ProgramError
from ....isa.configuration import Configuration, Memory
from ....isa.instructions import Halt, Instruction, Sync, Unit
from ....isa.semantics import Machine

LOADS_IN_FLIGHT = 3
"""LOAD may start instructions before earlier ones are complete; other units have one at a time."""


class _Execution:
    """One execution: dispatched instructions, queues, instructions in flight, and tokens."""

    def __init__(
        self,
        program: Sequence[Instruction],
        configuration: Configuration,
        dram: np.ndarray,
        seed: int,
    ) -> None:
        self.program = [i for i in program if not isinstance(i, Halt)]
        self.configuration = configuration
        self.machine = Machine(configuration, dram)
        self.chance = random.Random(seed)
        self.queues: dict[Unit, deque[Instruction]] = {unit: deque() for unit in Unit}
        self.flying: dict[Unit, deque[tuple[Instruction, Callable[[], None]]]] = {
            unit: deque() for unit in Unit
        }
        self.tokens = {(u, v): 0 for u in Unit for v in Unit}
        self.dispatched = 0

    def can_start(self, unit: Unit) -> bool:
        if not self.queues[unit]:
            return False
        head = self.queues[unit][0]
        most = LOADS_IN_FLIGHT if unit is Unit.LOAD and not isinstance(head, Sync) else 1
        return len(self.flying[unit]) < most and all(self.tokens[u, unit] for u in head.wait)

    def can_finish(self, unit: Unit) -> bool:
        limit = self.configuration.token_limit
        return bool(self.flying[unit]) and all(
            self.tokens[unit, v] < limit for v in self.flying[unit][0][0].signal
        )

    def start(self, unit: Unit) -> None:
        instruction = self.queues[unit].popleft()
        for giver in instruction.wait:
            self.tokens[giver, unit] -= 1
        moments = [self._all_at_the_end, self._read_now_write_later]
        if not self.flying[unit]:
            moments.append(self._all_now)
        self.flying[unit].append((instruction, self.chance.choice(moments)(instruction)))

    def finish(self, unit: Unit) -> None:
        instruction, complete = self.flying[unit].popleft()
        complete()
        for taker in instruction.signal:
            self.tokens[unit, taker] += 1

    def dispatch(self) -> None:
        instruction = self.program[self.dispatched]
        if instruction.home is not None:
            self.queues[instruction.home].append(instruction)
        self.dispatched += 1

    def can_dispatch(self) -> bool:
        if self.dispatched == len(self.program):
            return False
        home = self.program[self.dispatched].home
        return home is None or len(self.queues[home]) < self.configuration.queue_depth

    def _all_now(self, instruction: Instruction) -> Callable[[], None]:
        self.machine.execute(instruction)
        return lambda: None

    def _all_at_the_end(self, instruction: Instruction) -> Callable[[], None]:
        return lambda: self.machine.execute(instruction)

    def _read_now_write_later(self, instruction: Instruction) -> Callable[[], None]:
        places = [
            (access.memory, (access.starts()[:, None] + np.arange(access.length)).reshape(-1))
            for access in instruction.accesses(self.configuration)
            if access.writes
        ]
        memories = self.machine.memories
        before = [memories[memory][place] for memory, place in places]
        self.machine.execute(instruction)
        after = [memories[memory][place] for memory, place in places]
        for (memory, place), old in zip(places, before, strict=True):
            memories[memory][place] = old

        def write() -> None:
            for (memory, place), new in zip(places, after, strict=True):
                memories[memory][place] = new

        return write


def execute_adversarially(
    program: Sequence[Instruction], configuration: Configuration, dram: np.ndarray, seed: int
) -> Machine:
    """Execute in an order chosen by `seed` among all that the hardware may take.

    Parameters
    ----------
    dram
        uint8[bytes]: the data window; changed in place.

    Raises
    ------
    ProgramError
        When all units wait forever, or an access exceeds a memory.
    """
    run = _Execution(program, configuration, dram, seed)
    pace = [run.chance.choice((0.02, 0.3, 1.0, 5.0)) for _ in range(9)]
    while True:
        moves: list[tuple[float, Callable[[], None]]] = []
        if run.can_dispatch():
            moves.append((pace[8], run.dispatch))
        for unit in Unit:
            if run.can_start(unit):
                moves.append((pace[unit], lambda unit=unit: run.start(unit)))
            if run.can_finish(unit):
                moves.append((pace[4 + unit], lambda unit=unit: run.finish(unit)))
        if not moves:
            break
        run.chance.choices([m for _, m in moves], [weight for weight, _ in moves])[0]()
    waiting = [unit.name for unit in Unit if run.queues[unit] or run.flying[unit]]
    if waiting or run.dispatched < len(run.program):
        raise ProgramError(f"deadlock after seed {seed}: {', '.join(waiting)} wait forever")
    return run.machine


def first_difference(one: Machine, other: Machine) -> str | None:
    """First difference between two machines' memories, as text; None if they are equal."""
    for memory in Memory:
        ours, theirs = one.memories[memory], other.memories[memory]
        if not np.array_equal(ours, theirs):
            place = int(np.flatnonzero(ours != theirs)[0])
            return f"{memory.name} byte {place}: {ours[place]} against {theirs[place]}"
    return None
