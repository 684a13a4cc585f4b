"""Multipliers and block RAMs of a configuration on an ECP5, by arithmetic.

The counts are those of the cells that `hardware` instantiates: one multiplier for two products of
the array that share an operand, the fewest multipliers that a lane of VECTOR needs, and the block
RAMs of scratchpads and look-up tables. If the chip has multipliers left, lanes take more of them to
save logic. Synthesis adds block RAMs for queues deeper than `DEEPEST_QUEUE`, and chooses the blocks
of scratchpads with more than `DEEPEST_BANK` rows; machines with either have no RAM count here.
"""

from typing import Any

from ...hardware.blocks import BLOCK_18K, LEAST_LANE_BLOCKS, SHALLOW, array_blocks
from ...hardware.core import CLIENTS
from ...hardware.lookup_table import ROW_BYTES, ROWS
from ...hardware.scratchpad import RowFormat
from ...isa.configuration import Configuration, Memory

DEEPEST_QUEUE = 32
"""Greatest number of instructions in a queue made of logic cells."""

DEEPEST_BANK = BLOCK_18K.deepest
"""Greatest number of rows of one block RAM."""


def resources_of(configuration: Configuration) -> dict[str, Any]:
    """Return the exact resources of a configuration.

    Returns
    -------
    dict
        `multipliers`: the fewest ECP5 multipliers that the machine can be built with.
        `ram`: ECP5 block RAMs, or None without an exact count.
        `ram_bits`: bits of all scratchpads and of each lane's look-up table, on any chip.
    """
    tables = configuration.vector_lanes * 8 * configuration.size_bytes(Memory.LUT)
    return {
        "multipliers": array_blocks(configuration)
        + LEAST_LANE_BLOCKS * configuration.vector_lanes,
        "ram": block_rams(configuration),
        "ram_bits": tables + sum(8 * configuration.size_bytes(memory) for memory in CLIENTS),
    }


def block_rams(configuration: Configuration) -> int | None:
    """Return the block RAMs of scratchpads and look-up tables, or None without an exact count."""
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
    """Return the block RAMs of one RAM; no two granules share a lane of a block."""
    if depth <= SHALLOW:
        return 0
    lanes_of_block, lane_bits = BLOCK_18K.lanes(BLOCK_18K.depth_for(depth))
    lanes = width // granularity * -(-granularity // lane_bits)
    return -(-lanes // lanes_of_block)
