"""Corners for which some program of a configuration exists.

The list is made from the families' declarations, so that a new field, operand or nest asks for its
own corners; `corners` recognises in a program what is named here.
"""

from collections.abc import Iterator
from enum import IntEnum

from ....isa.assembly import plain_fields
from ....isa.configuration import Configuration, Memory
from ....isa.instructions import FAMILIES, Gemm, Instruction, Load, Store, Unit, Vector
from ....isa.instructions.store import SOURCES
from ....isa.pipeline import GEMM_REVISIT_STEPS
from ....isa.vector_operations import Operation
from .number_corners import NUMBER_CORNERS

PAGE_BYTES = 4096
"""AXI4 bursts end at multiples of this."""

LONG_CYCLES = 6000
"""Cycles that one instruction of a random program may take."""

LONG_BYTES = 4096
"""Bytes of the longest run of a random program."""

MANY_RUNS = 16
STRETCH = 8
"""SYNCs on end that make a stretch."""

TINY_RUN = 4
"""Instructions of one step on end that make a run of tiny ones."""

LOCAL = (Memory.ACT, Memory.WGT, Memory.PARAM, Memory.LUT)

PLACES: dict[type[Instruction], dict[str, tuple[Memory, ...]]] = {
    Load: {"memory": (Memory.DRAM,), "local": LOCAL},
    Gemm: {"act": (Memory.ACT,), "wgt": (Memory.WGT,), "acc": (Memory.ACC,)},
    Vector: {
        "dst": (Memory.ACT, Memory.ACC),
        "a": (Memory.ACT, Memory.ACC),
        "b": (Memory.ACT,),
        "param": (Memory.PARAM,),
    },
    Store: {"local": SOURCES, "memory": (Memory.DRAM,)},
}
"""Memories that each operand may lie in."""

READS = {
    Unit.LOAD: {Memory.DRAM},
    Unit.GEMM: {Memory.ACT, Memory.WGT, Memory.ACC},
    Unit.VECTOR: {Memory.ACT, Memory.ACC, Memory.PARAM, Memory.LUT},
    Unit.STORE: {Memory.ACT, Memory.ACC},
}
WRITES = {
    Unit.LOAD: set(LOCAL),
    Unit.GEMM: {Memory.ACC},
    Unit.VECTOR: {Memory.ACT, Memory.ACC},
    Unit.STORE: {Memory.DRAM},
}


def possible_corners(configuration: Configuration, data_bytes: int, length: int = 40) -> set[str]:
    """Corners for which some program of `length` instructions exists."""
    return {
        *(f"opcode {family.mnemonic}" for family in FAMILIES),
        *(name for family in FAMILIES for name in _possible_fields(family, configuration)),
        *_possible_places(configuration, data_bytes),
        *(name for family in PLACES for name in _possible_nests(family, configuration)),
        *_possible_transfers(configuration, data_bytes),
        *_possible_gemm(configuration),
        *_possible_vector(configuration),
        *_possible_orders(configuration, length),
        *NUMBER_CORNERS,
    }


def ends(family: type[Instruction], name: str, configuration: Configuration) -> tuple[int, int]:
    """Least and greatest value of a field that means something."""
    field = next(f for f in family.layout(configuration) if f.name == name)
    return field.low, configuration.lut_tables - 1 if name == "table" else field.high


def immediates(family: type[Instruction]) -> Iterator[tuple[str, type]]:
    """Names and types of the plain fields that are no operands and no lengths."""
    operands = {operand.name for operand in family.operands}
    for field in plain_fields(family):
        if field.name not in operands and field.name != "length":
            yield field.name, field.type if isinstance(field.type, type) else int


def _possible_fields(family: type[Instruction], configuration: Configuration) -> Iterator[str]:
    bits = {field.name: field.bits for field in family.layout(configuration)}
    for name, kind in immediates(family):
        if not bits[name]:
            continue
        if kind is Memory:
            codes = LOCAL if family is Load else SOURCES
            yield from (f"{family.mnemonic}.{name}={code.name}" for code in codes)
        elif kind is Operation:
            yield from (f"{family.mnemonic}.{name}={o.name}" for o in configuration.operations)
        elif issubclass(kind, IntEnum):
            yield from (f"{family.mnemonic}.{name}={code.name}" for code in kind)
        elif kind is bool:
            yield from (f"{family.mnemonic}.{name}={value}" for value in (False, True))
        else:
            for value in ends(family, name, configuration):
                yield f"{family.mnemonic}.{name}={value}"


def _possible_places(configuration: Configuration, data_bytes: int) -> Iterator[str]:
    for family, operands in PLACES.items():
        for operand, memories in operands.items():
            for memory in memories:
                where = f"{family.mnemonic}.{operand}@{memory.name}"
                yield f"{where} first"
                yield f"{where} last"
                if granules(family, operand, memory, configuration, data_bytes) > 1:
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
    granule = 1
    if family is Gemm:
        granule = configuration.row_bytes(memory)
        granule *= configuration.lanes_in if memory is Memory.WGT else 1
    elif family is Vector and memory is Memory.PARAM:
        granule = configuration.row_bytes(memory)
    elif family is Vector:
        granule = configuration.vector_lanes * (4 if memory is Memory.ACC else 1)
    return configuration.size_bytes(memory) // granule


def _possible_nests(family: type[Instruction], configuration: Configuration) -> Iterator[str]:
    yield f"{family.mnemonic} without loops"
    for nest, moved in family.nests.items():
        yield f"{family.mnemonic}.{nest} all levels"
        yield f"{family.mnemonic}.{nest} extent 2"
        if greatest_extent_fits(family, nest, configuration):
            yield f"{family.mnemonic}.{nest} greatest extent"
        for operand in moved:
            memory = PLACES[family][operand][0]
            if granules(family, operand, memory, configuration, PAGE_BYTES) > 1:
                yield f"{family.mnemonic}.{nest} {operand} forward"
                yield f"{family.mnemonic}.{nest} {operand} backward"
            if (family, nest, operand) != (Gemm, "row_loops", "acc") or configuration.row_loops > 1:
                yield f"{family.mnemonic}.{nest} {operand} still"


def greatest_extent_fits(
    family: type[Instruction], nest: str, configuration: Configuration
) -> bool:
    """Whether a loop of the greatest extent keeps the memories' sizes and `LONG_CYCLES`."""
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
    for memory in (Memory.ACT, Memory.WGT, Memory.ACC):
        tiles = configuration.rows(Memory.WGT) // configuration.lanes_in
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
