"""Which instructions may not run at the same time: overlap of affine accesses, and bank ports.

The checker proves with these functions that a program has no race, and the compiler places tokens
with the same ones, so that neither can believe what the other does not. Everything is cached by
shape: tiles of one layer differ in their base addresses only.
"""

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from .configuration import Configuration, Memory
from .instructions import Access, Instruction, Unit
from .instructions.common import nest_addresses

EXACT_RUNS = 1 << 20
"""Accesses of more runs than this count as covering everything from `low` to `high`."""


class Shape(NamedTuple):
    """An access without its place: `length` contiguous bytes repeated over ascending strides.

    Strides are positive, runs that touch are one run, and progressions that continue each other
    are one loop; two accesses of the same bytes mostly have the same shape.
    """

    length: int
    loops: tuple[tuple[int, int], ...]


class Region(NamedTuple):
    """The bytes `low` to `high` of a memory as far as `shape` covers them."""

    access: Access
    low: int
    high: int
    shape: Shape


class Footprint(NamedTuple):
    """What an instruction touches.

    Parameters
    ----------
    unit
        The unit that runs it; None for HALT.
    reads, writes
        One bit per bank of every scratchpad, numbered by `bank_bit`, and one for main memory.
    read_regions, written_regions
        The bytes.
    """

    unit: Unit | None
    reads: int
    writes: int
    read_regions: tuple[Region, ...]
    written_regions: tuple[Region, ...]


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
        First byte, and first byte beyond. None when there are more than `EXACT_RUNS` runs.
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
def _shapes_meet(one: Shape, other: Shape, distance: int) -> bool:
    """Whether `one` at 0 and `other` at `distance` share a byte; their extremes are known to."""
    if not one.loops and not other.loops:
        return True
    few, many = intervals(one), intervals(other)
    if few is None or many is None:
        return True
    if few[0].size > many[0].size:
        few, many, distance = many, few, -distance
    starts, ends = few[0] - distance, few[1] - distance
    candidate = np.searchsorted(many[1], starts, side="right")
    inside = candidate < many[0].size
    return bool(np.any(many[0][candidate[inside]] < ends[inside]))


def region(access: Access) -> Region:
    """An access in the form that the tests here compare."""
    return Region(access, access.low, access.high, normalise(access.length, access.loops))


def regions_meet(one: Region, other: Region) -> bool:
    """Whether two regions share a byte: exact up to `EXACT_RUNS` runs, never wrongly False."""
    if one.access.memory is not other.access.memory:
        return False
    if one.high < other.low or other.high < one.low:
        return False
    return _shapes_meet(one.shape, other.shape, other.low - one.low)


def overlap(one: Access, other: Access) -> bool:
    """Whether two accesses share a byte of one memory."""
    return regions_meet(region(one), region(other))


def bank_mask(place: Region, configuration: Configuration) -> int:
    """Banks that a region touches, one bit per bank of its memory; 1 for main memory."""
    if place.access.memory is Memory.DRAM:
        return 1
    bank_bytes = configuration.bank_bytes(place.access.memory)
    first, last = place.low // bank_bytes, place.high // bank_bytes
    if first == last:
        return 1 << first
    spread = intervals(place.shape) if place.shape.loops else None
    if spread is None:
        return (1 << (last + 1)) - (1 << first)
    starts = (spread[0] + place.low) // bank_bytes
    ends = (spread[1] + place.low - 1) // bank_bytes
    mask = 0
    for low, high in set(zip(starts.tolist(), ends.tolist(), strict=True)):
        mask |= (1 << (high + 1)) - (1 << low)
    return mask


@lru_cache(maxsize=1 << 15)
def footprint(instruction: Instruction, configuration: Configuration) -> Footprint:
    """Everything that an instruction reads and writes; bounds need not hold."""
    masks, places = [0, 0], ([], [])
    for access in instruction.accesses(configuration):
        place = region(access)
        if place.low >= 0:
            shift = bank_bit(access.memory, configuration)
            masks[access.writes] |= bank_mask(place, configuration) << shift
        places[access.writes].append(place)
    return Footprint(instruction.home, masks[0], masks[1], tuple(places[0]), tuple(places[1]))


def footprints_conflict(earlier: Footprint, later: Footprint) -> bool:
    """`conflicts` for footprints at hand; the fast form for loops over a window."""
    unit, reads, writes, _, _ = earlier
    later_unit, later_reads, later_writes, _, _ = later
    if unit is later_unit:
        return False
    if (reads & later_reads) | (writes & later_writes) > 1:
        return True
    shared = (reads & later_writes) | (writes & (later_reads | later_writes))
    return bool(shared) and _meeting(earlier, later) is not None


def conflicts(earlier: Instruction, later: Instruction, configuration: Configuration) -> bool:
    """Whether `earlier` must be complete before `later` starts.

    That is so when one writes a byte that the other reads or writes, or when both need the read
    port, or both the write port, of one bank. Instructions of one unit never conflict: the unit
    itself keeps their order.
    """
    return footprints_conflict(footprint(earlier, configuration), footprint(later, configuration))


def _meeting(earlier: Footprint, later: Footprint) -> tuple[Region, Region] | None:
    """First pair of regions, not both read, that share a byte."""
    pairs = (
        (earlier.written_regions, later.read_regions),
        (earlier.read_regions, later.written_regions),
        (earlier.written_regions, later.written_regions),
    )
    for ours, theirs in pairs:
        for one in ours:
            for other in theirs:
                if regions_meet(one, other):
                    return one, other
    return None


def explain_conflict(
    earlier: Instruction, later: Instruction, configuration: Configuration
) -> str | None:
    """Why two instructions conflict, as the end of a sentence; None where they do not."""
    first, second = footprint(earlier, configuration), footprint(later, configuration)
    if not footprints_conflict(first, second):
        return None
    met = _meeting(first, second)
    if met is not None:
        verbs = ["writes" if place.access.writes else "reads" for place in met]
        low, high = max(met[0].low, met[1].low), min(met[0].high, met[1].high)
        return (
            f"the first {verbs[0]} (`{met[0].access.operand}`) what the second {verbs[1]} "
            f"(`{met[1].access.operand}`) among bytes {low} to {high} of "
            f"{met[0].access.memory.name}"
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
