"""Corners for which some program of a configuration exists.

The list follows from the families' declarations, so a new field, operand or nest adds its own
corners. `corners` recognises them in a program.
"""

from collections.abc import Iterator
from typing import Any

from ....isa.configuration import Configuration, Memory
from ....isa.configuration_rules import PAGE_BYTES
from ....isa.instructions import FAMILIES, Gemm, Instruction, Load, Store, Unit, Vector
from ....isa.instructions.load import DESTINATIONS
from ....isa.instructions.store import SOURCES
from ....isa.pipeline import GEMM_REVISIT_STEPS
from .number_corners import NUMBER_CORNERS

LONG_CYCLES = 6000
"""Cycles that one instruction of a random program may take."""

LONG_BYTES = 4096
"""Bytes of the longest run of a random program."""

MANY_RUNS = 16
STRETCH = 8
"""Consecutive SYNCs that count as a stretch."""

TINY_RUN = 4
"""Consecutive one-step instructions that count as a run of tiny ones."""

LOCAL = DESTINATIONS
"""Scratchpads that LOAD fills."""

MOVING = tuple(family for family in FAMILIES if family.operands)
"""Families that touch memory."""


def _memories(unit: Unit, writes: bool) -> set[Memory]:
    """Memories that instructions of a unit may read, or write; a table has no operand."""
    found = set()
    for family in MOVING:
        if family.unit is unit:
            operands = {o.name for o in family.operands if (o.writes if writes else o.reads)}
            tables = set() if writes else family.places.keys() - {o.name for o in family.operands}
            found |= {memory for name in operands | tables for memory in family.places[name]}
    return found


READS = {unit: _memories(unit, writes=False) for unit in Unit}
WRITES = {unit: _memories(unit, writes=True) for unit in Unit}


def possible_corners(configuration: Configuration, data_bytes: int, length: int = 40) -> set[str]:
    """Corners that some program of `length` instructions meets."""
    return {
        *(f"opcode {family.mnemonic}" for family in FAMILIES),
        *(name for family in FAMILIES for name in possible_fields(family, configuration)),
        *_possible_places(configuration, data_bytes),
        *(name for family in MOVING for name in _possible_nests(family, configuration)),
        *_possible_transfers(configuration, data_bytes),
        *_possible_gemm(configuration),
        *_possible_vector(configuration),
        *_possible_orders(configuration, length),
        *NUMBER_CORNERS,
    }


def ends(family: type[Instruction], name: str, configuration: Configuration) -> tuple[Any, ...]:
    """Values of a field that programs must meet: the ends of a number, otherwise all values."""
    values = family.legal_values(name, configuration)
    return (values[0], values[-1]) if isinstance(values, range) else tuple(values)


def shown(value: Any) -> str:
    """A value in the name of a corner."""
    return getattr(value, "name", str(value))


def choices(family: type[Instruction], configuration: Configuration) -> Iterator[str]:
    """Immediate fields with a choice; a length is drawn with its loops."""
    for field in family.own_fields(configuration):
        if field.bits and field.name != "length":
            yield field.name


def possible_fields(family: type[Instruction], configuration: Configuration) -> Iterator[str]:
    """Corners of a family's immediate fields."""
    for name in choices(family, configuration):
        for value in ends(family, name, configuration):
            yield f"{family.mnemonic}.{name}={shown(value)}"


def _possible_places(configuration: Configuration, data_bytes: int) -> Iterator[str]:
    for family in MOVING:
        for operand in family.operands:
            for memory in family.places[operand.name]:
                where = f"{family.mnemonic}.{operand.name}@{memory.name}"
                yield f"{where} first"
                yield f"{where} last"
                if granules(family, operand.name, memory, configuration, data_bytes) > 1:
                    yield f"{where} spans forward"
                    yield f"{where} spans backward"
    for memory in LOCAL:
        yield f"load.fill {memory.name}"


def granules(
    family: type[Instruction],
    operand: str,
    memory: Memory,
    configuration: Configuration,
    data_bytes: int,
) -> int:
    """Places for an operand in a memory."""
    if memory is Memory.DRAM:
        return data_bytes
    return configuration.size_bytes(memory) // family.granule(operand, memory, configuration)


def _possible_nests(family: type[Instruction], configuration: Configuration) -> Iterator[str]:
    yield f"{family.mnemonic} without loops"
    for nest, moved in family.nests.items():
        yield f"{family.mnemonic}.{nest} all levels"
        yield f"{family.mnemonic}.{nest} extent 2"
        if greatest_extent_fits(family, nest, configuration):
            yield f"{family.mnemonic}.{nest} greatest extent"
        for operand in moved:
            memory = next(iter(family.places[operand]))
            if granules(family, operand, memory, configuration, PAGE_BYTES) > 1:
                yield f"{family.mnemonic}.{nest} {operand} forward"
                yield f"{family.mnemonic}.{nest} {operand} backward"
            if (family, nest, operand) != (Gemm, "row_loops", "acc") or configuration.row_loops > 1:
                yield f"{family.mnemonic}.{nest} {operand} still"


