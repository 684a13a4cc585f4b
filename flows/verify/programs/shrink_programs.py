"""Shrink a failing program to a minimal one that still fails; every step is legal.

There are two ways to keep programs legal. Tokens are recomputed from the conflicts; or, if the
tokens themselves cause the failure, an instruction is removed with both ends of its tokens. The
caller sees only programs that the checker accepts. Nothing is random: the same program and the same
answers give the same result.

Why not Hypothesis: it shrinks the draws of its own engine, but a failing program may come from a
compiler, a file or a seed. Without tokens that match, nearly all shorter programs are illegal too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, replace
from enum import IntEnum
from typing import Any

from ....errors import IsaError, ProgramError
from ....isa.assembly import plain_fields
from ....isa.checker import check
from ....isa.configuration import Configuration
from ....isa.instructions import Halt, Instruction, Loop
from ....isa.tokens import synthesise_tokens
from ....isa.vector_operations import OPERATIONS, Operation
from .mutants import token_ends

Program = tuple[Instruction, ...]

MAX_TRIES = 4000
"""Programs offered to the caller before the smallest so far is taken."""


def shrink(
    program: Sequence[Instruction],
    configuration: Configuration,
    data_bytes: int,
    fails: Callable[[Program], bool],
    most_tries: int = MAX_TRIES,
) -> Program:
    """The smallest program found that still fails.

    Parameters
    ----------
    program
        A program that fails, with tokens, HALT last.
    data_bytes
        Size of the data window, for the checker.
    fails
        Tells whether a program shows the failure. Called with legal programs only.
    most_tries
        Largest number of calls of `fails`.

    Raises
    ------
    ProgramError
        When the program itself is not legal, or does not fail.
    """
    program = tuple(program)
    check(program, configuration, data_bytes)
    if not fails(program):
        raise ProgramError(
            f"shrink: expected a program that fails, got one of {len(program)} instructions that "
            "does not; pass the predicate that it fails"
        )
    return _Shrinking(configuration, data_bytes, fails, most_tries).smallest(program)


class _Shrinking:
    """The predicate, and the number of calls left."""

    def __init__(
        self,
        configuration: Configuration,
        data_bytes: int,
        fails: Callable[[Program], bool],
        tries: int,
    ) -> None:
        self.configuration = configuration
        self.data_bytes = data_bytes
        self.fails = fails
        self.tries = tries

    def accepts(self, candidate: Program) -> bool:
        """Whether a candidate is legal and fails."""
        if self.tries <= 0:
            return False
        try:
            check(candidate, self.configuration, self.data_bytes)
        except (IsaError, ProgramError):
            return False
        self.tries -= 1
        return self.fails(candidate)

    def smallest(self, program: Program) -> Program:
        """Alternate between fewer instructions and smaller ones until neither helps."""
        woven = self.woven(program)
        if woven != program and self.accepts(woven):
            program = woven
        before: Program = ()
        while program != before and self.tries > 0:
            before = program
            program = self.fewer_instructions(program)
            program = self.fewer_tokens(program)
            program = self.smaller_instructions(program)
        return program

    def woven(self, program: Sequence[Instruction]) -> Program:
        """The same work with new tokens for its conflicts."""
        return synthesise_tokens(program, self.configuration)

    def either_way(self, kept: Program) -> Program | None:
        """A program as it is, or with new tokens, whichever is legal and fails."""
        if self.accepts(kept):
            return kept
        woven = self.woven(kept)
        return woven if woven != kept and self.accepts(woven) else None

    def fewer_instructions(self, program: Program) -> Program:
        """Remove halves, quarters and so on, down to single instructions."""
        size = max(1, len(program) // 2)
        while size:
            start = 0
            while start < len(program) - 1:
                chosen = range(start, min(start + size, len(program) - 1))
                shorter = self.either_way(without(program, chosen))
                if shorter is None or len(shorter) >= len(program):
                    start += size
                else:
                    program = shorter
            size //= 2
        return program

    def fewer_tokens(self, program: Program) -> Program:
        """Remove single unnecessary tokens, both ends."""
        place = 0
        while place < len(ends := token_ends(program)):
            candidate = without_token(program, *ends[place])
            if self.accepts(candidate):
                program = candidate
            else:
                place += 1
        return program

    def smaller_instructions(self, program: Program) -> Program:
        """Simplify fields and loops, one change at a time, as long as it helps."""
        for index in range(len(program) - 1):
            changed = True
            while changed and index < len(program) - 1:
                changed = False
                for simpler in _simpler(program[index], self.configuration):
                    kept = (*program[:index], simpler, *program[index + 1 :])
                    found = self.either_way(kept)
                    if found is not None and len(found) <= len(program):
                        program, changed = found, True
                        break
        return program


def without(program: Program, chosen: Sequence[int]) -> Program:
    """Copy without some instructions and without every token that they give or take."""
    gone = set(chosen)
    for giver, taker in token_ends(program):
        if giver in gone or taker in gone:
            program = without_token(program, giver, taker)
    return tuple(instruction for index, instruction in enumerate(program) if index not in gone)


def without_token(program: Program, giver: int, taker: int) -> Program:
    """Return a copy without one token, at both of its ends."""
    source, target = program[giver], program[taker]
    changed = list(program)
    changed[giver] = replace(source, signal=source.signal - {target.home})
    changed[taker] = replace(changed[taker], wait=changed[taker].wait - {source.home})
    return tuple(changed)


def _simpler(instruction: Instruction, configuration: Configuration) -> Iterator[Instruction]:
    """Simpler versions, the largest changes first; never the instruction itself."""
    if isinstance(instruction, Halt):
        return
    for changes in _changes(instruction):
        try:
            changed = replace(instruction, **changes)
        except IsaError:
            continue
        if _weight(changed) < _weight(instruction):
            yield changed


def _changes(instruction: Instruction) -> Iterator[dict[str, Any]]:
    for nest in instruction.nests:
        loops: tuple[Loop, ...] = getattr(instruction, nest)
        for level, loop in enumerate(loops):
            rest = loops[:level], loops[level + 1 :]
            yield {nest: (*rest[0], *rest[1])}
            for extent in dict.fromkeys((2, loop.extent // 2, loop.extent - 1)):
                if 1 < extent < loop.extent:
                    yield {nest: (*rest[0], Loop(extent, loop.strides), *rest[1])}
            for operand, stride in enumerate(loop.strides):
                for simpler in dict.fromkeys((0, 1, int(stride / 2))):
                    if abs(simpler) < abs(stride):
                        strides = list(loop.strides)
                        strides[operand] = simpler
                        yield {nest: (*rest[0], Loop(loop.extent, tuple(strides)), *rest[1])}
    for field in plain_fields(type(instruction)):
        value = getattr(instruction, field.name)
        if isinstance(value, bool):
            yield {field.name: False}
        elif isinstance(value, IntEnum):
            yield {field.name: type(value)(0)}
        elif isinstance(value, Operation):
            yield {field.name: OPERATIONS[0]}
        else:
            plain = _plain(field.name, field.default)
            middle = plain + int((value - plain) / 2)
            nearer = value - 1 if value > plain else value + 1
            for simpler in dict.fromkeys((plain, middle, nearer)):
                yield {field.name: simpler}


def _plain(name: str, default: object) -> int:
    """The plainest value of a field that is a number."""
    if name == "length":
        return 1
    return default if isinstance(default, int) and default is not MISSING else 0


def _weight(instruction: Instruction) -> tuple[int, ...]:
    """Measure that shrinking lowers: loops, steps, then distances of fields from the plainest."""
    loops = strides = 0
    for nest in instruction.nests:
        for loop in getattr(instruction, nest):
            loops += 1
            strides += sum(map(abs, loop.strides))
    far = 0
    for field in plain_fields(type(instruction)):
        value = getattr(instruction, field.name)
        if isinstance(value, Operation):
            far += value != OPERATIONS[0]
            continue
        default = 0 if isinstance(value, bool | IntEnum) else _plain(field.name, field.default)
        far += abs(int(value) - default)
    return loops, instruction.steps() if instruction.nests else 1, strides, far
