"""The order of a program's instructions, chosen so that full queues do not hold other units up.

FETCH issues instructions in program order. If the queue of one unit is full, all later instructions
wait, although their units may be idle. But instructions of different units may be in any order in
which each one follows those that it depends on. So an instruction whose queue would be full is put
after later ones that would start before it. Shallow queues are then nearly as fast as deep ones.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...isa.configuration import Configuration
from ...isa.encoding import word_bytes
from ...isa.footprints import footprint
from ...isa.instructions import Instruction, Unit
from ...isa.tokens import synthesise_tokens
from .load_order import LoadOrder, Span, Spans

PASSING = (0, False), (300, False), (0, True)
"""The arguments of `LoadOrder.passing` that are tried."""

ROUNDS = 3
"""Times that loads are ordered anew, each by the cycles of the order before."""

MAX_REORDERED = 10_000
"""Instructions of a program up to which loads are ordered anew: half a millisecond each."""

Measure = Callable[[Sequence[Instruction], Configuration], tuple[int, Sequence[int] | None]]
"""Gives the cycles of a program that the checker accepts. If deeper queues would make the program
faster, it also gives the cycle in which each instruction would start with them, otherwise None."""


Weave = Callable[[Sequence[Instruction], Configuration], tuple[Instruction, ...]]
"""Orders all conflicts of a program by tokens, as `synthesise_tokens` does."""


def weaver_of(measure: Measure | None) -> Weave:
    """The `weave` of a measure, a faster one with the same tokens; otherwise the definition."""
    return getattr(measure, "weave", synthesise_tokens)


class Issued(NamedTuple):
    """A program with tokens, in the order in which it is issued.

    Parameters
    ----------
    program
        The instructions, SYNCs where tokens need them, and HALT.
    order
        For each instruction that is not a SYNC or HALT, its index in the original order.
    cycles
        From start to done; 0 without a measure.
    """

    program: tuple[Instruction, ...]
    order: Sequence[int]
    cycles: int = 0


def issue(
    instructions: Sequence[Instruction],
    configuration: Configuration,
    measure: Measure | None,
    program: tuple[Instruction, ...] = (),
) -> Issued:
    """Order a sequence of instructions, and add tokens.

    Parameters
    ----------
    instructions
        In an order in which each one follows those that it depends on; without tokens.
    measure
        Without it, the order stays.
    program
        The same with tokens, if the caller has it.
    """
    order: Sequence[int] = range(len(instructions))
    weave = weaver_of(measure)
    program = program or weave(instructions, configuration)
    if measure is None:
        return Issued(program, order)
    cycles, starts = measure(program, configuration)
    if starts is not None:
        begins = [
            start
            for start, instruction in zip(starts, program[:-1], strict=False)
            if not instruction.only_tokens
        ]
        found = _passing(instructions, begins, configuration)
        other = weave([instructions[index] for index in found], configuration)
        least, _ = measure(other, configuration)
        if least < cycles:
            return Issued(other, found, least)
    return Issued(program, order, cycles)


def reorder_loads(
    instructions: Sequence[Instruction],
    issued: Issued,
    configuration: Configuration,
    measure: Measure | None,
) -> Issued:
    """Let loads pass others that wait, where that saves cycles; see `LoadOrder`.

    Parameters
    ----------
    issued
        The instructions as `issue` orders them.
    """
    spans_of: Spans | None = getattr(measure, "spans", None)
    if spans_of is None or len(instructions) > MAX_REORDERED:
        return issued
    footprints = [footprint(one, configuration) for one in instructions]
    conflicts: dict[int, bool] = {}
    for _ in range(ROUNDS):
        before = [instructions[index] for index in issued.order]
        used = [footprints[index] for index in issued.order]
        base = issued
        spans = [Span(*each) for each in spans_of(base.program, configuration)]
        loads = LoadOrder(base.order, used, spans, conflicts)
        for delay, patient in PASSING:
            order = loads.passing(delay, patient=patient)
            found = issue([before[index] for index in order], configuration, measure)
            if found.cycles < issued.cycles:
                issued = found._replace(order=[base.order[order[index]] for index in found.order])
        if issued is base:
            break
    return issued


def _passing(
    instructions: Sequence[Instruction],
    starts: Sequence[int],
    configuration: Configuration,
) -> list[int]:
    """Return the order in which a dispatcher takes instructions that may pass others.

    An instruction may pass an earlier one that starts no earlier, since it cannot depend on it.

    Parameters
    ----------
    starts
        Cycle in which each instruction starts if no queue is ever full.
    """
    depth = configuration.queue_depth
    word_cycles = word_bytes(configuration) // configuration.bus_bytes
    begun = {unit: [-1] * depth for unit in Unit}
    waiting = {unit: deque[int]() for unit in Unit}
    for index, instruction in enumerate(instructions):
        assert instruction.home is not None
        waiting[instruction.home].append(index)
    order: list[int] = []
    cycle = 0
    while len(order) < len(instructions):
        earliest = wakes = math.inf
        for index, unit in sorted((queue[0], unit) for unit, queue in waiting.items() if queue):
            if starts[index] <= earliest:
                earliest, freed = starts[index], begun[unit][-depth]
                if freed < cycle:
                    order.append(waiting[unit].popleft())
                    begun[unit].append(starts[index])
                    cycle += word_cycles
                    break
                wakes = min(wakes, freed + 1)
        else:
            cycle = wakes
    return order
