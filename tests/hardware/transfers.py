"""Random LOAD and STORE instructions that stay inside a machine's memories."""

import random

from tilewright.flows.verify.programs.equivalent_words import equivalent_words
from tilewright.hardware.layouts import HEADER, command_layout, header_bits
from tilewright.isa.configuration import PRESETS, Configuration, Memory
from tilewright.isa.fields import pack
from tilewright.isa.instructions import Instruction, Load, Loop, Store

CONFIGURATIONS = {
    "tiny": PRESETS["tiny"],
    "4x4": PRESETS["4x4"],
    "8x16": PRESETS["8x16"],
    "16x8": PRESETS["16x8"],
    "16x16": PRESETS["16x16"],
    "wide bus": PRESETS["8x8"].replace(bus_bits=256, burst_beats=2, vector_lanes=2, dma_loops=2),
    "single beats": PRESETS["tiny"].replace(burst_beats=1, outstanding_bursts=1, dma_loops=1),
}


def command_bits(instruction: Instruction, configuration: Configuration) -> int:
    """What a unit sees of an instruction."""
    layout = [f for f in instruction.layout(configuration) if f.name not in HEADER]
    return pack(layout, instruction.values(configuration))


def equivalent_bits(instruction: Instruction, configuration: Configuration, seed: int) -> int:
    """The same with garbage where nothing should look, and loops at any levels."""
    word = int.from_bytes(equivalent_words([instruction], configuration, seed), "little")
    family = type(instruction)
    size = command_layout(family, configuration).size
    return (word >> header_bits(family, configuration)) & ((1 << size) - 1)


def _strides(generator: random.Random, length: int, row_bytes: int, bus_bytes: int) -> int:
    kind = generator.randrange(6)
    if kind == 0:
        return length
    if kind == 1:
        return generator.randint(-2 * length, 2 * length)
    if kind == 2:
        return generator.choice((-1, 1)) * row_bytes * generator.randint(1, 4)
    if kind == 3:
        return bus_bytes * generator.randint(-3, 3)
    return generator.randint(-40, 40)


def _length(generator: random.Random, row_bytes: int, configuration: Configuration) -> int:
    return generator.choice(
        (
            1,
            generator.randint(1, 4),
            generator.randint(1, 2 * configuration.bus_bytes),
            row_bytes,
            generator.randint(1, 3 * row_bytes),
            generator.randint(1, 3 * configuration.burst_bytes),
        )
    )


def random_transfer(
    generator: random.Random,
    configuration: Configuration,
    family: type[Load] | type[Store],
    dram_bytes: int,
    most_bytes: int = 300,
    stays: bool = True,
) -> Load | Store:
    """Draw an instruction; every corner of alignment, stride and length is likely.

    `most_bytes` bounds what it moves. With `stays` false, its runs leave the data window.
    """
    memories = (
        (Memory.ACT, Memory.WGT, Memory.PARAM, Memory.LUT)
        if family is Load
        else (Memory.ACT, Memory.ACC)
    )
    while True:
        memory = generator.choice(memories)
        row_bytes = configuration.row_bytes(memory)
        length = _length(generator, row_bytes, configuration)
        loops = tuple(
            Loop(
                generator.randint(1, 5),
                (
                    _strides(generator, length, row_bytes, configuration.bus_bytes),
                    _strides(generator, length, row_bytes, configuration.bus_bytes),
                ),
            )
            for _ in range(generator.randint(0, configuration.dma_loops))
        )
        transfer: Load | Store
        if family is Load:
            fill = stays and generator.random() < 0.25
            transfer = Load(
                destination=memory,
                fill=fill,
                value=generator.randrange(256),
                length=length,
                local=0,
                loops=loops,
            )
        else:
            transfer = Store(source=memory, length=length, local=0, memory=0, loops=loops)
        if transfer.steps() * length > most_bytes:
            continue
        bases = {"memory": 0}
        for access in transfer.accesses(configuration):
            size = (
                dram_bytes
                if access.memory is Memory.DRAM
                else configuration.size_bytes(access.memory)
            )
            low, high = -access.low, size - 1 - access.high
            if access.memory is Memory.DRAM and not stays:
                low, high = (high + 1, high + 40) if low == 0 else (max(0, low - 40), low - 1)
            bases[access.operand] = generator.randint(low, high) if low <= high else -1
        if min(bases.values()) < 0:
            continue
        if isinstance(transfer, Load):
            return Load(
                destination=memory,
                fill=transfer.fill,
                value=transfer.value,
                length=length,
                loops=transfer.loops,
                **bases,
            )
        return Store(source=memory, length=length, loops=transfer.loops, **bases)
