"""Explanation of a hang, from the units' state registers and the instructions concerned."""

from collections.abc import Callable, Mapping, Sequence

from ..isa.instructions import Instruction, Unit
from ..isa.instructions.common import peers

WORKING, WAITING_TO_SIGNAL, WAITING_FOR_MEMORY = 1 << 0, 1 << 4, 1 << 5


def explain_hang(
    read: Callable[[str], int],
    counts: Mapping[Unit, tuple[int, int]],
    program: Sequence[Instruction],
) -> str:
    """Describe what each unit does or waits for.

    Parameters
    ----------
    read
        Reads a register by name.
    counts
        Numbers of instructions that each unit has started and retired.
    program
        Program for naming instructions; may be empty.
    """
    sentences = [f"FETCH has dispatched {read('FETCHED')} of {len(program) or '?'} instructions"]
    for unit in Unit:
        state, tokens = read(f"{unit.name}_STATE"), read(f"{unit.name}_TOKENS")
        sentences.append(_explain_unit(unit, state, tokens, counts[unit], program))
    return "; ".join(sentences)


def _explain_unit(
    unit: Unit,
    state: int,
    tokens: int,
    counts: tuple[int, int],
    program: Sequence[Instruction],
) -> str:
    started, retired = counts
    queued = state >> 8 & 0xFF
    others = peers(unit)
    missing = [
        other.name
        for bit, other in enumerate(others)
        if state >> (1 + bit) & 1 and not tokens >> (8 * bit) & 0xFF
    ]
    if missing:
        instruction = _name(unit, started, program)
        return f"{unit.name} waits for a token of {' and '.join(missing)} to start {instruction}"
    if state & WAITING_TO_SIGNAL:
        instruction = _name(unit, retired, program)
        return f"{unit.name} waits to signal (a token counter is full) to retire {instruction}"
    if state & WAITING_FOR_MEMORY:
        return f"{unit.name} waits for a beat of memory in {_name(unit, retired, program)}"
    if state & WORKING:
        return f"{unit.name} works on {_name(unit, retired, program)}"
    return f"{unit.name} is idle, {queued} queued" if queued else f"{unit.name} is idle"


def _name(unit: Unit, number: int, program: Sequence[Instruction]) -> str:
    """The n-th instruction of a unit, by its index in the program."""
    places = [index for index, instruction in enumerate(program) if instruction.home is unit]
    if number < len(places):
        return f"instruction {places[number]} ({program[places[number]].mnemonic})"
    return f"its instruction number {number}"
