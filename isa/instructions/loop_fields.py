"""Fields of loop nests in an instruction word: extents, jumps, and which loops reduce."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...errors import IsaError
from ..configuration import Configuration
from ..fields import Field
from .loops import Loop

if TYPE_CHECKING:
    from .common import Instruction


class Jump(NamedTuple):
    """The jump of a loop level for one operand: its field, of signed values below `half`."""

    operand: str
    field: Field
    half: int


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
    jumps: tuple[Jump, ...]

    def __iter__(self) -> Iterator[Field]:
        yield self.extent
        if self.reduces:
            yield self.reduces
        for jump in self.jumps:
            yield jump.field


class LoopFields:
    """Fields of all loop levels of a family.

    Loops fill the innermost levels of their nest. A level of extent 1 never steps, so its other
    fields have no meaning; they are written as 0.

    Attributes
    ----------
    nests
        The levels of each nest, outermost first.
    """

    def __init__(self, family: "type[Instruction]", configuration: Configuration) -> None:
        self.mnemonic = family.mnemonic
        self.configuration_name = configuration.name
        self.reduced = family.reduced_operand
        bits = {o.name: family.base_bits(o.name, configuration) + 1 for o in family.operands}
        half = {name: 1 << (bits[name] - 1) for name in bits}
        self.operands = tuple(bits)
        self.nests: dict[str, tuple[LevelFields, ...]] = {}
        for nest, moved in family.nests.items():
            has_flag = nest == family.reduction_nest and self.reduced in moved
            if has_flag:
                self.reduced_index = moved.index(self.reduced)
            self.nests[nest] = tuple(
                LevelFields(
                    Field(f"{nest}.{level}.extent", configuration.extent_bits, offset=1),
                    Field(f"{nest}.{level}.reduces", 1) if has_flag else None,
                    tuple(
                        Jump(o, Field(f"{nest}.{level}.{o}", bits[o], signed=True), half[o])
                        for o in moved
                    ),
                )
                for level in range(family.levels(nest, configuration))
            )

    def values(self, instruction: "Instruction") -> dict[str, int]:
        """Values of the fields of an instruction's loops; all other levels have extent 1.

        Jumps are those of `nest_jumps`, modulo the range of their fields.

        Raises
        ------
        IsaError
            When there are too many loops, or a stride does not fit.
        """
        values: dict[str, int] = {}
        inside = dict.fromkeys(self.operands, 0)
        for nest, levels in reversed(self.nests.items()):
            loops = getattr(instruction, nest)
            if len(loops) > len(levels):
                raise IsaError(
                    f"{len(loops)} loops in `{nest}`; "
                    f"configuration `{self.configuration_name}` has {len(levels)} levels"
                )
            for fields, loop in zip(reversed(levels), reversed(loops), strict=False):
                values[fields.extent.name] = loop.extent
                if fields.reduces:
                    values[fields.reduces.name] = int(loop.strides[self.reduced_index] == 0)
                again = loop.extent - 1
                for (operand, field, half), stride in zip(fields.jumps, loop.strides, strict=True):
                    if not -half <= stride < half:
                        field.encode(stride)  # names the range
                    values[field.name] = (stride - inside[operand] + half) % (2 * half) - half
                    inside[operand] += again * stride
        return values

    def loops(self, values: Mapping[str, int]) -> dict[str, tuple[Loop, ...]]:
        """Inverse of `values`, by nest.

        Raises
        ------
        IsaError
            When a flag `reduces` contradicts the stride.
        """
        found: dict[str, tuple[Loop, ...]] = {}
        inside = dict.fromkeys(self.operands, 0)
        for nest, levels in reversed(self.nests.items()):
            loops = []
            for fields in reversed(levels):
                extent = values[fields.extent.name]
                if extent == 1:
                    continue
                strides = []
                for operand, field, half in fields.jumps:
                    stride = (values[field.name] + inside[operand] + half) % (2 * half) - half
                    inside[operand] += (extent - 1) * stride
                    strides.append(stride)
                if fields.reduces:
                    self._check_flag(fields.reduces, values, strides[self.reduced_index])
                loops.insert(0, Loop(extent, tuple(strides)))
            found[nest] = tuple(loops)
        return found

    def _check_flag(self, flag: Field, values: Mapping[str, int], stride: int) -> None:
        if values[flag.name] != (stride == 0):
            raise IsaError(
                f"{self.mnemonic}: `{flag.name}` is {values[flag.name]}, but the loop's stride of "
                f"`{self.reduced}` is {stride}; expected 1 for stride 0, and 0 for any other stride"
            )
