"""Runs prepared from programs, at any place in memory and in unusual encodings.

The meaning of a program depends neither on the place of its data nor on its free bits; these runs
vary both.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, cycle

import numpy as np

from ....isa.configuration import Configuration
from ....isa.configuration_rules import PAGE_BYTES
from ....isa.encoding import decode_program, encode_program, word_bytes
from ....isa.fields import pack, width
from ....isa.instructions import Instruction, Load, Store
from ....isa.memory_model import MemoryModel
from ....isa.semantics import Machine
from ..programs.equivalent_words import place_loops
from .session import StimulusRun

QUICK = MemoryModel(latency_cycles=3)


def moody_memory(chance: random.Random) -> MemoryModel:
    """A random memory model, from a fast one to one that stalls four cycles out of five."""
    cycles = chance.choice((1, 1, 2, 3, 7))
    return MemoryModel(
        latency_cycles=chance.choice((1, 2, 16, 64, 200)),
        beats=chance.randint(1, cycles),
        cycles=cycles,
        outstanding_bursts=chance.choice((1, 2, 64)),
        stall_probability=chance.choice((0.0, 0.0, 0.1, 0.5, 0.8)),
        seed=chance.randrange(1 << 30),
    )


def place(
    configuration: Configuration, chance: random.Random, program_bytes: int, data_bytes: int
) -> tuple[int, int]:
    """Bases of a program and of its data, anywhere in main memory."""
    top = 1 << configuration.address_bits
    pages = -(-data_bytes // PAGE_BYTES)
    last = top // PAGE_BYTES - pages
    data = chance.choice((1, last, chance.randrange(1, last))) * PAGE_BYTES
    while True:
        program = chance.randrange((top - program_bytes) // 32) * 32
        if program + program_bytes <= data - 64 or program >= data + data_bytes + 64:
            return program, data


def prepare(
    configuration: Configuration,
    chance: random.Random,
    program: tuple[Instruction, ...],
    image: np.ndarray,
    memory: MemoryModel | None = None,
) -> StimulusRun:
    """A run of a legal program, with the memories after the definition has run it."""
    machine = Machine(configuration, image.copy())
    machine.run(program)
    size = len(encode_program(program, configuration))
    program_base, place_of_data = place(configuration, chance, size, image.size)
    # The window begins below the data: offsets in instructions use all their bits.
    shift = chance.randrange(place_of_data // PAGE_BYTES) * PAGE_BYTES
    code = encode_loosely([_shifted(i, shift) for i in program], configuration, size)
    assert decode_program(code, configuration) == tuple(_shifted(i, shift) for i in program)
    mood = memory or moody_memory(chance)
    window = place_of_data - shift, shift + image.size
    return StimulusRun(code, image, mood, machine, program_base, None, place_of_data, *window)


def _shifted(instruction: Instruction, by: int) -> Instruction:
    """The same instruction at a different place in main memory."""
    if isinstance(instruction, Load) and instruction.fill:
        return instruction
    if isinstance(instruction, Load | Store):
        return replace(instruction, memory=instruction.memory + by)
    return instruction


def encode_loosely(
    program: Sequence[Instruction], configuration: Configuration, seed: int
) -> bytes:
    """Words with the same meaning as `encode_program`'s, but random free bits and loop levels.

    Loops stand at any levels in their order; loops of extent 1 have jumps; padding is not zero. A
    nest that occurs once per choice of levels uses each choice once.
    """
    chance = random.Random(seed)
    turns: dict[tuple[str, str, int], Iterator[tuple[int, ...]]] = {}
    words = []
    for instruction in program:
        values = instruction.values(configuration)
        for nest in instruction.nests:
            loops, levels = getattr(instruction, nest), instruction.levels(nest, configuration)
            key = instruction.mnemonic, nest, len(loops)
            if key not in turns:
                choices = list(combinations(range(levels), len(loops)))
                turns[key] = cycle(chance.sample(choices, len(choices)))
            place_loops(
                values, instruction, nest, next(turns[key]), configuration,
                lambda field: chance.choice((0, 1, max(field.low, -1))),
            )  # fmt: skip
        layout = instruction.layout(configuration)
        word = pack(layout, values)
        size = 8 * word_bytes(configuration)
        word |= chance.getrandbits(size) >> width(layout) << width(layout)
        words.append(word.to_bytes(size // 8, "little"))
    return b"".join(words)
