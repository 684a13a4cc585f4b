"""How long instructions take: closed forms of their fields and the configuration.

These are the parts that an instruction has to itself. When it can begin depends on others: on
tokens, on its unit, and for LOAD and STORE on main memory; `sim/timing` puts that together, and it
is compared with the hardware in every cycle.
"""

from .configuration import GEMM_REVISIT_STEPS, Configuration
from .instructions import Gemm, Vector

GEMM_TAIL_CYCLES = 7
"""From the last row of a GEMM to its completion, without the levels of the adder trees."""

VECTOR_TOTAL_CYCLES, VECTOR_RESULT_CYCLES = 10, 21
"""From the last step of a VECTOR to its completion: into ACC, or into ACT."""


def tile_cycles(configuration: Configuration) -> int:
    """Least cycles of a weight tile: it is read row by row, and accumulators must rest."""
    return max(configuration.lanes_in, GEMM_REVISIT_STEPS)


def gemm_rows_cycles(gemm: Gemm, configuration: Configuration) -> int:
    """Cycles from a GEMM's first row to its last one, both counted."""
    return (gemm.tiles() - 1) * max(gemm.rows(), tile_cycles(configuration)) + gemm.rows()


def gemm_tail_cycles(configuration: Configuration) -> int:
    """Cycles from a GEMM's last row to its completion."""
    return GEMM_TAIL_CYCLES + (configuration.lanes_in - 1).bit_length()


def vector_tail_cycles(vector: Vector) -> int:
    """Cycles from a VECTOR's last step, one a cycle, to its completion."""
    return VECTOR_TOTAL_CYCLES if vector.to_acc else VECTOR_RESULT_CYCLES
