"""The strided copy: a stride per dimension on each side, cut into runs and loops of a transfer."""

from collections.abc import Iterator, Sequence

from ...isa.configuration import Configuration, Memory
from ...isa.instructions import Instruction, Loop, fill_memory, transfer
from ...isa.instructions.common import local_bits

Dimension = tuple[int, int, int]
"""Extent, and bytes per step on each side of a copy."""

LATENCY_CYCLES = 64
"""Latency of main memory in estimates; it limits short runs, since few are in flight at once."""


def strided_copy(
    ways: tuple[Memory, Memory],
    dims: Sequence[Dimension],
    base: tuple[int, int],
    limits: Configuration,
) -> list[Instruction]:
    """LOADs or STOREs that copy bytes from one memory to another, the innermost dimension last.

    If rows of memory are columns of WGT, a machine that can takes them as runs.
    """
    present = [strides for extent, *strides in dims if extent > 1]
    transpose = ways[1] is Memory.WGT and limits.transposed_weights != "none"
    transpose &= [1, 1] not in present and [1, limits.lanes_out] in present
    if transpose:
        dims = sorted(dims, key=lambda dimension: dimension[1], reverse=True)
    steps = 1, limits.lanes_out if transpose else 1
    return [
        transfer(*ways, length, bases, loops, transpose=transpose)
        for length, bases, loops in copy_runs(dims, base, limits, steps)
    ]


def fill_bytes(
    dims: Sequence[tuple[int, int]],
    destination: Memory,
    local: int,
    value: int,
    limits: Configuration,
) -> list[Instruction]:
    """LOADs that write one byte value over `(extent, stride)` dimensions, the innermost last."""
    spread = [(extent, 0, stride) for extent, stride in dims]
    return [
        fill_memory(destination, value & 0xFF, length, base[1], loops)
        for length, base, loops in copy_runs(spread, (0, local), limits, (0, 1))
    ]


def run_cycles(size: int, run: int, configuration: Configuration) -> int:
    """Estimated cycles to move `size` bytes in runs of `run` bytes."""
    beats = max(run / configuration.bus_bytes, LATENCY_CYCLES / configuration.outstanding_bursts)
    return int(size / run * beats)


def transposed_cycles(size: int, configuration: Configuration) -> int:
    """Estimated cycles to load `size` bytes into WGT in columns."""
    if configuration.transposed_weights == "none":
        return run_cycles(size, 1, configuration)
    return size


def copy_runs(
    dims: Sequence[Dimension],
    base: tuple[int, int],
    limits: Configuration,
    steps: tuple[int, int],
) -> Iterator[tuple[int, tuple[int, int], tuple[Loop, ...]]]:
    """Cut `(extent, stride, stride)` dimensions into runs under at most `dma_loops` loops.

    A byte of a run is `steps` behind the one before on each side; 0 for any distance.
    """
    length, most, extent_limit = 1, 1 << local_bits(limits), 1 << limits.extent_bits
    loops: list[Loop] = []
    for extent, *strides in reversed(dims):
        if extent == 1:
            continue
        joins = all(s == length * step for s, step in zip(strides, steps, strict=True) if step)
        if not loops and joins and extent * length <= most:
            length *= extent
            continue
        if loops:
            inner = loops[-1]
            walks_on = all(
                s == inner.extent * i for s, i in zip(strides, inner.strides, strict=True)
            )
            if walks_on and inner.extent * extent <= extent_limit:
                loops[-1] = Loop(inner.extent * extent, inner.strides)
                continue
        loops.append(Loop(extent, (strides[0], strides[1])))
    loops.reverse()
    yield from _unroll(length, base, loops, limits.dma_loops, extent_limit)


def _unroll(length, base, loops: list[Loop], levels: int, limit: int):
    """Unroll outer loops into several instructions until levels and extents fit."""
    for index, loop in enumerate(loops):
        if loop.extent > limit:
            for start in range(0, loop.extent, limit):
                part = Loop(min(limit, loop.extent - start), loop.strides)
                moved = tuple(b + start * s for b, s in zip(base, loop.strides, strict=True))
                yield from _unroll(
                    length, moved, [*loops[:index], part, *loops[index + 1 :]], levels, limit
                )
            return
    if len(loops) <= levels:
        yield length, base, tuple(loops)
        return
    outer, *rest = loops
    for step in range(outer.extent):
        moved = tuple(b + step * s for b, s in zip(base, outer.strides, strict=True))
        yield from _unroll(length, moved, rest, levels, limit)
