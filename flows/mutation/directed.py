"""Programs with one purpose each, for what random programs meet too rarely.

Loops that run to their greatest extent at every level of every family, and sums and scales whose
product lies so near to a rounding tie that every bit of it decides.
"""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...isa.configuration import Configuration, Memory
from ...isa.instructions import (
    Combine,
    Gemm,
    Instruction,
    Load,
    Loop,
    Reduce,
    Store,
    Vector,
)
from ...isa.legality import has_faults
from ...isa.tokens import synthesise_tokens

Program = tuple[tuple[Instruction, ...], np.ndarray]

DATA_BYTES = 1 << 14
ATTEMPTS = 400
MANY = 300
"""Loops of more iterations than this stand alone, so that the programs stay short."""

FAMILIES: tuple[tuple[type[Instruction], Memory | None], ...] = (
    (Load, Memory.ACT), (Store, Memory.ACT), (Gemm, None), (Vector, Memory.ACT),
    (Vector, Memory.ACC), (Load, Memory.WGT), (Store, Memory.ACC),
)  # fmt: skip


def long_loops(configuration: Configuration, seed: int) -> Iterator[tuple[str, Program]]:
    """Per family, a loop for every level and every bit of its extent, inside and round others.

    An extent of two more than a power of two tells a bit that a comparison leaves out.
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
    """An instruction with these loops, its operands anywhere."""
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
    """ACT and WGT with something in them."""
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
    """Per family, loops of every bit of an extent with at most one other round them.

    Together with `encode_loosely`, every level is stepped while all inside of it stand still.
    """
    chance = random.Random(seed)
    image = np.random.default_rng(seed).integers(0, 256, DATA_BYTES, dtype=np.uint8)
    for family, memory in FAMILIES:
        body = _filled(configuration)
        for step in range(2 * configuration.extent_bits):
            bit = step // 2
            extent = min((1 << bit) + 1 + step % 2, 1 << configuration.extent_bits)
            for nest, moved in family.nests.items():
                levels = family.levels(nest, configuration)
                for number in range(2 * levels if bit < 5 else 1):
                    outer = number % 2 and levels > 1
                    for _ in range(ATTEMPTS):
                        strides = [
                            tuple(chance.choice((0, 1, -1, 2)) for _ in moved) for _ in range(2)
                        ]
                        loops = (Loop(2, strides[0]),) if outer else ()
                        loops += (Loop(extent, strides[1]),)
                        nests = {name: loops if name == nest else () for name in family.nests}
                        found = _filled_in(configuration, chance, family, memory, nests)
                        if not has_faults(found, configuration, DATA_BYTES):
                            body.append(found)
                            break
        name = f"lonely loops of {family.mnemonic}{f' {memory.name}' if memory else ''}"
        yield name, (synthesise_tokens(body, configuration), image)


def tireless_rows(configuration: Configuration) -> list[Instruction]:
    """GEMMs whose row loops come back to one row too early: only their time has a meaning."""
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


def lengths(configuration: Configuration) -> Program:
    """Runs of every length that is a power of two, and one more, filled and copied, in and out."""
    image = np.random.default_rng(9).integers(0, 256, DATA_BYTES, dtype=np.uint8)
    body: list[Instruction] = []
    for memory in (Memory.ACT, Memory.WGT, Memory.PARAM, Memory.LUT, Memory.ACC):
        size = configuration.size_bytes(memory)
        found = {size} | {(1 << bit) + more for bit in range(13) for more in (0, 1)}
        for length in sorted(n for n in found if n <= min(size, DATA_BYTES // 4)):
            local, value = (size - length) // 2, length * 37 & 255
            if memory is not Memory.ACC:
                places: dict[str, Any] = {"destination": memory, "length": length, "local": local}
                body.append(Load(memory=length % 64, **places))
                body.append(Load(fill=True, value=value, memory=0, **places))
            if memory in (Memory.ACT, Memory.ACC):
                at = DATA_BYTES // 2 + length % 32
                body.append(Store(source=memory, length=length, local=local, memory=at))
    return synthesise_tokens(body, configuration), image


def small_sums(configuration: Configuration) -> Program:
    """Sums of a few bits in ACC, combined with ACT in every way: comparisons are close."""
    chance = random.Random(11)
    image = np.random.default_rng(11).integers(0, 256, DATA_BYTES, dtype=np.uint8)
    act = configuration.size_bytes(Memory.ACT) // configuration.vector_lanes
    acc = configuration.size_bytes(Memory.ACC) // configuration.vector_lanes // 4
    bank = act // configuration.act_banks
    body: list[Instruction] = []
    count = min(bank, acc, 64)
    for _ in range(20):
        body.append(
            Load(
                destination=Memory.ACT, length=min(act * configuration.vector_lanes, 1024),
                memory=64 * chance.randrange(64), local=0,
            )
        )  # fmt: skip
        size = min(configuration.size_bytes(Memory.PARAM), DATA_BYTES // 4)
        at = 8 * chance.randrange(DATA_BYTES // 16)
        body.append(Load(destination=Memory.PARAM, length=size, memory=at, local=0))
        for combine in Combine:
            for reduce in Reduce:
                factor = chance.choice((1, -1, 3, 32767, -32768, chance.randint(-999, 999)))
                extent = chance.choice((1, 2, 3))
                loops = (Loop(count // extent, (1, extent, 1, 0)),)
                if chance.random() < 0.6:
                    fresh = (Loop(count, (1, 1, 0, 0)),)
                    body.append(Vector(to_acc=True, dst=0, a=0, map_loops=fresh))
                body.append(
                    Vector(
                        a_from_acc=chance.random() < 0.8, to_acc=chance.random() < 0.5,
                        combine=combine, reduce=reduce, b_multiplier=factor, a_multiplier=-factor,
                        bias=chance.random() < 0.5, dst=0, a=0, b=chance.randrange(1, 3) * bank,
                        map_loops=loops,
                        reduce_loops=(Loop(extent, (1, chance.choice((0, 1)))),),
                    )
                )  # fmt: skip
    kept: list[Instruction] = []
    for number, instruction in enumerate(body):
        if has_faults(instruction, configuration, DATA_BYTES):
            continue
        kept.append(instruction)
        if isinstance(instruction, Vector):
            # What it wrote, before the next one writes there.
            source = Memory.ACC if instruction.to_acc else Memory.ACT
            length = 4 * count if instruction.to_acc else count
            length *= configuration.vector_lanes
            at = DATA_BYTES // 2 + number * 128 % (DATA_BYTES // 2 - length)
            kept.append(Store(source=source, length=length, local=0, memory=at))
    return synthesise_tokens(kept, configuration), image


def near_ties(configuration: Configuration, seed: int, rounds: int) -> Program:
    """Requantise sums by scales for which the result is a tie or one binary32 step beside it.

    All inputs are zero; the sums are the biases. Each round loads PARAM whole and requantises one
    slice per row of it.
    """
    chance = np.random.default_rng(seed)
    rows, lanes = configuration.param_depth, configuration.vector_lanes
    rows = min(rows, 16)
    count = rounds * rows * lanes
    pairs = hard_pairs(chance, count)
    size = rows * lanes * 8
    image = np.concatenate([pairs.view(np.uint8).reshape(-1), np.zeros(4096, dtype=np.uint8)])
    output = rounds * size
    body: list[Instruction] = []
    zero_points = (0, 0, 0, 5, -7)
    for number in range(rounds):
        body.append(Load(destination=Memory.PARAM, length=size, memory=number * size, local=0))
        strides = (1, 0, 0, 1)
        body.append(
            Vector(
                bias=True, scale=True, dst=0, a=configuration.rows(Memory.ACT) - 1,
                zero_point=zero_points[number % len(zero_points)],
                param=0, map_loops=(Loop(rows, strides),),
            )
        )  # fmt: skip
        at = output + number * rows * lanes % 2048
        body.append(Store(source=Memory.ACT, length=rows * lanes, local=0, memory=at))
    return synthesise_tokens(body, configuration), image


def hard_pairs(chance: np.random.Generator, count: int) -> np.ndarray:
    """Sums and bit patterns of scales, uint32[count, 2], whose products lie beside a tie."""
    bits = chance.integers(1, 25, count)
    sums = (1 << bits) - chance.integers(1, 1 << np.minimum(bits, 23), count)
    sums = np.maximum(sums, 1)
    targets = chance.integers(0, 129, count) + 0.5
    small = chance.random(count) < 0.5
    targets = np.where(small, chance.integers(0, 3, count) + 0.5, targets)
    scales = (targets / sums).astype(np.float32)
    patterns = scales.view(np.uint32).astype(np.int64) + chance.integers(-3, 4, count)
    few_sums, few_patterns = _barely_beyond(chance, count)
    barely = chance.random(count) < 0.6
    sums, patterns = np.where(barely, few_sums, sums), np.where(barely, few_patterns, patterns)
    # One bit of a sum, and a scale so large that it saturates or just does not.
    single = chance.random(count) < 0.1
    sums = np.where(single, 1 << chance.integers(0, 25, count), sums)
    patterns = np.where(single, chance.integers(125, 256, count) << 23, patterns)
    patterns |= chance.integers(0, 2, count) << 31
    sums = np.where(chance.random(count) < 0.5, -sums, sums)
    return np.stack([sums.astype(np.int32).view(np.uint32), patterns.astype(np.uint32)], axis=1)


DEEPEST_BIT = 20
"""How far below half a binary32 step the deciding bit is put."""


def _barely_beyond(chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums and scales whose product is an even integer, a half, half a binary32 step and one bit.

    That last bit, anywhere below, decides alone that the product rounds up; in a quarter of the
    pairs it is missing. An odd sum is multiplied by the inverse that leaves these low bits.
    """
    found = [np.zeros((0, 2), dtype=np.int64)]
    for below in (0, *range(DEEPEST_BIT)):
        draws = 1 << 14 + max(0, below - 6) // 2
        whole_bits = chance.integers(0, 9, draws)
        span = below + 24 - whole_bits
        odd = chance.integers(1, 1 << np.minimum(below + 2 + whole_bits % 3, 24)) | 1
        rest = np.uint64(1 if below == 0 else 1 + (1 << below))
        low = (np.uint64(1) << span.astype(np.uint64)) - np.uint64(1)
        factor = (_inverse(odd.astype(np.uint64)) * rest & low).astype(np.int64)
        top = odd * np.minimum(factor, 1 << 24) >> span
        scaled = 24 - _bit_length(factor)
        shift = (chance.random(draws) * (25 - _bit_length(odd))).astype(np.int64)
        exponent = 149 - (shift + scaled + span)
        legal = (scaled >= 0) & (_bit_length(top) == whole_bits + 1) & (top % 4 == 1)
        legal |= (scaled >= 0) & (whole_bits == 0) & (top == 1)
        legal &= (exponent >= 1) & (exponent <= 254)
        sums = odd << shift
        patterns = exponent << 23 | (factor << np.maximum(scaled, 0)) & 0x7FFFFF
        found.append(np.stack([sums, patterns], axis=1)[legal][: count // 8])
    pairs = np.concatenate(found)
    return tuple(chance.choice(pairs, count).T)


def _inverse(odd: np.ndarray) -> np.ndarray:
    """Inverses of odd numbers modulo 2**64, by Newton's iteration, uint64[...]."""
    inverse = odd.copy()
    for _ in range(6):
        inverse *= np.uint64(2) - odd * inverse
    return inverse


def _bit_length(values: np.ndarray) -> np.ndarray:
    """Bits of numbers below 2**53, int64[...]; 0 has none."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)
