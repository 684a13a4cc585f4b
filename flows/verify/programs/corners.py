"""Corners that programs should meet, recognised in a program, and counted over many.

A corner is a name such as `load.local@ACT last` or `hazard GEMM>VECTOR read after write`.
`possible_corners` lists the corners that are possible on a configuration, so the missing ones of a
set of programs are known. Corners of numbers, such as a sum that wraps, need execution: see
`corners_of_numbers` in `number_corners`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from ....isa.configuration import Configuration, Memory
from ....isa.configuration_rules import PAGE_BYTES
from ....isa.footprints import (
    Footprint,
    bank_mask,
    footprint,
    footprints_conflict,
    region,
    regions_meet,
)
from ....isa.instructions import Gemm, Instruction, Load, Loop, Store, Sync, Unit, Vector
from ....isa.instructions.loops import nest_addresses
from ....isa.pipeline import GEMM_REVISIT_STEPS
from .number_corners import corners_of_numbers
from .possible_corners import (
    MANY_RUNS,
    STRETCH,
    TINY_RUN,
    choices,
    ends,
    possible_corners,
    shown,
)


def coverage(
    programs: Iterable[tuple[Sequence[Instruction], np.ndarray]],
    configuration: Configuration,
    length: int = 40,
) -> dict[str, int]:
    """Number of programs that meet each corner, including corners with 0.

    Parameters
    ----------
    programs
        Programs, each with its initial image of main memory.
    length
        Instructions that a program may have; decides which corners are possible.
    """
    met: Counter[str] = Counter()
    possible: set[str] = set()
    for program, image in programs:
        if not possible:
            possible = possible_corners(configuration, image.size, length)
        met.update(program_corners(program, configuration, image.size))
        met.update(corners_of_numbers(program, configuration, image))
    return {corner: met[corner] for corner in sorted(possible | set(met))}


def program_corners(
    program: Sequence[Instruction], configuration: Configuration, data_bytes: int
) -> set[str]:
    """Corners of a legal program that are visible without execution."""
    met: set[str] = set()
    for instruction in program:
        met.update(_fields(instruction, configuration))
        met.update(_nests(instruction, configuration))
        met.update(_places(instruction, configuration, data_bytes))
        if isinstance(instruction, Load | Store):
            met.update(_transfer(instruction, configuration))
        elif isinstance(instruction, Gemm):
            met.update(_gemm(instruction, configuration))
        elif isinstance(instruction, Vector):
            met.update(_vector(instruction, configuration))
    met.update(_pads(program))
    met.update(_queues(program, configuration))
    met.update(_tokens(program, configuration))
    return met


def _fields(instruction: Instruction, configuration: Configuration) -> Iterator[str]:
    family = type(instruction)
    yield f"opcode {family.mnemonic}"
    for name in choices(family, configuration):
        value = getattr(instruction, name)
        if instruction.takes_effect(name) and value in ends(family, name, configuration):
            yield f"{family.mnemonic}.{name}={shown(value)}"


def _nests(instruction: Instruction, configuration: Configuration) -> Iterator[str]:
    name = instruction.mnemonic
    if instruction.nests and instruction.steps() == 1:
        yield f"{name} without loops"
    active = {o.name for o in instruction.operands if instruction.active(o)}
    for nest, moved in instruction.nests.items():
        loops: tuple[Loop, ...] = getattr(instruction, nest)
        if len(loops) == instruction.levels(nest, configuration):
            yield f"{name}.{nest} all levels"
        for loop in loops:
            if loop.extent == 2:
                yield f"{name}.{nest} extent 2"
            if loop.extent == 1 << configuration.extent_bits:
                yield f"{name}.{nest} greatest extent"
            for operand, stride in zip(moved, loop.strides, strict=True):
                if operand in active:
                    way = "forward" if stride > 0 else "backward" if stride else "still"
                    yield f"{name}.{nest} {operand} {way}"


def _places(
    instruction: Instruction, configuration: Configuration, data_bytes: int
) -> Iterator[str]:
    for access in instruction.accesses(configuration):
        if access.operand == "table":
            continue
        memory = access.memory
        size = data_bytes if memory is Memory.DRAM else configuration.size_bytes(memory)
        where = f"{instruction.mnemonic}.{access.operand}@{memory.name}"
        if access.low == 0:
            yield f"{where} first"
        if access.high == size - 1:
            yield f"{where} last"
        for _, stride in access.loops:
            if abs(stride) == size - access.length:
                yield f"{where} spans {'forward' if stride > 0 else 'backward'}"


def _transfer(transfer: Load | Store, configuration: Configuration) -> Iterator[str]:
    name, bus, length = transfer.mnemonic, configuration.bus_bytes, transfer.length
    local = transfer.destination if isinstance(transfer, Load) else transfer.source
    bank = configuration.bank_bytes(local)
    starts = transfer.addresses("local")
    run = transfer.run_bytes("local", configuration)
    if np.any(starts // bank != (starts + run - 1) // bank):
        yield f"{name} crosses a bank"
    if isinstance(transfer, Load) and transfer.unpack:
        yield f"load unpacks {'one tile' if run == configuration.tile_bytes else 'several tiles'}"
    if isinstance(transfer, Load) and transfer.transpose:
        lines = configuration.burst_bytes
        crosses = transfer.addresses("memory") % lines + length > lines
        yield f"load transposes {'several bursts' if np.any(crosses) else 'one burst'}"
    if length == configuration.size_bytes(local):
        yield f"{name} whole {local.name}"
    if isinstance(transfer, Load) and _overlap(length, transfer.nest_of("local")):
        yield "load runs overlap in scratchpad"
    if isinstance(transfer, Load) and transfer.fill:
        yield f"load.fill {local.name}"
        return
    if length == 1:
        yield f"{name} one byte"
        if transfer.steps() >= MANY_RUNS:
            yield f"{name} many one-byte runs"
    memory = transfer.addresses("memory")
    last = memory + length - 1
    same_beat = memory // bus == last // bus
    if np.any(same_beat):
        yield f"{name} inside a beat"
    if length <= bus and not np.all(same_beat):
        yield f"{name} straddles beats"
    if np.any((memory % bus == 0) & (length % bus == 0)):
        yield f"{name} whole beats"
    if np.any((memory % bus != 0) & ((last + 1) % bus != 0) & ~same_beat):
        yield f"{name} ends at odd bytes"
    if np.any((memory - starts) % bus):
        yield f"{name} shifts lanes"
    if np.any(memory // configuration.burst_bytes != last // configuration.burst_bytes):
        yield f"{name} crosses a burst"
    if np.any(memory // PAGE_BYTES != last // PAGE_BYTES):
        yield f"{name} crosses 4 KiB"
    if length > configuration.outstanding_bursts * configuration.burst_bytes:
        yield f"{name} more bursts than in flight"
    if _overlap(length, transfer.nest_of("memory")):
        yield f"{name} runs overlap in memory"


def _overlap(length: int, loops: tuple[tuple[int, int], ...]) -> bool:
    """Whether two runs of a nest share a byte without being the same."""
    return any(0 < abs(stride) < length for _, stride in loops)


def _gemm(gemm: Gemm, configuration: Configuration) -> Iterator[str]:
    rows, lanes = gemm.rows(), configuration.lanes_in
    yield f"gemm rows {'below' if rows < lanes else 'at' if rows == lanes else 'above'} lanes"
    if rows == 1:
        yield "gemm one row"
    if any(loop.strides[2] == 0 for loop in gemm.tile_loops):
        yield "gemm reduces"
    if any(loop.strides[1] == 0 for loop in gemm.tile_loops):
        yield "gemm weights again"
    if gemm.depthwise:
        yield from _depthwise(gemm, configuration)
    pattern = nest_addresses(gemm.acc, tuple((n.extent, n.strides[1]) for n in gemm.row_loops))
    soon = GEMM_REVISIT_STEPS
    if np.any(pattern[soon:] == pattern[:-soon]):
        yield "gemm revisits soonest in rows"
    duration = max(rows, lanes, soon)
    if gemm.tile_loops:
        move = gemm.tile_loops[-1].strides[2]
        ahead = duration - soon
        if ahead < rows and np.any(pattern[ahead:] == pattern[: rows - ahead] + move):
            yield "gemm revisits soonest across tiles"
    for access in gemm.accesses(configuration):
        if _banks(access, configuration) > 1:
            yield f"gemm changes {access.memory.name} bank"


def _depthwise(gemm: Gemm, configuration: Configuration) -> Iterator[str]:
    run = gemm.run_steps()
    runs = {0: "one row", 1: "one run"}.get(len(gemm.row_loops), "several runs")
    yield f"gemm depthwise {runs}"
    if gemm.accumulate:
        yield "gemm depthwise accumulates"
    if 1 < run < configuration.depthwise_taps:
        yield "gemm depthwise run below taps"
    if (lines := gemm.run_lines(configuration)) > 1:
        yield f"gemm depthwise {'few' if lines < configuration.window_lines else 'all'} lines"


def _banks(access, configuration: Configuration) -> int:
    return bank_mask(region(access, configuration), configuration).bit_count()


def _vector(vector: Vector, configuration: Configuration) -> Iterator[str]:
    both = bool(vector.map_loops), bool(vector.reduce_loops)
    if any(both):
        what = {
            (True, False): "maps only",
            (False, True): "reduces only",
            (True, True): "does both",
        }
        yield f"vector {what[both]}"
    if vector.low > vector.high and vector.becomes_byte:
        yield "vector low above high"
    places = {access.operand: access for access in vector.accesses(configuration)}
    if vector.has_rows:
        yield "vector several rows" if vector.rows() > 1 else "vector one row"
        elements = vector.row_outputs() * configuration.vector_lanes
        if vector.row_bound(0) < elements:
            yield "vector bound inside a row"
    if "dst" not in places:
        return
    for operand in ("dst", "a"):
        if _banks(places[operand], configuration) > 1:
            yield f"vector.{operand} changes {places[operand].memory.name} bank"
        lanes = configuration.row_bytes(places[operand].memory)
        if places[operand].base % lanes:
            yield "vector part of a row"
    if vector.a_from_acc == vector.to_acc:
        if vector.dst == vector.a and vector.nest_of("dst") == vector.nest_of("a"):
            yield "vector in place"
        elif regions_meet(*(region(places[name], configuration) for name in ("a", "dst"))):
            yield "vector reads before it overwrites"


def _pads(program: Sequence[Instruction]) -> Iterator[str]:
    """A copied tile with a fill at each of its four sides, in whatever order."""
    fills = [i for i in program if isinstance(i, Load) and i.fill]
    ends = {(f.destination, f.local + f.length, f.nest_of("local")) for f in fills}
    starts = {(f.destination, f.local, f.nest_of("local")) for f in fills}
    above = {(f.destination, f.local + f.length) for f in fills if not f.loops}
    below = {(f.destination, f.local) for f in fills if not f.loops}
    for copy in program:
        if not isinstance(copy, Load) or copy.fill or len(copy.loops) != 1:
            continue
        (extent, stride), place = copy.nest_of("local")[0], copy.destination
        gap = stride - copy.length
        loops = ((extent, stride),)
        left = (place, copy.local, loops) in ends
        right = (place, copy.local + copy.length, loops) in starts
        first, last = range(copy.local - max(gap, 0), copy.local), copy.local + extent * stride
        if (
            left
            and right
            and any((place, byte) in above for byte in first)
            and any((place, byte) in below for byte in range(last - max(gap, 0), last + 1))
        ):
            yield "load pads all sides"
            return


def _queues(program: Sequence[Instruction], configuration: Configuration) -> Iterator[str]:
    for unit, stretch in groupby(program, key=lambda i: i.home):
        if unit is None:
            continue
        line = list(stretch)
        if line[0].wait and len(line) > configuration.queue_depth + 1:
            yield f"queue beyond its depth {unit.name}"
        for tiny, part in groupby(line, key=lambda i: bool(i.nests) and i.steps() == 1):
            if tiny and sum(1 for _ in part) >= TINY_RUN:
                yield f"tiny run {unit.name}"
    for idle, stretch in groupby(program, key=lambda i: isinstance(i, Sync)):
        if idle and sum(1 for _ in stretch) >= STRETCH:
            yield "sync stretch"


def _tokens(program: Sequence[Instruction], configuration: Configuration) -> Iterator[str]:
    """Masks, counters, and for each token the hazards that it alone covers."""
    pending: dict[tuple[Unit, Unit], list[list[int]]] = {(u, v): [] for u in Unit for v in Unit}
    known = {unit: [0] * len(Unit) for unit in Unit}
    passed: dict[Unit, list[Footprint]] = {unit: [] for unit in Unit}
    for instruction in program:
        unit = instruction.home
        if unit is None:
            continue
        masks = (("waits", instruction.wait), ("signals", instruction.signal))
        for verb, mask in masks:
            if len(mask) == len(Unit) - 1:
                yield f"{verb} {'for ' if verb == 'waits' else ''}all {unit.name}"
            if isinstance(instruction, Sync) and mask:
                yield f"sync {unit.name} {verb}"
        if isinstance(instruction, Sync) and not instruction.wait | instruction.signal:
            yield f"sync {unit.name} bare"
        here = footprint(instruction, configuration)
        clocks = {giver: pending[giver, unit].pop(0) for giver in sorted(instruction.wait)}
        for giver, clock in clocks.items():
            others = [c for other, c in clocks.items() if other is not giver]
            without = max([known[unit][giver], *(c[giver] for c in others)])
            for there in passed[giver][without : clock[giver]]:
                for kind in _hazards(there, here):
                    yield f"hazard {giver.name}>{unit.name} {kind}"
        for clock in clocks.values():
            known[unit] = [max(pair) for pair in zip(known[unit], clock, strict=True)]
        passed[unit].append(here)
        clock = list(known[unit])
        clock[unit] = len(passed[unit])
        for taker in instruction.signal:
            pending[unit, taker].append(clock)
            if len(pending[unit, taker]) == configuration.token_limit:
                yield f"counter full {unit.name}>{taker.name}"


def _hazards(earlier: Footprint, later: Footprint) -> Iterator[str]:
    """Kinds of conflict between two instructions of different units."""
    if not footprints_conflict(earlier, later):
        return
    if _share(earlier.written_regions, later.read_regions):
        yield "read after write"
    if _share(earlier.read_regions, later.written_regions):
        yield "write after read"
    if _share(earlier.written_regions, later.written_regions):
        yield "write after write"
    elif earlier.reads & later.reads & ~1 or earlier.writes & later.writes & ~1:
        yield "one port"


def _share(ours, theirs) -> bool:
    return any(regions_meet(one, other) for one in ours for other in theirs)
