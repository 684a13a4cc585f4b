"""Prove, before a program runs anywhere, that every concurrent execution equals program order.

What is proved, and why it holds for every timing and every queue depth:

* **Each instruction alone** is encodable, stays inside every memory and keeps the pipeline rules
  of `legality`.
* **No deadlock.** Every wait is met by a signal of an *earlier* instruction, and counting in
  program order no counter exceeds its limit. Take, in any state that has not ended, the first
  instruction in program order that is not complete. All before it are complete, so FETCH has
  dispatched it or can (whatever the queue depth), and it is the next of its unit. The n-th wait of
  a unit for another takes the n-th signal; that one is from an earlier instruction, so it was
  given, and only earlier waits, fewer than n, have taken tokens: it can start. When it signals, its
  counter holds at most what it holds in program order, since consumers can only be ahead of that:
  the counter is not full. So this instruction completes, and by induction all do.
* **Balance.** All counters are zero at the end, so that the next program starts clean.
* **No race.** Which signal meets which wait does not depend on time, so vector clocks over one walk
  in program order know all that is guaranteed: an instruction is complete before another starts if
  it, or a later one of its unit (units complete in order), signals a token that the other or an
  earlier one of its unit has taken, and so on transitively. Two instructions of different units
  that `footprints.conflicts` names must be ordered in that way. Then any execution can be
  rearranged into program order by exchanging neighbours that do not touch each other's bytes, and
  no bank ever has two readers or two writers.

The proof relies on what the hardware guarantees: a unit starts and completes its instructions in
order, a token is taken before the first access and given after the last one is done (for LOAD all
bytes are in the scratchpad, for STORE all write responses have arrived).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import ProgramError
from .configuration import Configuration
from .footprints import Footprint, explain_conflict, footprint, footprints_conflict
from .instructions import Halt, Instruction, Unit
from .legality import instruction_faults


@dataclass(frozen=True, slots=True)
class Report:
    """What the checker saw in a program that it accepts.

    Parameters
    ----------
    instructions
        How many, HALT included.
    per_unit
        How many pass through each unit's queue.
    tokens
        Tokens given in all.
    peak_tokens
        Most tokens of each ordered pair of units held at once, in program order.
    concurrent_pairs
        Pairs of instructions that may run at the same time, all shown not to conflict.
    """

    instructions: int
    per_unit: dict[Unit, int]
    tokens: int
    peak_tokens: dict[tuple[Unit, Unit], int]
    concurrent_pairs: int


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule: where (None for the program as a whole) and what."""

    index: int | None
    text: str

    def __str__(self) -> str:
        return self.text


