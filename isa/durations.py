"""Durations of instructions, in closed form from their fields and the configuration.

These formulas cover one instruction alone. When it can start depends on tokens, on its unit and,
for LOAD and STORE, on main memory. `sim/timing` combines them, and tests compare its result with
the hardware cycle by cycle.
"""

from .configuration import Configuration
from .encoding import word_bytes
from .instructions import Gemm, Vector
from .pipeline import (
    FETCH_BUFFERED_WORDS,
    GEMM_REVISIT_STEPS,
    GEMM_TAIL_CYCLES,
    TRANSFERS_IN_FLIGHT,
    VECTOR_RESULT_CYCLES,
    VECTOR_ROW_CYCLES,
    VECTOR_TOTAL_CYCLES,
)


def tile_cycles(configuration: Configuration) -> int:
    """Minimum cycles of a weight tile: one per row read, and accumulator rows must rest."""
    return max(configuration.lanes_in, GEMM_REVISIT_STEPS)


def gemm_rows_cycles(gemm: Gemm, configuration: Configuration) -> int:
    """Cycles from a GEMM's first row to its last, inclusive."""
    return (gemm.tiles() - 1) * max(gemm.rows(), tile_cycles(configuration)) + gemm.rows()


def gemm_tail_cycles(configuration: Configuration) -> int:
    """Cycles from a GEMM's last row to its completion."""
    return GEMM_TAIL_CYCLES + (configuration.lanes_in - 1).bit_length()


def vector_tail_cycles(vector: Vector) -> int:
    """Cycles from a VECTOR's last step to its completion."""
    if vector.stays_total:
        return VECTOR_TOTAL_CYCLES
    return VECTOR_RESULT_CYCLES + (VECTOR_ROW_CYCLES if vector.measured else 0)


def commands_in_flight(configuration: Configuration) -> int:
    """Commands that LOAD, and STORE, work on at a time."""
    return min(TRANSFERS_IN_FLIGHT, configuration.outstanding_bursts)


def fetch_beats(configuration: Configuration) -> tuple[int, int]:
    """Beats of FETCH's longest burst, and of its buffer of two bursts."""
    words = FETCH_BUFFERED_WORDS * (word_bytes(configuration) // configuration.bus_bytes)
    room = 1 << (words - 1).bit_length()
    burst = min(configuration.burst_beats, room // 2)
    return burst, max(room, 2 * burst)
