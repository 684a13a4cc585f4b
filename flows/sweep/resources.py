"""Multipliers and block RAMs of a configuration on an ECP5, by arithmetic.

The counts are those of the cells that `hardware` instantiates: one multiplier for two products of
the array that share an operand, the fewest that a lane of VECTOR can do with, and the block RAMs of
scratchpads and look-up tables. Lanes take more multipliers where the chip has some left, which
saves look-up tables. Synthesis adds block RAMs for queues deeper than `DEEPEST_QUEUE`, and chooses
the blocks of scratchpads with more than `DEEPEST_BANK` rows; such machines have no count of RAM
here.
"""

from typing import Any

from ...hardware.cells.ecp5 import BlockRam
from ...hardware.core import CLIENTS
from ...hardware.lookup_table import ROW_BYTES, ROWS
from ...hardware.packed_array import multiplier_blocks
from ...hardware.ram import SHALLOW
from ...hardware.scratchpad import RowFormat
from ...hardware.vector_lane import VectorLane
from ...isa.configuration import Configuration, Memory

DEEPEST_QUEUE = 32
"""Instructions that a queue of logic cells holds."""

DEEPEST_BANK = max(BlockRam.WIDTHS)
"""Rows that a block RAM has at most."""


def resources_of(configuration: Configuration) -> dict[str, Any]:
    """Exact resources of a configuration.

    Returns
    -------
    dict
        `multipliers`, the fewest that the machine can be built with, and `ram`, None if it has no
        exact count: cells of an ECP5;
        `ram_bits`, the bits of all scratchpads and of a look-up table in each lane, on any chip.
    """
    tables = configuration.vector_lanes * 8 * configuration.size_bytes(Memory.LUT)
    return {
        "multipliers": multiplier_blocks(configuration)
        + VectorLane.LEAST_BLOCKS * configuration.vector_lanes,
        "ram": block_rams(configuration),
        "ram_bits": tables + sum(8 * configuration.size_bytes(memory) for memory in CLIENTS),
    }


def block_rams(configuration: Configuration) -> int | None:
    """Block RAMs of scratchpads and look-up tables; None without an exact count."""
    banks = [(memory, configuration.depth(memory)) for memory in CLIENTS]
    if configuration.queue_depth > DEEPEST_QUEUE or max(d for _, d in banks) > DEEPEST_BANK:
        return None
    blocks = 0
    for memory, depth in banks:
        row = RowFormat(configuration, memory)
        words = configuration.banks(memory) * row.words
        blocks += words * ram_blocks(depth, row.word_bits, row.granularity)
    table = ram_blocks(configuration.lut_tables * ROWS, 8 * ROW_BYTES, 8)
    return blocks + configuration.vector_lanes * table


def ram_blocks(depth: int, width: int, granularity: int) -> int:
    """Blocks of one RAM; each granule fills lanes of its own."""
    if depth <= SHALLOW:
        return 0
    block_width = BlockRam.WIDTHS[min(size for size in BlockRam.WIDTHS if size >= depth)]
    lane_bits = min(block_width, BlockRam.LANE_BITS)
    lanes = width // granularity * -(-granularity // lane_bits)
    return -(-lanes // (block_width // lane_bits))
