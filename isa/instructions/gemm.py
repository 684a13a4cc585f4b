"""GEMM: one activation vector against a stationary weight tile per cycle."""

from dataclasses import dataclass
from typing import ClassVar

from ..configuration import Configuration, Memory
from ..fields import Field, address_width
from .common import Instruction, Loop, Operand, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm(Instruction):
    """Multiply and accumulate over a whole convolution tile.

    The tile loops take a new weight tile at each iteration; the row loops inside them stream ACT
    rows against it. Without `accumulate`, an accumulator is overwritten where every tile loop whose
    `acc` stride is zero (a reduction) stands at its first iteration.

    Parameters
    ----------
    accumulate
        Add to what ACC holds from the first step on.
    act, wgt, acc
        ACT row, weight tile (`lanes_in` rows of WGT), ACC row.
    tile_loops
        Strides `(act, wgt, acc)`.
    row_loops
        Strides `(act, acc)`.
    """

    unit: ClassVar[Unit] = Unit.GEMM
    opcode: ClassVar[int] = 2
    mnemonic: ClassVar[str] = "gemm"
    law: ClassVar[str] = (
        "ACC[acc, o] = (first ? 0 : ACC[acc, o]) + sum_i ACT[act, i] * WGT[wgt, i, o]"
    )
    time: ClassVar[str] = (
        "each tile takes max(rows, lanes_in, 4) cycles; complete 7 + log2(lanes_in) cycles after "
        "the last row"
    )
    operands: ClassVar[tuple[Operand, ...]] = (
        Operand("act", reads=True),
        Operand("wgt", reads=True),
        Operand("acc", reads=True, writes=True),
    )
    nests: ClassVar[dict[str, tuple[str, ...]]] = {
        "tile_loops": ("act", "wgt", "acc"),
        "row_loops": ("act", "acc"),
    }

    accumulate: bool = False
    act: int
    wgt: int
    acc: int
    tile_loops: tuple[Loop, ...] = ()
    row_loops: tuple[Loop, ...] = ()

    def __post_init__(self) -> None:
        super(Gemm, self).__post_init__()
        object.__setattr__(self, "accumulate", bool(self.accumulate))

    @classmethod
    def immediates(cls, configuration: Configuration) -> tuple[Field, ...]:
        """The accumulate flag."""
        return (Field("accumulate", 1),)

    @classmethod
    def base_bits(cls, operand: str, configuration: Configuration) -> int:
        """Rows of ACT, tiles of WGT, rows of ACC."""
        rows = {
            "act": configuration.rows(Memory.ACT),
            "wgt": configuration.rows(Memory.WGT) // configuration.lanes_in,
            "acc": configuration.rows(Memory.ACC),
        }
        return address_width(rows[operand])

    def memory_of(self, operand: str) -> Memory:
        """Each operand has its own scratchpad."""
        return {"act": Memory.ACT, "wgt": Memory.WGT, "acc": Memory.ACC}[operand]

    def granule_bytes(self, operand: str, configuration: Configuration) -> int:
        """A row, or a tile."""
        row = configuration.row_bytes(self.memory_of(operand))
        return row * configuration.lanes_in if operand == "wgt" else row

    def tiles(self) -> int:
        """Iterations of the tile loops."""
        total = 1
        for loop in self.tile_loops:
            total *= loop.extent
        return total

    def rows(self) -> int:
        """Iterations of the row loops."""
        total = 1
        for loop in self.row_loops:
            total *= loop.extent
        return total
