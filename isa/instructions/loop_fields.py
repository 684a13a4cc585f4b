"""Fields of loop nests in an instruction word: extents, jumps, and which loops reduce."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import IsaError
from ..configuration import Configuration
from ..fields import Field
from .loops import Loop, nest_jumps, nest_strides

if TYPE_CHECKING:
    from .common import Instruction


@dataclass(frozen=True, slots=True)
class LevelFields:
    """Fields of one loop level.

    Parameters
    ----------
    extent
        Iterations.
    reduces
        Whether the loop reduces; None if the family has no such flag for the nest.
    jumps
        One for each operand that the nest moves.
    """

    extent: Field
    reduces: Field | None
    jumps: tuple[Field, ...]

    def __iter__(self) -> Iterator[Field]:
        yield self.extent
        if self.reduces:
            yield self.reduces
        yield from self.jumps


class LoopFields:
    """Fields of all loop levels of a family.

    Loops fill the innermost levels of their nest. A level of extent 1 never steps, so its other
    fields have no meaning; they are written as 0.

    Attributes
    ----------
    nests
        The levels of each nest, outermost first.
    bits
        Width of a jump of each operand.
    moving
        The nests that move an operand, outermost first, each with the operand's index in it.
    """

    def __init__(self, family: "type[Instruction]", configuration: Configuration) -> None:
        self.mnemonic = family.mnemonic
        self.configuration_name = configuration.name
        self.bits = bits = {
            o.name: family.base_bits(o.name, configuration) + 1 for o in family.operands
        }
        self.nests: dict[str, tuple[LevelFields, ...]] = {}
        for nest, moved in family.nests.items():
            has_flag = nest == family.reduction_nest and family.reduced_operand in moved
            self.nests[nest] = tuple(
                LevelFields(
                    Field(f"{nest}.{level}.extent", configuration.extent_bits, offset=1),
                    Field(f"{nest}.{level}.reduces", 1) if has_flag else None,
                    tuple(Field(f"{nest}.{level}.{o}", bits[o], signed=True) for o in moved),
                )
                for level in range(family.levels(nest, configuration))
            )
        self.reduced = family.reduced_operand
        if self.reduced:
            self.reduced_index = family.nests[family.reduction_nest].index(self.reduced)
        self.moving = {
            operand: tuple(
                (nest, moved.index(operand))
                for nest, moved in family.nests.items()
                if operand in moved
            )
            for operand in bits
        }

    def values(self, instruction: "Instruction") -> dict[str, int]:
        """Values of the fields of an instruction's loops; all other levels have extent 1.

        Raises
        ------
        IsaError
            When there are too many loops, or a stride does not fit.
        """
        values: dict[str, int] = {}
        used: dict[str, list[tuple[LevelFields, Loop]]] = {}
        for nest, levels in self.nests.items():
            loops = getattr(instruction, nest)
            if not loops:
                continue
            if len(loops) > len(levels):
                raise IsaError(
                    f"{len(loops)} loops in `{nest}`; "
                    f"configuration `{self.configuration_name}` has {len(levels)} levels"
                )
            used[nest] = list(zip(levels[-len(loops) :], loops, strict=True))
            for fields, loop in used[nest]:
                values[fields.extent.name] = loop.extent
                if fields.reduces:
                    values[fields.reduces.name] = int(loop.strides[self.reduced_index] == 0)
        if not used:
            return values
        for operand, nests in self.moving.items():
            fields, moves = [], []
            for nest, index in nests:
                for level, loop in used.get(nest, ()):
                    fields.append(level.jumps[index])
                    moves.append((loop.extent, loop.strides[index]))
            half = 1 << (self.bits[operand] - 1)
            for field, jump, (_, stride) in zip(fields, nest_jumps(moves), moves, strict=True):
                if not -half <= stride < half:
                    field.encode(stride)  # names the range
                values[field.name] = (jump + half) % (2 * half) - half
        return values

    def loops(self, values: Mapping[str, int]) -> dict[str, tuple[Loop, ...]]:
        """Inverse of `values`, by nest.

        Raises
        ------
        IsaError
            When a flag `reduces` contradicts the stride.
        """
        used = {
            nest: [level for level in levels if values[level.extent.name] != 1]
            for nest, levels in self.nests.items()
        }
        strides: dict[str, int] = {}
        for operand, nests in self.moving.items():
            names, moves = [], []
            for nest, index in nests:
                for level in used[nest]:
                    names.append(level.jumps[index].name)
                    moves.append((values[level.extent.name], values[names[-1]]))
            found = nest_strides(moves, self.bits[operand])
            strides.update(zip(names, found, strict=True))
        for fields in (each for levels in used.values() for each in levels if each.reduces):
            self._check_flag(fields, values, strides)
        return {
            nest: tuple(
                Loop(
                    values[fields.extent.name], tuple([strides[jump.name] for jump in fields.jumps])
                )
                for fields in levels
            )
            for nest, levels in used.items()
        }

    def _check_flag(
        self, fields: LevelFields, values: Mapping[str, int], strides: Mapping[str, int]
    ) -> None:
        flag, jump = fields.reduces, fields.jumps[self.reduced_index]
        if flag and values[flag.name] != (strides[jump.name] == 0):
            raise IsaError(
                f"{self.mnemonic}: `{flag.name}` is {values[flag.name]}, but the loop's stride of "
                f"`{self.reduced}` is {strides[jump.name]}; expected 1 for stride 0, and 0 for any "
                "other stride"
            )
