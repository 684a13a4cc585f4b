"""Programs that test every bit of a loop extent, at every level of every family."""

import random
from collections.abc import Iterator
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np

from ....hardware.load import DESTINATIONS
from ....isa.configuration import Configuration, Memory
from ....isa.instructions import Gemm, Instruction, Load, Loop, Store, Unit, Vector
from ....isa.legality import has_faults
from ....isa.tokens import synthesise_tokens

Program = tuple[tuple[Instruction, ...], np.ndarray]

DATA_BYTES = 1 << 14
ATTEMPTS = 400
MANY = 300
"""Loops of more iterations than this are alone, to keep the programs short."""

FAMILIES: tuple[tuple[type[Instruction], Memory | None], ...] = (
    (Load, Memory.ACT), (Store, Memory.ACT), (Gemm, None), (Vector, Memory.ACT),
    (Vector, Memory.ACC), (Load, Memory.WGT), (Store, Memory.ACC),
)  # fmt: skip


def long_loops(configuration: Configuration, seed: int) -> Iterator[tuple[str, Program]]:
    """Per family, a loop for every level and every bit of its extent, nested with others.

    An extent of a power of two plus two reveals a bit that a comparison ignores.
    """
    chance = random.Random(seed)
    image = np.random.default_rng(seed).integers(0, 256, DATA_BYTES, dtype=np.uint8)
    for family, memory in FAMILIES:
        levels = sum(family.levels(nest, configuration) for nest in family.nests)
        body = _filled(configuration)
        for level in range(levels):
            for bit in range(configuration.extent_bits):
                found = _long(configuration, chance, family, memory, level, (1 << bit) + 2)
                body += [] if found is None else [found]
        name = f"loops of {family.mnemonic}{f' {memory.name}' if memory else ''}"
        yield name, (synthesise_tokens(body, configuration), image)


def _long(
    configuration: Configuration,
    chance: random.Random,
    family: type[Instruction],
    memory: Memory | None,
    level: int,
    extent: int,
) -> Instruction | None:
    """A legal instruction with a loop of this extent at `level`, if chance finds one."""
    extent = min(extent, 1 << configuration.extent_bits)
    for _ in range(ATTEMPTS):
        nests: dict[str, Any] = {}
        place = 0
        for nest, moved in family.nests.items():
            loops = []
            levels = family.levels(nest, configuration)
            own = place <= level < place + levels
            for _ in range(levels):
                # Missing loops are the outer ones: inside of a long loop there must be others.
                near = place > level or place == level - 1
                other = 2 if own and near and extent < MANY else 1
                steps = [chance.choice((0, 0, 1, -1, 2, 3)) for _ in moved]
                loops.append(Loop(extent if place == level else other, tuple(steps)))
                place += 1
            nests[nest] = tuple(loops)
        instruction = _filled_in(configuration, chance, family, memory, nests)
        if not has_faults(instruction, configuration, DATA_BYTES):
            return instruction
    return None


def _filled_in(
    configuration: Configuration,
    chance: random.Random,
    family: type[Instruction],
    memory: Memory | None,
    nests: dict[str, Any],
) -> Instruction:
    """An instruction with these loops and random operands."""
    act, acc = configuration.rows(Memory.ACT), configuration.rows(Memory.ACC)
    if issubclass(family, Load | Store):
        assert memory is not None
        places: dict[str, Any] = {
            "length": 1,
            "local": chance.randrange(configuration.size_bytes(memory)),
            "memory": DATA_BYTES // 2,
            "loops": nests["loops"],
        }
        if family is Load:
            return Load(destination=memory, **places)
        return Store(source=memory, **places)
    if family is Gemm:
        return Gemm(act=chance.randrange(act), wgt=0, acc=chance.randrange(acc), **nests)
    slices = configuration.lanes_in // configuration.vector_lanes
    return Vector(
        dst=chance.randrange((acc if memory is Memory.ACC else act) * slices),
        to_acc=memory is Memory.ACC,
        a=chance.randrange(act * slices),
        **nests,
    )


def _filled(configuration: Configuration) -> list[Instruction]:
    """Instructions that fill ACT and WGT."""
    return [
        Load(
            destination=memory,
            length=min(configuration.size_bytes(memory), 2048),
            memory=64,
            local=0,
        )
        for memory in (Memory.ACT, Memory.WGT)
    ]