class _ProgramWalk:
    """State of the walk in program order: counters, clocks and instructions of every unit."""

    def __init__(self, configuration: Configuration, data_bytes: int) -> None:
        self.configuration = configuration
        self.data_bytes = data_bytes
        self.pending: dict[tuple[Unit, Unit], deque[tuple[int, list[int]]]] = {
            (u, v): deque() for u in Unit for v in Unit if u is not v
        }
        self.peaks = dict.fromkeys(self.pending, 0)
        self.known = {unit: [0] * len(Unit) for unit in Unit}
        self.passed: dict[Unit, list[tuple[int, Instruction, Footprint]]] = {u: [] for u in Unit}
        self.tokens = 0
        self.concurrent_pairs = 0

    def visit(self, index: int, instruction: Instruction) -> Iterator[str]:
        """All faults that this instruction adds."""
        yield from instruction_faults(instruction, self.configuration, self.data_bytes)
        unit = instruction.home
        if unit is None:
            return
        here = footprint(instruction, self.configuration)
        yield from self._take_tokens(unit, instruction)
        yield from self._races(unit, instruction, here)
        self.passed[unit].append((index, instruction, here))
        yield from self._give_tokens(unit, index, instruction)

    def _take_tokens(self, unit: Unit, instruction: Instruction) -> Iterator[str]:
        known = self.known[unit]
        for giver in sorted(instruction.wait):
            queue = self.pending[giver, unit]
            if not queue:
                yield (
                    f"waits for a token of {giver.name} that no earlier instruction signals; the "
                    "machine would wait for ever; signal it earlier or drop the wait"
                )
                continue
            _, clock = queue.popleft()
            known[:] = map(max, known, clock)

    def _races(self, unit: Unit, instruction: Instruction, here: Footprint) -> Iterator[str]:
        for other in Unit:
            if other is unit:
                continue
            for earlier_index, earlier, there in self.passed[other][self.known[unit][other] :]:
                self.concurrent_pairs += 1
                if footprints_conflict(there, here):
                    reason = explain_conflict(earlier, instruction, self.configuration)
                    yield (
                        f"races with instruction {earlier_index} ({earlier.mnemonic}), which "
                        f"nothing orders before it: {reason}; let {other.name} signal {unit.name} "
                        "in between"
                    )

    def _give_tokens(self, unit: Unit, index: int, instruction: Instruction) -> Iterator[str]:
        clock = list(self.known[unit])
        clock[unit] = len(self.passed[unit])
        limit = self.configuration.token_limit
        for taker in sorted(instruction.signal):
            queue = self.pending[unit, taker]
            queue.append((index, clock))
            self.tokens += 1
            self.peaks[unit, taker] = max(self.peaks[unit, taker], len(queue))
            if len(queue) == limit + 1:
                yield (
                    f"signals {taker.name} while {limit} tokens of {unit.name} are pending, and "
                    f"the counter holds {limit}; let {taker.name} wait earlier or raise "
                    "`token_bits`"
                )

    def leftovers(self) -> Iterator[Fault]:
        """Tokens that nobody waits for."""
        for (giver, taker), queue in self.pending.items():
            if queue:
                indices = ", ".join(str(index) for index, _ in queue)
                yield Fault(
                    queue[0][0],
                    f"instruction {queue[0][0]}: signals {taker.name}, but at the end "
                    f"{len(queue)} token{'s' * (len(queue) > 1)} of {giver.name} "
                    f"(instruction{'s' * (len(queue) > 1)} {indices}) "
                    f"{'are' if len(queue) > 1 else 'is'} left over; let {taker.name} wait for "
                    "each, or drop the signal",
                )


def faults(
    program: Sequence[Instruction], configuration: Configuration, data_bytes: int
) -> Iterator[Fault]:
    """Every broken rule of a program, in program order; nothing for a legal one."""
    yield from _faults(program, configuration, _ProgramWalk(configuration, data_bytes))


def _faults(
    program: Sequence[Instruction], configuration: Configuration, walk: _ProgramWalk
) -> Iterator[Fault]:
    if walk.data_bytes > 1 << configuration.address_bits:
        yield Fault(
            None,
            f"data window: {walk.data_bytes} bytes are more than `address_bits` = "
            f"{configuration.address_bits} can address",
        )
    for index, instruction in enumerate(program):
        for text in walk.visit(index, instruction):
            yield Fault(index, f"instruction {index} ({instruction.mnemonic}): {text}")
        if isinstance(instruction, Halt) and index != len(program) - 1:
            yield Fault(
                index,
                f"instruction {index} (halt): {len(program) - 1 - index} more follow; "
                "HALT must be the last one",
            )
            return
    if not program or not isinstance(program[-1], Halt):
        yield Fault(None, f"program of {len(program)} instructions: no HALT at the end; append one")
    yield from walk.leftovers()


def check(program: Sequence[Instruction], configuration: Configuration, data_bytes: int) -> Report:
    """Accept a program whose every execution equals program order, or say what is wrong.

    Parameters
    ----------
    program
        Instructions in program order, HALT last.
    configuration
        The machine that it shall run on.
    data_bytes
        Size of the data window of main memory.

    Raises
    ------
    ProgramError
        For the first broken rule; `faults` lists all.
    """
    walk = _ProgramWalk(configuration, data_bytes)
    for fault in _faults(program, configuration, walk):
        raise ProgramError(str(fault))
    return Report(
        len(program),
        {unit: len(walk.passed[unit]) for unit in Unit},
        walk.tokens,
        walk.peaks,
        walk.concurrent_pairs,
    )
