"""Multipliers and memories of a configuration on a family of FPGAs, exactly, by arithmetic.

The counts are those of the cells that `hardware` instantiates, and of the memories that synthesis
makes of blocks or logic cells. For UltraScale, Gowin and GateMate, nobody has checked what
synthesis makes of queues deeper than `Blocks.deepest_queue` and of banks deeper than a block, so
machines with either have no RAM count; nor do those with the table of `row_statistics`, except on
an ECP5.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ...hardware.blocks import (
    BLOCK_18K,
    BLOCK_20K,
    MIN_LANE_BLOCKS,
    MIN_ROW_BLOCKS,
    SHALLOW,
    USUAL_ROW_BLOCKS,
    WORD_BITS,
    BlockShape,
    array_blocks,
    granule_bits,
    lane_blocks,
    row_blocks,
)
from ...hardware.technology import Technology
from ...isa.configuration import SCRATCHPADS, Configuration, Memory
from ...isa.instructions import FAMILIES
from .logic_rams import (
    DEEPEST_QUEUE,
    counted_totals,
    instruction_queues,
    logic_rams,
    queue_columns,
    unit_rams,
)

ARRAY, LANES, ROWS = "gemm.array", "vector.datapath", "vector.rows"
"""Instances of the core that have multipliers."""

INSTANCES: Mapping[Memory, str] = MappingProxyType(
    {memory: memory.name.lower() for memory in SCRATCHPADS} | {Memory.LUT: LANES}
)
"""Instances of the core that have the scratchpads."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a technology.

    Parameters
    ----------
    shape
        The shape of a block RAM.
    shallow
        Greatest depth of a scratchpad's RAM that is made of logic cells; 0 if none is.
    multiplies
        Whether there are multipliers; if not, they are logic.
    pairs
        Whether a multiplier of the array forms two products.
    lane_unit
        Multipliers, as the family counts them, that a multiplier of a VECTOR lane takes.
    counted
        Whether the lanes of VECTOR share the multipliers of the chip that the array leaves.
    row_blocks
        Multipliers of statistics over rows, if not; DSP48 cannot multiply two unsigned numbers of
        18 bits.
    logic_rams
        Whether logic cells can be RAMs. If not, synthesis makes block RAMs of all memories that are
        read with a register.
    deepest_queue
        Greatest number of instructions in a queue made of logic cells; others are block RAMs.
    checked
        Whether synthesis was seen to make block RAMs of deeper queues, and whole blocks of banks
        that are deeper than a block.
    """

    shape: BlockShape
    shallow: int
    multiplies: bool = True
    pairs: bool = True
    lane_unit: int = 1
    counted: bool = False
    row_blocks: int = USUAL_ROW_BLOCKS
    logic_rams: bool = True
    deepest_queue: int = DEEPEST_QUEUE
    checked: bool = True


BLOCKS: Mapping[Technology, Blocks] = MappingProxyType(
    {
        Technology.ECP5: Blocks(BLOCK_18K, SHALLOW, counted=True),
        Technology.XILINX7: Blocks(BLOCK_18K, SHALLOW, deepest_queue=64, row_blocks=3),
        Technology.ULTRASCALE: Blocks(BLOCK_18K, SHALLOW, checked=False, row_blocks=3),
        Technology.GOWIN: Blocks(BLOCK_18K, 0, pairs=False, lane_unit=2, checked=False),
        Technology.GATEMATE: Blocks(
            BLOCK_20K, 0, multiplies=False, logic_rams=False, deepest_queue=2, checked=False
        ),
    }
)
"""Technologies with exact counts. An iCE40 has no RAM of logic cells, so synthesis decides more."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Exact resources of a machine.

    Parameters
    ----------
    multipliers_of
        Multipliers by instance of the core, in the unit of the family: 18x18 on an ECP5, DSP48 on
        Xilinx, 9x9 on a Gowin; empty for a GateMate, which has none.
    rams_of
        Block RAMs of 18 Kbit (GateMate: 20) by instance of the core; None without an exact count.
    """

    multipliers_of: Mapping[str, int]
    rams_of: Mapping[str, int] | None

    @property
    def multipliers(self) -> int:
        """Multipliers of the core."""
        return sum(self.multipliers_of.values())

    @property
    def ram(self) -> int | None:
        """Block RAMs of the core; None without an exact count."""
        return None if self.rams_of is None else sum(self.rams_of.values())


def count_blocks(
    configuration: Configuration,
    technology: Technology = Technology.ECP5,
    multipliers: int | None = None,
) -> Counts:
    """Count the multipliers and block RAMs of a configuration.

    Parameters
    ----------
    technology
        One of `BLOCKS`.
    multipliers
        Multipliers of the chip, for technologies whose lanes share them; None for the fewest with
        which the machine can be built.
    """
    blocks = BLOCKS[technology]
    found: dict[str, int] = {}
    if blocks.multiplies:
        lane = blocks_of_lane(configuration, technology, multipliers)
        found[ARRAY] = array_blocks(configuration) if blocks.pairs else configuration.tile_bytes
        found[LANES] = blocks.lane_unit * lane * configuration.vector_lanes
        if configuration.row_statistics != "none":
            found[ROWS] = blocks.lane_unit * blocks_of_rows(configuration, technology, multipliers)
    return Counts(found, block_rams(configuration, blocks))


def blocks_of_lane(
    configuration: Configuration, technology: Technology, multipliers: int | None
) -> int:
    """Return the multiplier blocks of each lane of VECTOR.

    Parameters
    ----------
    technology, multipliers
        As in `count_blocks`.
    """
    lanes = configuration.vector_lanes
    if technology not in BLOCKS or not BLOCKS[technology].counted:
        return lane_blocks(lanes, None)
    if multipliers is None:
        return MIN_LANE_BLOCKS
    spare = multipliers - array_blocks(configuration)
    return lane_blocks(lanes, spare - row_blocks(configuration, spare))


def blocks_of_rows(
    configuration: Configuration, technology: Technology, multipliers: int | None
) -> int:
    """Return the multiplier blocks of statistics over rows; parameters as in `count_blocks`."""
    if not BLOCKS[technology].counted:
        return BLOCKS[technology].row_blocks
    if multipliers is None:
        return MIN_ROW_BLOCKS
    return row_blocks(configuration, multipliers - array_blocks(configuration))


def scratchpad_bits(configuration: Configuration) -> Counter[str]:
    """Return the bits of scratchpads by instance, with a copy of the look-up tables per lane."""
    copies = {Memory.LUT: configuration.vector_lanes}
    return Counter(
        {
            INSTANCES[memory]: 8 * copies.get(memory, 1) * configuration.size_bytes(memory)
            for memory in SCRATCHPADS
        }
    )


def memory_bits(configuration: Configuration) -> Counter[str]:
    """Return the bits of all memories by instance of the core, as the hardware describes them."""
    found = scratchpad_bits(configuration)
    for ram in (*instruction_queues(configuration), *unit_rams(configuration)):
        found[ram.unit] += ram.described_bits
    return found


def logic_ram_bits(configuration: Configuration) -> int:
    """Return the bits of distributed RAM on an ECP5, all words of its cells."""
    return 64 * sum(ram.cells for ram in logic_rams(configuration))


def block_rams(configuration: Configuration, blocks: Blocks) -> Counter[str] | None:
    """Return the block RAMs by instance of the core, or None without an exact count."""
    banks = [(memory, configuration.depth(memory)) for memory in SCRATCHPADS]
    deepest = max(depth for _, depth in banks)
    deep_queues = configuration.queue_depth > blocks.deepest_queue
    has_rows = configuration.row_statistics != "none"
    if not blocks.checked and (deep_queues or deepest > blocks.shape.deepest):
        return None
    if has_rows and not blocks.counted:
        return None
    found = Counter[str]()
    found[ROWS] += has_rows
    widest = max(blocks.shape.widths.values())
    if not blocks.logic_rams:
        found["store"] += -(-configuration.bus_bits // widest)
        found["control"] += counted_totals(configuration) > 0
    if deep_queues:
        for family in FAMILIES:
            if family.unit is not None:
                gate = f"{family.unit.name.lower()}_gate"
                found[gate] += queue_columns(family, configuration, widest)
    for memory, depth in banks:
        row_bits = 8 * configuration.row_bytes(memory)
        word_bits = min(row_bits, WORD_BITS)
        copies = configuration.vector_lanes if memory is Memory.LUT else 1
        words = copies * configuration.banks(memory) * row_bits // word_bits
        each = blocks_of_ram(depth, word_bits, granule_bits(memory), blocks)
        found[INSTANCES[memory]] += words * each
    return found


def blocks_of_ram(depth: int, width: int, granularity: int, blocks: Blocks) -> int:
    """Return the block RAMs of one RAM; no two granules share a lane of a block."""
    if depth <= blocks.shallow:
        return 0
    if depth > blocks.shape.deepest:  # synthesis fills whole blocks
        return width * depth // blocks.shape.deepest
    lanes_of_block, lane_bits = blocks.shape.lanes(blocks.shape.depth_for(depth))
    lanes = width // granularity * -(-granularity // lane_bits)
    return -(-lanes // lanes_of_block)
