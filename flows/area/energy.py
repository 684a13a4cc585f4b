"""Energy of an inference: an estimate from the operations and accesses that a program makes.

The energies are those that M. Horowitz published for a 45 nm process at 0.9 V ("Computing's energy
problem (and what we can do about it)", ISSCC 2014, figure 1.1.9). They do not include the wires,
clocks and control of a chip, and an FPGA takes many times as much, so the estimate compares
programs and machines; it predicts no chip. Between published sizes, the energy of a memory grows by
a power of its size.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from ...isa.configuration import Configuration, Memory
from ...isa.encoding import word_bytes
from ...isa.instructions import Gemm, Instruction, Load, ResultKind, Store, Vector

ADD_32_PJ = 0.1
"""An integer addition."""
MULTIPLY_8_PJ, MULTIPLY_32_PJ, MULTIPLY_FLOAT_PJ = 0.2, 3.1, 3.7
"""Multiplications of integers, and of binary32."""

SRAM_PJ = ((8 << 10, 10.0), (32 << 10, 20.0), (1 << 20, 100.0))
"""Bytes of a memory, and the energy of an access of 64 bits."""
DRAM_PJ = 1300.0, 2600.0
"""Least and greatest energy of 64 bits of main memory."""
ACCESS_BYTES = 8


@dataclass(frozen=True, slots=True)
class Energy:
    """Estimated energy of a program in joules.

    Parameters
    ----------
    arithmetic, scratchpads
        Energy of the operations, and of the accesses to memories in the chip.
    least_memory, greatest_memory
        Bounds of the energy of main memory.
    """

    arithmetic: float
    scratchpads: float
    least_memory: float
    greatest_memory: float

    @property
    def least(self) -> float:
        """The total energy, with the least for main memory."""
        return self.arithmetic + self.scratchpads + self.least_memory

    @property
    def middle(self) -> float:
        """The mean of the least and the greatest energy."""
        return (self.least + self.greatest) / 2

    @property
    def greatest(self) -> float:
        """The total energy, with the greatest for main memory."""
        return self.arithmetic + self.scratchpads + self.greatest_memory


def sram_pj_per_byte(size_bytes: int) -> float:
    """Return the energy of a byte of a memory, at 64 bits an access."""
    log = math.log(size_bytes)
    points = [(math.log(size), math.log(energy)) for size, energy in SRAM_PJ]
    for left, right in pairwise(points):
        if log <= right[0] or right is points[-1]:
            slope = (right[1] - left[1]) / (right[0] - left[0])
            return math.exp(left[1] + slope * (log - left[0])) / ACCESS_BYTES
    raise AssertionError("no published sizes")


def energy_of(program: Iterable[Instruction], configuration: Configuration) -> Energy:
    """Estimate the energy of a program.

    Parameters
    ----------
    program
        Instructions, each of which runs once.
    """
    accesses = dict.fromkeys(Memory, 0)
    arithmetic_pj = 0.0
    lanes = configuration.vector_lanes
    for instruction in program:
        accesses[Memory.DRAM] += word_bytes(configuration)
        if isinstance(instruction, Gemm):
            steps, tiles = instruction.rows() * instruction.tiles(), instruction.tiles()
            accesses[Memory.ACT] += steps * configuration.lanes_in
            accesses[Memory.WGT] += tiles * configuration.tile_bytes
            accesses[Memory.ACC] += steps * 2 * configuration.row_bytes(Memory.ACC)
            arithmetic_pj += steps * configuration.tile_bytes * (MULTIPLY_8_PJ + ADD_32_PJ)
        elif isinstance(instruction, Vector):
            arithmetic_pj += _vector(instruction, lanes, accesses)
        elif isinstance(instruction, Load | Store):
            data = instruction.length * instruction.steps()
            local = instruction.destination if isinstance(instruction, Load) else instruction.source
            copies = lanes if local is Memory.LUT else 1
            accesses[Memory(local)] += copies * data
            if not (isinstance(instruction, Load) and instruction.fill):
                accesses[Memory.DRAM] += data
    scratchpads_pj = sum(
        count * sram_pj_per_byte(configuration.bank_bytes(memory))
        for memory, count in accesses.items()
        if memory is not Memory.DRAM
    )
    memory_pj = [accesses[Memory.DRAM] * pj / ACCESS_BYTES for pj in DRAM_PJ]
    parts = (arithmetic_pj, scratchpads_pj, *memory_pj)
    return Energy(*(1e-12 * part for part in parts))


def _vector(instruction: Vector, lanes: int, accesses: dict[Memory, int]) -> float:
    """Count the accesses of a VECTOR; return the picojoules of its arithmetic."""
    steps = instruction.steps() * lanes
    outputs = lanes * math.prod(loop.extent for loop in instruction.map_loops)
    a, a_bytes = (Memory.ACC, 4) if instruction.a_from_acc else (Memory.ACT, 1)
    dst, dst_bytes = (Memory.ACC, 4) if instruction.to_acc else (Memory.ACT, 1)
    accesses[a] += steps * a_bytes
    accesses[Memory.ACT] += steps * instruction.combine.reads("b")
    accesses[dst] += outputs * dst_bytes * (instruction.result is not ResultKind.NONE)
    accesses[Memory.PARAM] += 8 * outputs * (instruction.bias or instruction.scale)
    accesses[Memory.PARAM] += 8 * lanes * instruction.rows() * (instruction.measured > 0)
    looked_up = instruction.looks_up_bytes + 2 * instruction.looks_up_entries
    accesses[Memory.LUT] += outputs * looked_up
    combined = steps * (MULTIPLY_32_PJ + 2 * ADD_32_PJ)
    summed = ADD_32_PJ * (instruction.measured > 0)
    finished = outputs * (ADD_32_PJ + summed + MULTIPLY_FLOAT_PJ * instruction.scale)
    return combined + finished
