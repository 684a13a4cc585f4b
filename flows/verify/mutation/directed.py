"""Programs with one purpose each, for cases that random programs meet too rarely.

They cover runs of every length, close comparisons, and products of sums and scales so near to a
rounding tie that every bit matters.
"""

import random
from typing import Any

import numpy as np

from ....isa.configuration import Configuration, Memory
from ....isa.instructions import Instruction, Load, Loop, ReduceMode, Store, Vector
from ....isa.legality import has_faults
from ....isa.tokens import synthesise_tokens
from .loops import DATA_BYTES, Program


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
    """Sums of a few bits in ACC, combined with ACT in every way, which makes comparisons close."""
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
        for combine in configuration.operations:
            for reduce in ReduceMode:
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
            # Store the result before the next instruction overwrites it.
            source = Memory.ACC if instruction.to_acc else Memory.ACT
            length = 4 * count if instruction.to_acc else count
            length *= configuration.vector_lanes
            at = DATA_BYTES // 2 + number * 128 % (DATA_BYTES // 2 - length)
            kept.append(Store(source=source, length=length, local=0, memory=at))
    return synthesise_tokens(kept, configuration), image


def near_ties(configuration: Configuration, seed: int, rounds: int) -> Program:
    """Requantise sums by scales for which the result is a tie or one binary32 step from it.

    All inputs are zero; the sums are the biases. Each round loads all of PARAM and requantises one
    slice per row.
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
    """Sums and bit patterns of scales, uint32[count, 2], whose products are next to a tie."""
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
"""Distance of the deciding bit below half a binary32 step."""


def _barely_beyond(chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums and scales whose product is an even integer, a half, half a binary32 step and one bit.

    The last bit, at any lower position, alone makes the product round up; a quarter of the pairs
    lack it. An odd sum is multiplied by the inverse that leaves these low bits.
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
