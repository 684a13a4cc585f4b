"""Good programs with small deliberate faults, to test that the checker finds them."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from ....errors import IsaError
from ....isa.assembly import plain_fields
from ....isa.instructions import Halt, Instruction, Loop, Unit, peers
from ....isa.vector_operations import OPERATIONS, Operation

Program = tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed program and a description of the change."""

    text: str
    program: Program


def mutants(program: Sequence[Instruction], seed: int) -> Iterator[Mutant]:
    """Changed copies of a program, without end; the same seed gives the same ones.

    Changes that give the same program, or that no instruction can express, are drawn again.
    """
    chance = random.Random(seed)
    original = tuple(program)
    changes = tuple(_CHANGES)
    weights = tuple(_CHANGES.values())
    while True:
        change = chance.choices(changes, weights)[0]
        try:
            text, changed = change(original, chance)
        except IsaError:
            continue
        if changed != original:
            yield Mutant(text, changed)


def _with(program: Program, index: int, **changes) -> Program:
    return (*program[:index], replace(program[index], **changes), *program[index + 1 :])


def _pick(program: Program, chance: random.Random) -> int:
    return chance.randrange(len(program))


def _drop_wait(program: Program, chance: random.Random) -> tuple[str, Program]:
    return _drop(program, chance, "wait")


def _drop_signal(program: Program, chance: random.Random) -> tuple[str, Program]:
    return _drop(program, chance, "signal")


def _drop(program: Program, chance: random.Random, mask: str) -> tuple[str, Program]:
    holders = [i for i, instruction in enumerate(program) if getattr(instruction, mask)]
    if not holders:
        raise IsaError(f"no instruction has a {mask}")
    index = chance.choice(holders)
    unit = chance.choice(sorted(getattr(program[index], mask)))
    kept = getattr(program[index], mask) - {unit}
    return f"drop {mask} {unit.name} of {index}", _with(program, index, **{mask: kept})


def _drop_token(program: Program, chance: random.Random) -> tuple[str, Program]:
    """Both ends of one token."""
    tokens = token_ends(program)
    if not tokens:
        raise IsaError("no tokens")
    giver, taker = chance.choice(tokens)
    source, target = program[giver].home, program[taker].home
    changed = _with(program, giver, signal=program[giver].signal - {target})
    changed = _with(changed, taker, wait=changed[taker].wait - {source})
    return f"drop token {giver} -> {taker}", changed


def token_ends(program: Sequence[Instruction]) -> list[tuple[int, int]]:
    """Indices of the instructions that give and take each token, first in, first out."""
    waiting: dict[tuple[Unit, Unit], list[int]] = {(u, v): [] for u in Unit for v in Unit}
    ends = []
    for index, instruction in enumerate(program):
        home = instruction.home
        if home is None:
            continue
        for source in sorted(instruction.wait):
            if waiting[source, home]:
                ends.append((waiting[source, home].pop(0), index))
        for target in sorted(instruction.signal):
            waiting[home, target].append(index)
    return ends


def _add_token(program: Program, chance: random.Random) -> tuple[str, Program]:
    index = _pick(program, chance)
    home = program[index].home
    if home is None:
        raise IsaError("HALT has no tokens")
    mask, unit = chance.choice(("wait", "signal")), chance.choice(peers(home))
    more = getattr(program[index], mask) | {unit}
    return f"add {mask} {unit.name} to {index}", _with(program, index, **{mask: more})


def _move_signal(program: Program, chance: random.Random) -> tuple[str, Program]:
    """Give a token one instruction of the same unit earlier or later."""
    givers = [i for i, instruction in enumerate(program) if instruction.signal]
    if not givers:
        raise IsaError("no tokens")
    index = chance.choice(givers)
    unit = chance.choice(sorted(program[index].signal))
    line = [i for i, other in enumerate(program) if other.home is program[index].home]
    place = line.index(index) + chance.choice((-1, 1))
    if not 0 <= place < len(line):
        raise IsaError("no such neighbour")
    changed = _with(program, index, signal=program[index].signal - {unit})
    other = line[place]
    changed = _with(changed, other, signal=changed[other].signal | {unit})
    return f"move signal {unit.name} from {index} to {other}", changed


def _swap(program: Program, chance: random.Random) -> tuple[str, Program]:
    one, other = _pick(program, chance), _pick(program, chance)
    if chance.random() < 0.7:
        other = min(one + 1, len(program) - 1)
    changed = list(program)
    changed[one], changed[other] = changed[other], changed[one]
    return f"swap {one} and {other}", tuple(changed)


def _drop_instruction(program: Program, chance: random.Random) -> tuple[str, Program]:
    index = _pick(program, chance)
    return f"drop instruction {index}", program[:index] + program[index + 1 :]


def _repeat_instruction(program: Program, chance: random.Random) -> tuple[str, Program]:
    index = _pick(program, chance)
    return f"repeat instruction {index}", program[: index + 1] + program[index:]


def _change_field(program: Program, chance: random.Random) -> tuple[str, Program]:
    """Shift an address or constant, flip a flag, or choose another code."""
    index = _pick(program, chance)
    if isinstance(program[index], Halt):
        raise IsaError("HALT has no fields")
    field = chance.choice(plain_fields(type(program[index])))
    value = getattr(program[index], field.name)
    if isinstance(value, bool):
        value = not value
    elif isinstance(value, IntEnum):
        value = chance.choice(tuple(type(value)))
    elif isinstance(value, Operation):
        value = chance.choice(OPERATIONS)
    else:
        value += chance.choice((-1, 1)) * _step(chance)
    text = f"change `{field.name}` of {index} to {value}"
    return text, _with(program, index, **{field.name: value})


def _step(chance: random.Random) -> int:
    return chance.choice((1, 2, 16, 1 << chance.randrange(18)))


def _change_loop(program: Program, chance: random.Random) -> tuple[str, Program]:
    """Change an extent or a stride."""
    looping = [
        (index, nest, level)
        for index, instruction in enumerate(program)
        for nest in instruction.nests
        for level in range(len(getattr(instruction, nest)))
    ]
    if not looping:
        raise IsaError("no loops")
    index, nest, level = chance.choice(looping)
    loops = list(getattr(program[index], nest))
    extent, strides = loops[level].extent, list(loops[level].strides)
    if chance.random() < 0.5:
        extent += chance.choice((-1, 1, 2, 8))
    else:
        strides[chance.randrange(len(strides))] += chance.choice((-1, 1)) * _step(chance)
    loops[level] = Loop(extent, tuple(strides))
    text = f"change `{nest}.{level}` of {index} to {extent}: {strides}"
    return text, _with(program, index, **{nest: tuple(loops)})


_CHANGES: dict[Callable[[Program, random.Random], tuple[str, Program]], int] = {
    _drop_token: 5,
    _drop_wait: 2,
    _drop_signal: 2,
    _add_token: 2,
    _move_signal: 3,
    _swap: 4,
    _drop_instruction: 2,
    _repeat_instruction: 1,
    _change_field: 6,
    _change_loop: 4,
}
"""Kinds of changes with their relative frequency."""
