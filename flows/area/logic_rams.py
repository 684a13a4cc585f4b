"""Memories that an FPGA keeps in its logic cells: queues, the counters' totals, shallow banks.

Their widths follow from the instructions' fields, and from the places of a burst in memory, in a
row and in a beat (`hardware/bursts.py`, `hardware/pieces.py`). Synthesis removes a cell if nothing
reads its bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...hardware.blocks import SHALLOW, granule_bits
from ...isa.configuration import Configuration, Memory
from ...isa.durations import commands_in_flight, fetch_beats
from ...isa.fields import Field, address_width
from ...isa.instructions import FAMILIES, Instruction, Load, Store
from ...isa.instructions.common import local_bits
from ...isa.instructions.load import DESTINATIONS
from ...isa.instructions.store import SOURCES
from ...isa.pipeline import FETCH_BURSTS, LINE_STEPS, QUEUED_BEATS
from ...isa.registers import TRANSFER_COUNTERS, unit_counters

LENGTH_BITS = 8
"""Bits of a burst's length on AXI4."""

TOTAL_BITS = 32
"""Bits of a total of the performance counters."""

CELL_BITS, CELL_WORDS = 4, 16
"""A TRELLIS_DPR16X4 of the ECP5."""

ADDER_BITS = 2
"""Bits that a cell of a carry chain adds, a CCU2C."""

DEEPEST_QUEUE = 32
"""Greatest number of instructions in a queue made of logic cells; others are block RAMs."""

MAX_REGISTERS = 6
"""Maximum number of bits for which Yosys prefers registers."""


