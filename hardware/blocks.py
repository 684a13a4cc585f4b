"""Blocks of an FPGA that a machine takes: the rules by which its units choose them.

This file has only numbers and imports no hardware description language, so counting the blocks of
many machines is quick. The units take the same rules from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..isa.configuration import Configuration, Memory

MIN_LANE_BLOCKS, USUAL_LANE_BLOCKS, MAX_LANE_BLOCKS = 2, 3, 4
"""Multiplier blocks that a lane of VECTOR takes at least, without a limit, and at most."""

MIN_ROW_BLOCKS, USUAL_ROW_BLOCKS = 4, 5
"""Multiplier blocks of statistics over rows; with the fewer, one product is made of logic."""

WORD_BITS = 64
"""Rows of scratchpads lie in words of at most this many bits, each in its own RAM."""

SHALLOW = 16
"""Greatest depth of a RAM made of logic cells without extra logic.

The iCE40 has no such RAM, and on a Gowin 64 bits take a whole tile of eight tables.
"""


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The shapes that a block RAM takes.

    Parameters
    ----------
    widths
        Bits of a word, by the depth of the block.
    lane_bits
        Bits that one write-enable bit covers, in words of that many bits or more.
    """

    widths: Mapping[int, int]
    lane_bits: int

    @property
    def deepest(self) -> int:
        """Greatest depth of one block."""
        return max(self.widths)

    def depth_for(self, depth: int) -> int:
        """Return the least depth of a block that holds `depth` words."""
        return min(each for each in self.widths if each >= depth)

    def lanes(self, block_depth: int) -> tuple[int, int]:
        """Return the number of lanes of a word, and their width."""
        width = self.widths[block_depth]
        lane_bits = min(width, self.lane_bits)
        return width // lane_bits, lane_bits


BLOCK_18K = BlockShape(
    MappingProxyType({512: 36, 1024: 18, 2048: 9, 4096: 4, 8192: 2, 16384: 1}), 9
)
"""Block RAMs of ECP5, Gowin and Xilinx."""

BLOCK_4K = BlockShape(MappingProxyType({256: 16, 512: 8, 1024: 4, 2048: 2}), 8)
"""Block RAMs of the iCE40."""

BLOCK_20K = BlockShape(
    MappingProxyType({512: 40, 1024: 20, 2048: 10, 4096: 5, 8192: 2, 16384: 1}), 8
)
"""Block RAMs of the GateMate, half of a CC_BRAM_40K; every bit has a write enable, so lanes are
bytes."""


def granule_bits(memory: Memory) -> int:
    """Return the number of bits of a scratchpad's row that are written together."""
    return 32 if memory is Memory.ACC else 8


class TapRows:
    """Rows of the array in which the taps of a depthwise step lie, for each output lane.

    Where one multiplier serves a pair of output lanes, both must share its operand. In a depthwise
    step no two lanes do, so the taps of a pair are spread: each has a row of its own, as long as
    there are rows. The first `separate` rows have a multiplier for each lane.

    Parameters
    ----------
    lanes_in, taps : int
        Rows of the array, and those used in a depthwise step.
    spread : bool
        Whether pairs of lanes share multipliers; if not, tap `t` lies in row `t`.

    Attributes
    ----------
    separate : int
    last : int
        Rows from this one on multiply the plain vector alone.
    """

    def __init__(self, lanes_in: int, taps: int, spread: bool):
        self.taps = taps
        self.separate = max(0, 2 * taps - lanes_in) if spread else taps
        self.last = 2 * taps - self.separate

    def row(self, tap: int, lane: int) -> int:
        """Return the row of a lane's tap."""
        beyond = tap - self.separate
        return tap if beyond < 0 else self.separate + 2 * beyond + lane % 2

    def tap(self, row: int) -> int:
        """Return the tap in a row before `last`."""
        beyond = row - self.separate
        return row if beyond < 0 else self.separate + beyond // 2


def array_blocks(configuration: Configuration) -> int:
    """Return the multiplier blocks of an array in which one serves a pair of output lanes."""
    lanes_in, lanes_out = configuration.lanes_in, configuration.lanes_out
    rows = TapRows(lanes_in, configuration.window_rows, spread=True)
    return (lanes_in + rows.separate) * lanes_out // 2


def lane_blocks(lanes: int, spare: int | None) -> int:
    """Return the multiplier blocks of each lane of VECTOR.

    Parameters
    ----------
    spare
        Blocks of the chip that the array leaves; None for no limit.
    """
    if spare is None:
        return USUAL_LANE_BLOCKS
    return min(max(spare // lanes, MIN_LANE_BLOCKS), MAX_LANE_BLOCKS)


def row_blocks(configuration: Configuration, spare: int | None) -> int:
    """Return the multiplier blocks of statistics over rows: the fewer if lanes get more by it.

    Parameters
    ----------
    spare
        Blocks of the chip that the array leaves; None for no limit.
    """
    if configuration.row_statistics == "none":
        return 0
    if spare is None:
        return USUAL_ROW_BLOCKS
    lanes = configuration.vector_lanes
    few, usual = (lane_blocks(lanes, spare - rows) for rows in (MIN_ROW_BLOCKS, USUAL_ROW_BLOCKS))
    fits = usual * lanes + USUAL_ROW_BLOCKS <= spare
    return USUAL_ROW_BLOCKS if fits and few == usual else MIN_ROW_BLOCKS