def lonely_loops(configuration: Configuration, seed: int) -> Iterator[tuple[str, Program]]:
    """Per family, loops for every bit of an extent with at most one outer loop.

    Each occurs once per choice of levels, and `encode_loosely` uses each choice once. Every level
    therefore steps while all inner levels stand still. The results of GEMM and VECTOR are stored
    before the next instruction overwrites them.
    """
    chance = random.Random(seed)
    image = np.random.default_rng(seed).integers(0, 256, DATA_BYTES, dtype=np.uint8)
    for family, memory in FAMILIES:
        body = _filled(configuration)
        for step in range(2 * configuration.extent_bits):
            bit = step // 2
            extent = min((1 << bit) + 1 + step % 2, 1 << configuration.extent_bits)
            for nest in family.nests:
                levels = family.levels(nest, configuration)
                counts = (levels, comb(levels, 2)) if bit < 5 else (1, 0)
                for outer, count in enumerate(counts):
                    for _ in range(count):
                        found = _lonely(configuration, chance, family, memory, nest, extent, outer)
                        body += [] if found is None else [found]
                        body += _stored(configuration, found, len(body))
        name = f"lonely loops of {family.mnemonic}{f' {memory.name}' if memory else ''}"
        yield name, (synthesise_tokens(body, configuration), image)


def _lonely(
    configuration: Configuration,
    chance: random.Random,
    family: type[Instruction],
    memory: Memory | None,
    nest: str,
    extent: int,
    outer: int,
) -> Instruction | None:
    """A legal instruction with this loop; as many operands as possible move."""
    moved = family.nests[nest]
    for attempt in range(ATTEMPTS):
        still = chance.sample(moved, attempt * (len(moved) + 1) // ATTEMPTS)
        strides = tuple(0 if name in still else chance.choice((1, -1, 2)) for name in moved)
        around = tuple(chance.choice((0, 1, -1, 2)) for _ in moved)
        loops = (*[Loop(2, around)] * outer, Loop(extent, strides))
        nests = {name: loops if name == nest else () for name in family.nests}
        found = _filled_in(configuration, chance, family, memory, nests)
        if not has_faults(found, configuration, DATA_BYTES):
            return found
    return None


def _stored(
    configuration: Configuration, instruction: Instruction | None, number: int
) -> list[Instruction]:
    """STOREs of results of GEMM or VECTOR, to the upper half of the data."""
    if not isinstance(instruction, Gemm | Vector):
        return []
    to_acc = isinstance(instruction, Gemm) or instruction.to_acc
    source = Memory.ACC if to_acc else Memory.ACT
    half = DATA_BYTES // 2
    length = min(configuration.size_bytes(source), half // 2)
    at = half + number * length % (half - length)
    return [Store(source=source, length=length, local=0, memory=at)]


def tireless_rows(configuration: Configuration) -> list[Instruction]:
    """GEMMs whose row loops visit a row again too early; only their time is defined."""
    still = (0, 0)
    body: list[Instruction] = []
    for number in range(2 * configuration.extent_bits):
        extent = (1 << number // 2) + 1 + number % 2
        for level in range(configuration.row_loops):
            inner = [Loop(2, still)] * (configuration.row_loops - 1 - level)
            outer = [Loop(2, still)] * min(level, 1)
            rows = (*outer, Loop(min(extent, 1 << configuration.extent_bits), still), *inner)
            body.append(Gemm(act=0, wgt=0, acc=0, row_loops=rows))
    return body


def wrapping_tiles(configuration: Configuration) -> list[Instruction]:
    """GEMMs whose tile loops leave the scratchpads at one end and wrap to the other.

    No legal single loop over distinct tiles is as long as the largest extent.
    """
    loads = _filled(configuration)
    body: list[Instruction] = []
    for number in range(2 * configuration.extent_bits):
        extent = min((1 << number // 2) + 1 + number % 2, 1 << configuration.extent_bits)
        loops = (Loop(extent, (1, 1, 1)),)
        gemm = Gemm(accumulate=True, act=0, wgt=0, acc=0, tile_loops=loops)
        body += [gemm] * configuration.tile_loops
    loads[-1] = replace(loads[-1], signal=frozenset({Unit.GEMM}))
    body[0] = replace(body[0], wait=frozenset({Unit.LOAD}))
    return loads + body


def wrapping_runs(configuration: Configuration) -> list[Instruction]:
    """STOREs of more bytes than the scratchpad has, with loops at every level.

    Legal STOREs never use the upper bits of the length if LOAD has a larger scratchpad.
    """
    largest = max(configuration.size_bytes(memory) for memory in DESTINATIONS)
    loads = _filled(configuration)
    body: list[Instruction] = []
    for bit in range(min(largest, 1024).bit_length() - 1):
        loops = (Loop(2, (3, 1100)),)
        store = Store(source=Memory.ACT, length=(1 << bit) + 1, local=0, memory=1024, loops=loops)
        body += [store] * configuration.dma_loops
    loads[0] = replace(loads[0], signal=frozenset({Unit.STORE}))
    body[0] = replace(body[0], wait=frozenset({Unit.LOAD}))
    return loads + body