def greatest_extent_fits(
    family: type[Instruction], nest: str, configuration: Configuration
) -> bool:
    """Whether a loop of the greatest extent fits the memories and `LONG_CYCLES`."""
    greatest = 1 << configuration.extent_bits
    cycles = {Load: 2, Gemm: 1, Vector: 1, Store: 2}[family]
    if nest == "tile_loops":
        cycles = max(configuration.lanes_in, GEMM_REVISIT_STEPS)
    if nest == "row_loops" and greatest > configuration.rows(Memory.ACC):
        if configuration.row_loops == 1:
            return False
        cycles = GEMM_REVISIT_STEPS
    return greatest * cycles <= LONG_CYCLES


def _possible_transfers(configuration: Configuration, data_bytes: int) -> Iterator[str]:
    for family in (Load, Store):
        name = family.mnemonic
        yield from (f"{name} {what}" for what in ("one byte", "many one-byte runs"))
        yield from (f"{name} {what}" for what in ("inside a beat", "straddles beats"))
        yield from (f"{name} {what}" for what in ("whole beats", "ends at odd bytes"))
        if configuration.burst_bytes < data_bytes:
            yield f"{name} crosses a burst"
        if data_bytes > PAGE_BYTES:
            yield f"{name} crosses 4 KiB"
        yield from (f"{name} {what}" for what in ("shifts lanes", "crosses a bank"))
        yield f"{name} runs overlap in memory"
        for memory in LOCAL if family is Load else SOURCES:
            if configuration.size_bytes(memory) <= min(LONG_BYTES, data_bytes):
                yield f"{name} whole {memory.name}"
        room = max(configuration.size_bytes(m) for m in (LOCAL if family is Load else SOURCES))
        flying = configuration.outstanding_bursts * configuration.burst_bytes
        if flying < min(room, LONG_BYTES, data_bytes // 2):
            yield f"{name} more bursts than in flight"
    yield "load runs overlap in scratchpad"
    yield "load pads all sides"
    if configuration.packed_weights != "none":
        yield from (f"load unpacks {what}" for what in ("one tile", "several tiles"))
    if configuration.transposed_weights != "none":
        yield from (f"load transposes {what}" for what in ("one burst", "several bursts"))


def _possible_gemm(configuration: Configuration) -> Iterator[str]:
    yield from (f"gemm rows {what} lanes" for what in ("below", "at", "above"))
    yield from ("gemm one row", "gemm reduces", "gemm weights again")
    rows = max(configuration.lanes_in, GEMM_REVISIT_STEPS)
    if 2 * rows - GEMM_REVISIT_STEPS <= configuration.rows(Memory.ACC):
        yield "gemm revisits soonest across tiles"
    if configuration.row_loops > 1:
        yield "gemm revisits soonest in rows"
    if configuration.depthwise_taps:
        yield from (f"gemm depthwise {what}" for what in ("one row", "one run", "accumulates"))
        if configuration.row_loops > 1:
            yield "gemm depthwise several runs"
        if configuration.depthwise_taps > 2:
            yield "gemm depthwise run below taps"
        if configuration.window_lines > 1:
            yield from ("gemm depthwise all lines", "gemm depthwise few lines")
    for memory in (Memory.ACT, Memory.WGT, Memory.ACC):
        tiles = configuration.weight_tiles
        if configuration.banks(memory) > 1 and (memory is not Memory.WGT or tiles > 1):
            yield f"gemm changes {memory.name} bank"


def _possible_vector(configuration: Configuration) -> Iterator[str]:
    yield from ("vector in place", "vector maps only", "vector reduces only", "vector does both")
    yield from ("vector reads before it overwrites", "vector low above high")
    for operand, memory in (("dst", "ACT"), ("dst", "ACC"), ("a", "ACT"), ("a", "ACC")):
        yield f"vector.{operand} changes {memory} bank"
    lanes = max(configuration.lanes_in, configuration.lanes_out)
    if lanes > configuration.vector_lanes:
        yield "vector part of a row"
    if configuration.row_statistics != "none":
        yield from ("vector one row", "vector several rows", "vector bound inside a row")


def _possible_orders(configuration: Configuration, length: int) -> Iterator[str]:
    limit = configuration.token_limit
    for unit in Unit:
        yield f"sync {unit.name} waits"
        yield f"sync {unit.name} signals"
        yield f"sync {unit.name} bare"
        yield f"waits for all {unit.name}"
        yield f"signals all {unit.name}"
        yield f"tiny run {unit.name}"
        if configuration.queue_depth + 3 < length:
            yield f"queue beyond its depth {unit.name}"
        for other in Unit:
            if other is unit:
                continue
            if 2 * limit + 4 <= length:
                yield f"counter full {unit.name}>{other.name}"
            for kind, shared in (
                ("read after write", WRITES[unit] & READS[other]),
                ("write after read", READS[unit] & WRITES[other]),
                ("write after write", WRITES[unit] & WRITES[other]),
                ("one port", READS[unit] & READS[other] | WRITES[unit] & WRITES[other]),
            ):
                if shared:
                    yield f"hazard {unit.name}>{other.name} {kind}"
    yield "sync stretch"
