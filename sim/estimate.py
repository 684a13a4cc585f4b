"""An estimate of a program's time: closed forms per instruction, tokens, queues, memory port.

It is not exact. Units, tokens, queue depths and the order of everything are modelled as they are;
what is rounded off is the memory port, where bursts of FETCH and LOAD are not merged one by one,
and the fixed parts of each instruction, which are constants fitted to the RTL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..isa.configuration import GEMM_REVISIT_STEPS, Configuration
from ..isa.encoding import word_bytes
from ..isa.instructions import Gemm, Halt, Instruction, Load, Store, Unit, Vector
from ..isa.instructions.common import nest_addresses
from .memory_model import MemoryModel

DISPATCH_CYCLES = 4
"""From the last beat of a word to the start of its instruction in an idle unit."""

FETCH_WORDS_AHEAD = 2
"""Program words that FETCH has asked for before it has dispatched the one before them."""

GEMM_CYCLES = 14
"""Pipeline of GEMM, in addition to filling the first weight tile."""

VECTOR_CYCLES = 18
"""Pipeline of VECTOR."""

REQUEST_CYCLES = 6
"""LOAD: from the start of an instruction to its first burst on the port, and from the last beat
to retirement."""

STORE_CYCLES = 12
"""STORE: from the start to the first beat, and from the last response to retirement."""

FINISH_CYCLES = 4
"""From the retirement of the last instruction to `done`."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a LOAD or a STORE moves: pieces on the scratchpad side, bursts and beats on the port."""

    pieces: int
    beats: int
    bursts: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated time of a program.

    Parameters
    ----------
    cycles
        From start to done.
    spans
        int64[instructions, 2]: cycles in which each instruction starts and retires; -1 for HALT.
    busy_cycles
        Per unit, cycles with an instruction under way.
    moved_bytes
        Per unit, bytes to or from memory.
    """

    cycles: int
    spans: np.ndarray
    busy_cycles: dict[Unit, int]
    moved_bytes: dict[Unit, int]


def transfer(instruction: Load | Store, configuration: Configuration) -> Transfer:
    """Count pieces, beats and bursts of all runs of an instruction."""
    fill = isinstance(instruction, Load) and instruction.fill
    memory = instruction.destination if isinstance(instruction, Load) else instruction.source
    return _transfer(
        instruction.length,
        instruction.local % configuration.row_bytes(memory),
        instruction.memory % configuration.burst_bytes,
        instruction.nest_of("local"),
        instruction.nest_of("memory"),
        configuration.row_bytes(memory),
        0 if fill else configuration.bus_bytes,
        configuration.burst_bytes,
    )


@lru_cache(maxsize=1 << 14)
def _transfer(length, local, memory, local_nest, memory_nest, row, beat, burst) -> Transfer:
    locals_ = nest_addresses(local, local_nest) % row
    row_ends = (locals_ + length - 1) // row
    if not beat:
        return Transfer(int((row_ends + 1).sum()), 0, 0, 0)
    memories = nest_addresses(memory, memory_nest) % burst
    beat_ends = (memories % beat + length - 1) // beat
    together = (locals_ - memories) % min(row, beat) == 0
    finer = row_ends if row <= beat else beat_ends
    pieces = np.where(together, finer, row_ends + beat_ends) + 1
    bursts = (memories + length - 1) // burst + 1
    return Transfer(
        int(pieces.sum()), int((beat_ends + 1).sum()), int(bursts.sum()), length * locals_.size
    )


def estimate(
    program: Sequence[Instruction],
    configuration: Configuration,
    memory: MemoryModel | None = None,
) -> Estimate:
    """Estimate the time of a program that the checker accepts.

    One pass in program order suffices: tokens are first in, first out, and a program's order is
    itself a legal order, so all that an instruction waits for stands before it.
    """
    return _Estimator(configuration, memory or MemoryModel()).run(program)


class _Estimator:
    """State of the pass; all times are cycles since the start."""

    def __init__(self, configuration: Configuration, memory: MemoryModel) -> None:
        self.configuration = configuration
        self.memory = memory
        self.latency = memory.latency_cycles
        stalls = 1 / (1 - memory.stall_probability)
        self.beat_cycles = memory.beat_cycles * stalls
        self.word_beats = word_bytes(configuration) // configuration.bus_bytes
        self.starts: dict[Unit, list[float]] = {unit: [] for unit in Unit}
        self.free: dict[Unit, float] = dict.fromkeys(Unit, 0.0)
        self.retired: dict[Unit, float] = dict.fromkeys(Unit, 0.0)
        self.signals: dict[tuple[Unit, Unit], list[float]] = {}
        self.consumed: dict[tuple[Unit, Unit], list[float]] = {}
        self.busy: dict[Unit, float] = dict.fromkeys(Unit, 0.0)
        self.moved: dict[Unit, int] = dict.fromkeys(Unit, 0)
        self.data_free = 0.0

    def run(self, program: Sequence[Instruction]) -> Estimate:
        """Place every instruction in time."""
        spans = np.full((len(program), 2), -1, dtype=np.int64)
        fetched = self.latency + REQUEST_CYCLES
        word_cycles = max(
            self.word_beats * self.beat_cycles,
            (self.latency + self.word_beats * self.beat_cycles) / FETCH_WORDS_AHEAD,
        )
        dispatched = 0.0
        for index, instruction in enumerate(program):
            fetched = max(fetched + word_cycles, dispatched)
            unit = instruction.home
            if isinstance(instruction, Halt) or unit is None:
                break
            queue = self.starts[unit]
            depth = self.configuration.queue_depth
            room = queue[-depth] if len(queue) >= depth else 0.0
            dispatched = max(fetched, room)
            start = self._start(unit, instruction, dispatched + DISPATCH_CYCLES)
            end = self._signal(unit, instruction, self._execute(instruction, unit, start))
            self.busy[unit] += end - max(start, self.retired[unit])
            self.retired[unit] = end
            spans[index] = round(start), round(end)
        cycles = max([fetched, *self.retired.values()]) + FINISH_CYCLES
        return Estimate(
            round(cycles),
            spans,
            {unit: round(cycles) for unit, cycles in self.busy.items()},
            dict(self.moved),
        )

    def _start(self, unit: Unit, instruction: Instruction, ready: float) -> float:
        start = max(ready, self.free[unit])
        for other in instruction.wait:
            consumed = self.consumed.setdefault((other, unit), [])
            signalled = self.signals.get((other, unit), [])
            if len(consumed) < len(signalled):
                start = max(start, signalled[len(consumed)] + 1)
        for other in instruction.wait:
            self.consumed[other, unit].append(start)
        self.starts[unit].append(start)
        return start

    def _signal(self, unit: Unit, instruction: Instruction, end: float) -> float:
        limit = self.configuration.token_limit
        for other in instruction.signal:
            pair = (unit, other)
            sent, taken = self.signals.setdefault(pair, []), self.consumed.get(pair, [])
            oldest = len(sent) - limit
            if 0 <= oldest < len(taken):
                end = max(end, taken[oldest] + 1)
        for other in instruction.signal:
            self.signals[unit, other].append(end)
        self.free[unit] = max(self.free[unit], end if unit is not Unit.LOAD else 0.0)
        return end

    def _execute(self, instruction: Instruction, unit: Unit, start: float) -> float:
        if isinstance(instruction, Load):
            return self._load(instruction, start)
        if isinstance(instruction, Store):
            moved = transfer(instruction, self.configuration)
            self.moved[unit] += moved.bytes
            cycles = max(moved.pieces, moved.beats * self.beat_cycles)
            return start + STORE_CYCLES + cycles + self.latency
        if isinstance(instruction, Gemm):
            return start + gemm_cycles(instruction, self.configuration)
        if isinstance(instruction, Vector):
            return start + instruction.steps() + VECTOR_CYCLES
        self.free[unit] = max(self.free[unit], self.retired[unit])
        return max(start, self.retired[unit])

    def _load(self, load: Load, start: float) -> float:
        moved = transfer(load, self.configuration)
        self.moved[Unit.LOAD] += moved.bytes
        if load.fill:
            first = max(start + REQUEST_CYCLES, self.data_free)
            self.data_free = first + moved.pieces
            self.free[Unit.LOAD] = max(start + 1, self.data_free - self.latency)
            return self.data_free + REQUEST_CYCLES
        first = max(start + REQUEST_CYCLES + self.latency, self.data_free)
        window = self.configuration.outstanding_bursts * moved.beats / moved.bursts
        beat_cycles = max(self.beat_cycles, (self.latency + REQUEST_CYCLES) / window)
        self.data_free = first + max(moved.pieces, moved.beats * beat_cycles, moved.bursts)
        self.free[Unit.LOAD] = max(start + moved.bursts, self.data_free - self.latency)
        return self.data_free + REQUEST_CYCLES


def gemm_cycles(gemm: Gemm, configuration: Configuration) -> int:
    """Cycles of a GEMM from start to retirement: steps of its tiles, first fill, pipeline."""
    lanes = configuration.lanes_in
    tile_cycles = max(gemm.rows(), lanes, GEMM_REVISIT_STEPS)
    adder_levels = (lanes - 1).bit_length()
    return gemm.tiles() * tile_cycles + lanes + adder_levels + GEMM_CYCLES