@dataclass(frozen=True, slots=True)
class LogicRam:
    """One memory.

    Parameters
    ----------
    unit
        The instance that contains the memory, by its path in the core.
    bits
        Bits of a word.
    depth
        Words.
    columns
        Cells that hold a word.
    unread
        Further bits of a word that nothing reads, which no cell holds.
    """

    unit: str
    bits: int
    depth: int
    columns: int
    unread: int = 0

    @property
    def cells(self) -> int:
        """Cells of an ECP5 that the memory takes; a few bits are in registers."""
        if self.depth < 2 or self.depth * self.bits <= MAX_REGISTERS:
            return 0
        return self.columns * -(-self.depth // CELL_WORDS)

    @property
    def described_bits(self) -> int:
        """Bits of the memory as it is described; a single word is a register."""
        return self.depth * (self.bits + self.unread) if self.depth > 1 else 0


def logic_rams(configuration: Configuration) -> Iterator[LogicRam]:
    """Yield the memories of a machine that are made of logic cells."""
    if configuration.queue_depth <= DEEPEST_QUEUE:
        yield from instruction_queues(configuration)
    yield from unit_rams(configuration)
    for memory in Memory:
        depth = configuration.depth(memory) if memory is not Memory.DRAM else 0
        if 0 < depth <= SHALLOW:
            for _ in range(configuration.banks(memory)):
                bits = 8 * configuration.row_bytes(memory)
                yield _ram(memory.name.lower(), bits, depth, granule_bits(memory))


def instruction_queues(configuration: Configuration) -> Iterator[LogicRam]:
    """Yield the memory of each unit's queue of instructions."""
    for family in FAMILIES:
        if family.unit is not None:
            # The oldest instruction is in a register behind the memory.
            yield LogicRam(
                f"{family.unit.name.lower()}_gate",
                len(read_bits(family, configuration)),
                configuration.queue_depth - 1,
                queue_columns(family, configuration, CELL_BITS),
            )


def unit_rams(configuration: Configuration) -> Iterator[LogicRam]:
    """Yield the other memories of the units, without scratchpads."""
    outstanding, in_flight = configuration.outstanding_bursts, commands_in_flight(configuration)
    for family in FAMILIES:
        if family.unit is not None:
            yield _queue(f"{family.unit.name.lower()}_gate", 4, in_flight)
    yield _queue("fetch", configuration.bus_bits + 1, fetch_beats(configuration)[1], unread=1)
    yield _queue("load", burst_bits(Load, configuration), outstanding)
    yield _queue("store", burst_bits(Store, configuration), outstanding, unread=1)
    yield _queue("store", 1, outstanding)
    beats = 1 << (QUEUED_BEATS - 1).bit_length()
    yield _ram("store", configuration.bus_bits, beats, 8)
    yield _queue("store", configuration.bus_bytes + 1, QUEUED_BEATS)
    yield _ram("arbiter", 1, outstanding + FETCH_BURSTS - 1)
    yield _ram("control", TOTAL_BITS, counted_totals(configuration))
    channels = min(configuration.lanes_in, configuration.lanes_out)
    for _ in range(1, configuration.window_lines):
        yield _ram("gemm.array", 8 * channels, LINE_STEPS)


def queue_columns(family: type[Instruction], configuration: Configuration, bits: int) -> int:
    """Return the memories, `bits` wide, in which a queue holds the fields that its unit reads."""
    read = read_bits(family, configuration)
    return sum(any(read[low : low + bits]) for low in range(0, len(read), bits))


def _ram(unit: str, bits: int, depth: int, granule: int | None = None, unread: int = 0) -> LogicRam:
    """Return a memory whose writes have `granule` bits; None for whole words."""
    part = granule or bits
    return LogicRam(unit, bits, depth, bits // part * -(-part // CELL_BITS), unread)


def _queue(unit: str, bits: int, depth: int, unread: int = 0) -> LogicRam:
    """Return the memory of a `Queue`; a queue of two places is a pair of registers."""
    return _ram(unit, bits, 0 if depth == 2 else depth, unread=unread)


@lru_cache(maxsize=4 * len(FAMILIES))
def read_bits(family: type[Instruction], configuration: Configuration) -> tuple[bool, ...]:
    """Return for each bit of an instruction in its unit's queue whether the unit reads it."""
    found = [True]  # the flag of a SYNC
    for field in family.layout(configuration):
        if field.name != "opcode":
            read = min(field.bits, _reach(family, field, configuration))
            found += [True] * read + [False] * (field.bits - read)
    return tuple(found)


def _reach(family: type[Instruction], field: Field, configuration: Configuration) -> int:
    """Return the bits of a field that matter for addresses of its operand's scratchpads.

    A byte address is shifted by the row size of each scratchpad, and all row numbers have the bits
    of the highest. A cell of a carry chain adds two bits, so the unit also reads the bit above the
    last one that matters, if the address generator has it.
    """
    name = field.name.rpartition(".")[2]
    places = family.places.get(name)
    if not places or Memory.DRAM in places:
        return field.bits
    moves = family in (Load, Store)
    if moves:
        longest = max(configuration.row_bytes(memory) for memory in places)
        matter = _log2(longest) + max(_log2(configuration.rows(memory)) for memory in places)
    else:
        matter = max(
            address_width(
                configuration.size_bytes(memory) // family.granule(name, memory, configuration)
            )
            for memory in places
        )
    even = -(-matter // ADDER_BITS) * ADDER_BITS
    guard_bits = int(moves)
    return min(even, family.base_bits(name, configuration) + guard_bits)


def _log2(power: int) -> int:
    return power.bit_length() - 1


def burst_bits(family: type[Load] | type[Store], configuration: Configuration) -> int:
    """Bits of a burst that waits to be cut into pieces; STORE does not read its last one."""
    loads = family is Load
    memories = DESTINATIONS if loads else SOURCES
    beat = _log2(configuration.bus_bytes)
    longest = max((configuration.row_bytes(memory) - 1).bit_length() for memory in memories)
    end = max(beat, longest) if loads else beat
    beats = max(LENGTH_BITS, local_bits(configuration) - end) if loads else LENGTH_BITS
    row = max(_log2(configuration.rows(memory)) for memory in memories)
    code, flags, value = (2, 3, 8) if loads else (1, 1, 0)
    if loads:
        flags += 2 * (configuration.packed_weights != "none")
        flags += configuration.transposed_weights != "none"
    return code + row + longest + beat + end + beats + flags + value


def counted_totals(configuration: Configuration) -> int:
    """Return the number of totals in the counters' memory: units, FETCH, cycles, and a zero."""
    names = unit_counters(configuration.counters)
    if not names:
        return 0
    return 2 * len(names) + 2 * sum(name not in TRANSFER_COUNTERS for name in names) + 4
