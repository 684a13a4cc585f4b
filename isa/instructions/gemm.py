"""GEMM: one activation vector against a stationary weight tile per cycle."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import IsaError
from ..configuration import Configuration, Memory
from ..fields import Field, address_width
from ..pipeline import GEMM_REVISIT_STEPS, GEMM_TAIL_CYCLES, LINE_STEPS
from .common import Instruction, Operand, Role, Unit
from .loops import Loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm(Instruction):
    """Multiply and accumulate over a whole convolution tile.

    The tile loops take a new weight tile at each iteration; the row loops inside them stream ACT
    rows against it. A tile loop whose `acc` stride is zero is a reduction. Without `accumulate`, an
    accumulator is overwritten when all reduction loops are at their first iteration.

    A `depthwise` GEMM keeps channels apart: row `k * depthwise_taps + j` of the weight tile, for
    `j` below the configuration's `depthwise_taps` and `k` below its `window_lines`, multiplies
    the ACT row of `k` iterations earlier in the row loop outside the innermost one and `j` steps
    earlier in the innermost one, channel by channel. The other rows of the tile are ignored. Rows
    before the first iteration of either loop count as zero, so the first sums are incomplete. So do
    all of earlier lines if the innermost row loop has more than 32 iterations. Output `o` takes
    channel `part * lanes_out + o % lanes_in`. Footprint and duration are the same as without
    `depthwise`.

    Parameters
    ----------
    accumulate
        Add to the contents of ACC from the first step on.
    depthwise
        Multiply channel by channel; requires `depthwise_taps` above 0.
    part
        Group of `lanes_out` channels of an ACT row that a depthwise GEMM reads. It is 0 if
        `lanes_in` is not greater than `lanes_out`, and in every GEMM that is not depthwise.
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
        "ACC[acc, o] = (first ? 0 : ACC[acc, o]) + sum_i ACT[act, i] * WGT[wgt, i, o]\n"
        "depthwise: ... + sum_kj ACT[act k lines and j steps earlier, channel] * WGT[wgt, k j, o]"
    )
    time: ClassVar[str] = (
        f"each tile takes max(rows, lanes_in, {GEMM_REVISIT_STEPS}) cycles; complete "
        f"{GEMM_TAIL_CYCLES} + log2(lanes_in) cycles after the last row"
    )
    operands: ClassVar[tuple[Operand, ...]] = (
        Operand("act", reads=True),
        Operand("wgt", reads=True),
        Operand("acc", reads=True, writes=True),
    )
    roles: ClassVar[dict[str, Role]] = {
        "act": Role.STREAM,
        "wgt": Role.WEIGHTS,
        "acc": Role.ACCUMULATOR,
    }
    nests: ClassVar[dict[str, tuple[str, ...]]] = {
        "tile_loops": ("act", "wgt", "acc"),
        "row_loops": ("act", "acc"),
    }
    places: ClassVar[dict[str, dict[Memory, dict[str, Any]]]] = {
        "act": {Memory.ACT: {}},
        "wgt": {Memory.WGT: {}},
        "acc": {Memory.ACC: {}},
    }
    forgotten: ClassVar[tuple[str, ...]] = ("part",)
    reduction_nest: ClassVar[str] = "tile_loops"
    reduced_operand: ClassVar[str] = "acc"
    continue_field: ClassVar[str] = "accumulate"
    lane_group_field: ClassVar[str] = "part"

    accumulate: bool = False
    depthwise: bool = False
    part: int = 0
    act: int
    wgt: int
    acc: int
    tile_loops: tuple[Loop, ...] = ()
    row_loops: tuple[Loop, ...] = ()

    @classmethod
    def immediates(cls, configuration: Configuration) -> tuple[Field, ...]:
        """The accumulate flag; depthwise flag and part if the configuration has them."""
        depthwise = configuration.depthwise_taps > 0
        part_bits = (configuration.depthwise_parts - 1).bit_length()
        return (
            Field("accumulate", 1),
            Field("depthwise", int(depthwise)),
            Field("part", part_bits if depthwise else 0),
        )

    def values(self, configuration: Configuration) -> dict[str, int]:
        """Value of every field of the layout.

        Raises
        ------
        IsaError
            When there are too many loops, or a depthwise GEMM has no taps.
        """
        if self.depthwise and not configuration.depthwise_taps:
            raise IsaError(
                f"configuration `{configuration.name}` has no depthwise mode "
                "(`depthwise_taps` = 0); leave out `depthwise` or raise `depthwise_taps`"
            )
        return super(Gemm, self).values(configuration)

    @classmethod
    def base_bits(cls, operand: str, configuration: Configuration) -> int:
        """Rows of ACT, tiles of WGT, rows of ACC."""
        rows = {
            "act": configuration.rows(Memory.ACT),
            "wgt": configuration.weight_tiles,
            "acc": configuration.rows(Memory.ACC),
        }
        return address_width(rows[operand])

    @classmethod
    def granule(cls, operand: str, memory: Memory, configuration: Configuration) -> int:
        """A row, or a tile."""
        row = configuration.row_bytes(memory)
        return row * configuration.lanes_in if operand == "wgt" else row

    @classmethod
    def legal_values(cls, name: str, configuration: Configuration) -> Sequence[Any]:
        """Limit `part` to the channel groups of an ACT row."""
        if name == "part":
            return range(configuration.depthwise_parts if configuration.depthwise_taps else 1)
        return super(Gemm, cls).legal_values(name, configuration)

    def takes_effect(self, name: str) -> bool:
        """`part` matters only in a depthwise GEMM."""
        return name != "part" or self.depthwise

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

    def run_steps(self) -> int:
        """Iterations of the innermost row loop, along which a depthwise GEMM reads earlier rows."""
        return self.row_loops[-1].extent if self.row_loops else 1

    def run_lines(self, configuration: Configuration) -> int:
        """Iterations of the row loop outside the innermost one, as far as a depthwise GEMM reads
        rows of earlier ones."""
        kept = self.run_steps() <= LINE_STEPS and configuration.window_lines > 1
        return self.row_loops[-2].extent if kept and len(self.row_loops) > 1 else 1
