"""Conflicts between instructions: overlapping affine accesses and shared bank ports.

The checker proves with these functions that a program has no race, and the compiler places tokens
with the same functions, so the two always agree. Results are shared by shape, because tiles of one
layer differ only in their base addresses.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from .configuration import Configuration, Memory
from .instructions import Access, Instruction, Unit
from .instructions.loops import nest_addresses

EXACT_RUNS = 1 << 20
"""An access of more runs than this counts as covering everything from `low` to `high`."""


class Shape(NamedTuple):
    """An access at address 0: `length` contiguous bytes repeated over ascending strides.

    The form is normalised: strides are positive, adjacent runs are merged, and loops that continue
    each other are merged. Two accesses of the same bytes therefore mostly have the same shape.
    """

    length: int
    loops: tuple[tuple[int, int], ...]


_new = tuple.__new__
"""Makes a named tuple of a plain one, in half the time of its constructor."""


class Region(NamedTuple):
    """The bytes that `shape` covers between `low` and `high` of a memory, for one operand.

    A RAM accesses a `row` of bytes at once: a row of a scratchpad. In main memory it is 1.
    """

    memory: Memory
    low: int
    high: int
    shape: Shape
    operand: str
    writes: bool
    row: int


class AccessAtZero(NamedTuple):
    """An access of an instruction at address 0 of its operand.

    Parameters
    ----------
    name, step
        The operand, and the bytes by which each address step moves the access.
    low, reach
        First byte at address 0, and the distance to the last byte.
    row, bank_bytes, shift
        Sizes of a row and of a bank (1 and 0 in main memory), and the bit of the first bank in a
        `Footprint`.
    """

    name: str
    step: int
    low: int
    reach: int
    memory: Memory
    shape: Shape
    writes: bool
    row: int
    bank_bytes: int
    shift: int


class Footprint(NamedTuple):
    """Memory and ports that an instruction uses.

    Parameters
    ----------
    unit
        The unit that runs it; None for HALT.
    reads, writes
        One bit per bank of every scratchpad, numbered by `bank_bit`, and one for main memory.
    read_regions, written_regions
        Bytes that the instruction reads, and bytes that it writes.
    dram_low, dram_high
        First and last byte of main memory; the last one comes first if it uses none.
    """

    unit: Unit | None
    reads: int
    writes: int
    read_regions: tuple[Region, ...]
    written_regions: tuple[Region, ...]
    dram_low: int
    dram_high: int


@cache
def bank_bit(memory: Memory, configuration: Configuration) -> int:
    """Number of the first bit that stands for a bank of `memory` in a `Footprint`.

    Main memory is bit 0: it has no banks, and its port is arbitrated.
    """
    if memory is Memory.DRAM:
        return 0
    before = (m for m in Memory if m is not Memory.DRAM and m < memory)
    return 1 + sum(configuration.banks(other) for other in before)


@lru_cache(maxsize=1 << 16)
def normalise(length: int, loops: tuple[tuple[int, int], ...]) -> Shape:
    """Shape of a run of `length` bytes repeated over `(extent, stride)` loops of any sign."""
    merged: list[tuple[int, int]] = []
    for stride, extent in sorted((abs(stride), extent) for extent, stride in loops):
        if stride == 0 or extent == 1:
            continue
        if not merged and stride <= length:
            length += (extent - 1) * stride
            continue
        if merged:
            inner_extent, inner_stride = merged[-1]
            multiple, rest = divmod(stride, inner_stride)
            if rest == 0 and multiple <= inner_extent:
                merged[-1] = (inner_extent + (extent - 1) * multiple, inner_stride)
                continue
        merged.append((extent, stride))
    return Shape(length, tuple(merged))


@lru_cache(maxsize=1 << 12)
def intervals(shape: Shape) -> tuple[np.ndarray, np.ndarray] | None:
    """Disjoint ascending intervals of a shape placed at 0.

    Returns
    -------
    starts, ends : int64[intervals]
        First byte and end (exclusive). None when there are more than `EXACT_RUNS` runs.
    """
    runs = 1
    for extent, _ in shape.loops:
        runs *= extent
    if runs > EXACT_RUNS:
        return None
    starts = np.unique(nest_addresses(0, shape.loops))
    ends = starts + shape.length
    first = np.ones(starts.size, dtype=bool)
    first[1:] = starts[1:] > ends[:-1]
    last = np.append(first[1:], True)
    return starts[first], ends[last]


@lru_cache(maxsize=1 << 16)
def shapes_meet(one: Shape, other: Shape, offset: int, distance: int, row: int) -> bool:
    """Whether `one` at `offset` and `other` `distance` bytes further touch one row of `row` bytes.

    The rows between their first and last bytes must overlap.
    """
    if not one.loops and not other.loops:
        return True
    few, many = intervals(one), intervals(other)
    if few is None or many is None:
        return True
    bases = offset, offset + distance
    if few[0].size > many[0].size:
        few, many, bases = many, few, bases[::-1]
    starts, ends = (few[0] + bases[0]) // row, (few[1] + bases[0] - 1) // row
    firsts, lasts = (many[0] + bases[1]) // row, (many[1] + bases[1] - 1) // row
    candidate = np.searchsorted(lasts, starts)
    inside = candidate < firsts.size
    return bool(np.any(firsts[candidate[inside]] <= ends[inside]))


def region(access: Access, configuration: Configuration) -> Region:
    """An access as a region, the form that this module compares."""
    memory, shape = access.memory, normalise(access.length, access.loops)
    row = 1 if memory is Memory.DRAM else configuration.row_bytes(memory)
    return Region(memory, access.low, access.high, shape, access.operand, access.writes, row)


def regions_meet(one: Region, other: Region) -> bool:
    """Whether two regions share a byte: exact up to `EXACT_RUNS` runs, never wrongly False."""
    return one.memory is other.memory and _share_a_row(one, other, 1)


def regions_share_a_row(one: Region, other: Region) -> bool:
    """Whether two regions touch a common row; never wrongly False."""
    return one.memory is other.memory and _share_a_row(one, other, one.row)


def _share_a_row(one: Region, other: Region, row: int) -> bool:
    """Whether two regions of one memory touch a common row of `row` bytes."""
    if one.high // row < other.low // row or other.high // row < one.low // row:
        return False
    return shapes_meet(one.shape, other.shape, one.low % row, other.low - one.low, row)


def bank_mask(place: Region, configuration: Configuration) -> int:
    """Banks that a region touches, one bit per bank of its memory; 1 for main memory."""
    if place.memory is Memory.DRAM:
        return 1
    bank_bytes = configuration.bank_bytes(place.memory)
    first, offset = divmod(place.low, bank_bytes)
    return banks_of_shape(place.shape, offset, place.high - place.low, bank_bytes) << first


@lru_cache(maxsize=1 << 16)
def banks_of_shape(shape: Shape, offset: int, reach: int, bank_bytes: int) -> int:
    """Banks that a shape touches whose first byte is at `offset` in bank 0, and last `reach` on."""
    spread = intervals(shape) if shape.loops else None
    if spread is None:
        return (1 << ((offset + reach) // bank_bytes + 1)) - 1
    starts = (spread[0] + offset) // bank_bytes
    ends = (spread[1] + offset - 1) // bank_bytes
    mask = 0
    for low, high in set(zip(starts.tolist(), ends.tolist(), strict=True)):
        mask |= (1 << (high + 1)) - (1 << low)
    return mask


def footprint(instruction: Instruction, configuration: Configuration) -> Footprint:
    """Everything that an instruction reads and writes; it may exceed a memory."""
    masks, places, dram_low, dram_high = [0, 0], ([], []), 0, -1
    for name, step, low, reach, memory, shape, writes, row, bank_bytes, shift in accesses_at_zero(
        instruction, configuration
    ):
        if step:
            low += getattr(instruction, name) * step
        place = _new(Region, (memory, low, low + reach, shape, name, writes, row))
        places[writes].append(place)
        if not bank_bytes:
            dram_low = min(low, dram_low) if dram_high >= 0 else low
            dram_high = max(low + reach, dram_high)
        if low < 0:
            continue
        if not bank_bytes:
            masks[writes] |= 1
            continue
        bank, offset = divmod(low, bank_bytes)
        if offset + reach < bank_bytes:
            masks[writes] |= 1 << (bank + shift)
        else:
            masks[writes] |= banks_of_shape(shape, offset, reach, bank_bytes) << (bank + shift)
    (reads, writes), (read, written) = masks, map(tuple, places)
    found = instruction.home, reads, writes, read, written, dram_low, dram_high
    return _new(Footprint, found)


def accesses_at_zero(
    instruction: Instruction, configuration: Configuration
) -> tuple[AccessAtZero, ...]:
    """The accesses of an instruction; those of its copies are the same at other addresses."""
    known = instruction.shared.get("accesses")
    if known is None or known[0] is not configuration:
        known = configuration, _accesses(instruction, configuration)
        instruction.shared["accesses"] = known
    return known[1]


def _accesses(instruction: Instruction, configuration: Configuration) -> tuple[AccessAtZero, ...]:
    operands = {operand.name for operand in instruction.operands}
    found = []
    for access in instruction.accesses(configuration):
        memory, name, step = access.memory, access.operand, 0
        place = region(access, configuration)
        low, reach = place.low, place.high - place.low
        if name in operands:
            step = instruction.granule_bytes(name, configuration)
            low -= getattr(instruction, name) * step
        bank_bytes = configuration.bank_bytes(memory) if memory is not Memory.DRAM else 0
        sizes = place.row, bank_bytes, bank_bit(memory, configuration)
        place_at_zero = memory, place.shape, access.writes, *sizes
        found.append(AccessAtZero(name, step, low, reach, *place_at_zero))
    return tuple(found)


def footprints_conflict(earlier: Footprint, later: Footprint) -> bool:
    """`conflicts` for footprints that are already computed; the fast form for loops."""
    return earlier.unit is not later.unit and last_conflict((earlier,), 0, later) is not None


def data_conflict(earlier: Footprint, later: Footprint) -> bool:
    """Whether one writes a byte, or a row of a scratchpad, that the other reads or writes."""
    shared = (earlier.reads & later.writes) | (earlier.writes & (later.reads | later.writes))
    if not shared or (shared == 1 and _apart_in_dram(earlier, later)):
        return False
    return _meeting(earlier, later) is not None


def _apart_in_dram(one: Footprint, other: Footprint) -> bool:
    return one.dram_high < other.dram_low or other.dram_high < one.dram_low


def last_conflict(passed: Sequence[Footprint], first: int, later: Footprint) -> int | None:
    """Index of the last of some footprints of another unit, from `first` on, that conflicts."""
    _, later_reads, later_writes, _, _, later_low, later_high = later
    touched = later_reads | later_writes
    for index in range(len(passed) - 1, first - 1, -1):
        _, reads, writes, _, _, low, high = passed[index]
        ports = (reads & later_reads) | (writes & later_writes)
        if ports > 1:
            return index
        shared = (reads & later_writes) | (writes & touched)
        if not shared or (shared == 1 and (high < later_low or later_high < low)):
            continue
        if _meeting(passed[index], later) is not None:
            return index
    return None


def conflicts(earlier: Instruction, later: Instruction, configuration: Configuration) -> bool:
    """Whether `earlier` must be complete before `later` starts.

    It must in three cases. One writes a byte of main memory that the other reads or writes. One
    writes into a row of a scratchpad that the other reads: what a block RAM reads is undefined
    while other bytes of the row are written. Both use the read port, or both use the write port, of
    a bank. Instructions of one unit never conflict, because the unit keeps their order.
    """
    return footprints_conflict(footprint(earlier, configuration), footprint(later, configuration))


def _meeting(earlier: Footprint, later: Footprint) -> tuple[Region, Region] | None:
    """First pair of regions that are not both reads and share a byte, or a row of a scratchpad.

    Two writes into one scratchpad share a row only where they share a port.
    """
    _, reads, writes, read, written, _, _ = earlier
    _, later_reads, later_writes, later_read, later_written, _, _ = later
    met = None
    if writes & later_reads:
        met = _first_meeting(written, later_read)
    if met is None and reads & later_writes:
        met = _first_meeting(read, later_written)
    if met is None and writes & later_writes:
        met = _first_meeting(written, later_written)
    return met


def _first_meeting(
    ours: tuple[Region, ...], theirs: tuple[Region, ...]
) -> tuple[Region, Region] | None:
    """First pair of regions that share a byte, or a row of a scratchpad."""
    for one in ours:
        memory, low, high, _, _, _, row = one
        for other in theirs:
            if (
                other[0] is memory
                and low - row < other[2]  # most pairs, without a call
                and other[1] < high + row
                and _share_a_row(one, other, row)
            ):
                return one, other
    return None


def explain_conflict(
    earlier: Instruction, later: Instruction, configuration: Configuration
) -> str | None:
    """Reason for a conflict, as the end of a sentence; None if there is no conflict."""
    first, second = footprint(earlier, configuration), footprint(later, configuration)
    if not footprints_conflict(first, second):
        return None
    met = _meeting(first, second)
    if met is not None:
        verbs = ["writes" if place.writes else "reads" for place in met]
        if not regions_meet(*met):
            rows = [(place.low // place.row, place.high // place.row) for place in met]
            first_row, last_row = max(low for low, _ in rows), min(high for _, high in rows)
            return (
                f"the first {verbs[0]} (`{met[0].operand}`) and the second {verbs[1]} "
                f"(`{met[1].operand}`) bytes of one row, among rows {first_row} to {last_row} of "
                f"{met[0].memory.name}"
            )
        low, high = max(met[0].low, met[1].low), min(met[0].high, met[1].high)
        return (
            f"the first {verbs[0]} (`{met[0].operand}`) what the second {verbs[1]} "
            f"(`{met[1].operand}`) among bytes {low} to {high} of {met[0].memory.name}"
        )
    ports = (("read", first.reads & second.reads), ("write", first.writes & second.writes))
    for verb, mask in ports:
        for memory in Memory:
            if memory is Memory.DRAM:
                continue
            banks = mask >> bank_bit(memory, configuration)
            banks &= (1 << configuration.banks(memory)) - 1
            if banks:
                bank = (banks & -banks).bit_length() - 1
                return f"both need the {verb} port of {memory.name} bank {bank}"
    raise AssertionError("a conflict has a reason")
