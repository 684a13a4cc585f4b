"""Prove before a program runs that every concurrent execution equals program order.

The checker proves the following, for every timing and every queue depth:

* **Each instruction alone** is encodable, stays inside every memory and obeys the pipeline rules in
  `legality`.
* **No deadlock.** Every wait is met by a signal of an *earlier* instruction. In program order, no
  token counter exceeds its limit. The proof: at any moment of a run, take the first instruction in
  program order that is not complete. Everything before it is complete. FETCH has therefore
  dispatched it, or can do so at any queue depth, and it is next in its unit. The n-th wait of one
  unit for another takes the n-th signal. That signal comes from an earlier instruction, so it has
  been given. Only earlier waits, fewer than n, have taken tokens, so the instruction can start.
  When it signals, its counter holds no more than in program order, because consumers can only be
  further ahead; so the counter is not full. The instruction therefore completes, and by induction
  all do.
* **Balance.** All counters are zero at the end, and the next program starts clean.
* **No race.** Timing does not change which signal meets which wait. One walk in program order with
  vector clocks therefore finds every guaranteed order. Instruction A is complete before B starts if
  A, or a later instruction of A's unit, signals a token that B, or an earlier instruction of B's
  unit, has taken; this relation is transitive. If `footprints.conflicts` reports two instructions
  of different units, they must be ordered in this way. Any execution can then be rearranged into
  program order by exchanging neighbours that touch different bytes, and no bank ever has two
  readers or two writers.

The proof relies on two guarantees of the hardware. A unit starts and completes its instructions in
order. A unit takes tokens before its first access and gives them after its last access is done: all
bytes are in the scratchpad (LOAD), or all write responses have arrived (STORE).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import ProgramError
from ..wording import counted
from .configuration import Configuration
from .footprints import Footprint, explain_conflict, footprint, last_conflict
from .instructions import Halt, Instruction, Unit
from .legality import instruction_faults


@dataclass(frozen=True, slots=True)
class Report:
    """Statistics of a program that the checker accepted.

    Parameters
    ----------
    instructions
        Number of instructions, including HALT.
    per_unit
        Number of instructions that pass through each unit's queue.
    tokens
        Total number of tokens given.
    peak_tokens
        Largest number of pending tokens for each ordered pair of units, in program order.
    concurrent_pairs
        Pairs of instructions that may run at the same time; none of them conflict.
    """

    instructions: int
    per_unit: dict[Unit, int]
    tokens: int
    peak_tokens: dict[tuple[Unit, Unit], int]
    concurrent_pairs: int


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule: its text and the index of the instruction (None for the whole program)."""

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
        self.passed: dict[Unit, list[tuple[int, Instruction]]] = {u: [] for u in Unit}
        self.footprints: dict[Unit, list[Footprint]] = {unit: [] for unit in Unit}
        self.tokens = 0
        self.concurrent_pairs = 0

    def visit(self, index: int, instruction: Instruction) -> Iterator[str]:
        """Every fault that this instruction adds."""
        yield from instruction_faults(instruction, self.configuration, self.data_bytes)
        unit = instruction.home
        if unit is None:
            return
        here = footprint(instruction, self.configuration)
        yield from self._take_tokens(unit, instruction)
        yield from self._races(unit, instruction, here)
        self.passed[unit].append((index, instruction))
        self.footprints[unit].append(here)
        yield from self._give_tokens(unit, index, instruction)

    def _take_tokens(self, unit: Unit, instruction: Instruction) -> Iterator[str]:
        known = self.known[unit]
        for giver in sorted(instruction.wait):
            queue = self.pending[giver, unit]
            if not queue:
                yield (
                    f"waits for a token of {giver.name} that no earlier instruction signals; the "
                    "machine would wait forever; signal it earlier or remove the wait"
                )
                continue
            _, clock = queue.popleft()
            known[:] = map(max, known, clock)

    def _races(self, unit: Unit, instruction: Instruction, here: Footprint) -> Iterator[str]:
        for other in Unit:
            if other is unit:
                continue
            first, end = self.known[unit][other], len(self.passed[other])
            self.concurrent_pairs += end - first
            if last_conflict(self.footprints[other], first, here) is None:
                continue
            for earlier_index, earlier in self.passed[other][first:]:
                reason = explain_conflict(earlier, instruction, self.configuration)
                if reason is not None:
                    yield (
                        f"races with instruction {earlier_index} ({earlier.mnemonic}): no "
                        f"token orders them and {reason}; let {other.name} signal {unit.name} "
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
        """Report tokens that no instruction waits for."""
        for (giver, taker), queue in self.pending.items():
            if queue:
                indices = ", ".join(str(index) for index, _ in queue)
                yield Fault(
                    queue[0][0],
                    f"instruction {queue[0][0]}: signals {taker.name}, but at the end "
                    f"{counted(len(queue), 'token')} of {giver.name} "
                    f"(instruction{'s' * (len(queue) > 1)} {indices}) "
                    f"{'are' if len(queue) > 1 else 'is'} left over; let {taker.name} wait for "
                    "each, or remove the signal",
                )


def faults(
    program: Sequence[Instruction], configuration: Configuration, data_bytes: int
) -> Iterator[Fault]:
    """Every broken rule of a program, in program order; empty for a legal program."""
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
                "HALT must be the last instruction",
            )
            return
    if not program or not isinstance(program[-1], Halt):
        yield Fault(
            None,
            f"program of {counted(len(program), 'instruction')}: no HALT at the end; append one",
        )
    yield from walk.leftovers()


def check(program: Sequence[Instruction], configuration: Configuration, data_bytes: int) -> Report:
    """Accept a program if every execution equals program order; otherwise report the fault.

    Parameters
    ----------
    program
        Instructions in program order, HALT last.
    configuration
        The machine that runs the program.
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
