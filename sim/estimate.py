"""An estimate of a program's time: closed forms per instruction, tokens, queues, memory port.

It is not exact. Units, tokens, queue depths and the order of everything are modelled as they are;
what is rounded off is the memory port, where bursts of FETCH and LOAD are not merged one by one,
and the fixed parts of each instruction, which are constants fitted to the RTL.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..isa.configuration import GEMM_REVISIT_STEPS, Configuration
from ..isa.encoding import word_bytes
from ..isa.instructions import Gemm, Halt, Instruction, Load, Store, Unit, Vector
from ..isa.instructions.common import nest_addresses
from .memory_model import MemoryModel

FETCH_BURSTS, FETCH_WORDS = 4, 4
"""FETCH: bursts in flight, and whole words that its buffer holds; a test keeps them true."""

TRANSFERS_IN_FLIGHT, GEMMS_IN_FLIGHT = 8, 4
"""Instructions that LOAD and STORE, and GEMM, work on at a time; a test keeps them true."""

FETCH_CYCLES = 9
"""From the arrival of a word's last beat to the start of its instruction in an idle unit."""

ROOM_CYCLES = 4
"""Between a word that leaves FETCH's buffer and the request for the burst that takes its place."""

REQUEST_CYCLES = 3
"""Between a burst's last beat and the first of one that waited for its place in flight, without
the memory's latency."""

STORE_REQUEST_CYCLES = 10
"""The same between a burst's response and the last piece of one that waited for it."""

FILL_RUN_CYCLES = 4
"""For so long a run of a fill takes a place among the bursts in flight."""

GEMM_CYCLES = 6
"""Pipeline of GEMM, in addition to filling the first weight tile and the adder tree."""

VECTOR_ACC_CYCLES, VECTOR_ACT_CYCLES = 10, 21
"""Pipeline of VECTOR: for results as they are, and for requantised ones."""

LOAD_CYCLES, FILL_CYCLES = 5, 6
"""LOAD: from start to retirement, without latency and pieces."""

STORE_CYCLES = 12
"""STORE: from start to retirement, without latency and pieces."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a LOAD or a STORE moves: pieces on the scratchpad side, bursts and beats on the port."""

    runs: int
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
        return Transfer(locals_.size, int((row_ends + 1).sum()), 0, 0, 0)
    memories = nest_addresses(memory, memory_nest) % burst
    beat_ends = (memories % beat + length - 1) // beat
    together = (locals_ - memories) % min(row, beat) == 0
    finer = row_ends if row <= beat else beat_ends
    pieces = np.where(together, finer, row_ends + beat_ends) + 1
    bursts = (memories + length - 1) // burst + 1
    return Transfer(
        locals_.size,
        int(pieces.sum()),
        int((beat_ends + 1).sum()),
        int(bursts.sum()),
        length * locals_.size,
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


class _Fetch:
    """When FETCH has each word, burst by burst."""

    def __init__(self, configuration: Configuration, latency: int, beat_cycles: float) -> None:
        self.latency, self.beat_cycles = latency, beat_cycles
        self.word_beats = word_bytes(configuration) // configuration.bus_bytes
        room = 1 << (FETCH_WORDS * self.word_beats - 1).bit_length()
        self.burst_beats = min(configuration.burst_beats, room // 2)
        self.buffer_beats = max(room, 2 * self.burst_beats)
        self.requests: list[float] = []
        self.arrivals: list[float] = []
        self.left: list[float] = []

    def word(self, index: int) -> float:
        """Cycle in which a word is complete; earlier words have been `left`."""
        last = (index + 1) * self.word_beats - 1
        while len(self.arrivals) * self.burst_beats <= last:
            self._burst(len(self.arrivals))
        burst, beat = divmod(last, self.burst_beats)
        arrived = self.arrivals[burst] - (self.burst_beats - 1 - beat) * self.beat_cycles
        return max(arrived, self.left[-1] + self.word_beats if self.left else 0.0)

    def _burst(self, number: int) -> None:
        request = self.requests[-1] + 2 if self.requests else 0.0
        if number >= FETCH_BURSTS:
            request = max(request, self.arrivals[number - FETCH_BURSTS] + REQUEST_CYCLES)
        needed = (number + 1) * self.burst_beats - self.buffer_beats
        if needed > 0:
            word = min(-(-needed // self.word_beats), len(self.left)) - 1
            request = max(request, self.left[word] + ROOM_CYCLES if word >= 0 else 0.0)
        first = max(request + self.latency, self.arrivals[-1] if self.arrivals else 0.0)
        self.requests.append(request)
        self.arrivals.append(first + self.burst_beats * self.beat_cycles)


class _Estimator:
    """State of the pass; all times are cycles since the start."""

    def __init__(self, configuration: Configuration, memory: MemoryModel) -> None:
        self.configuration = configuration
        self.latency = memory.latency_cycles
        self.beat_cycles = memory.beat_cycles / (1 - memory.stall_probability)
        self.fetch = _Fetch(configuration, self.latency, self.beat_cycles)
        self.starts: dict[Unit, list[float]] = {unit: [] for unit in Unit}
        self.free: dict[Unit, float] = dict.fromkeys(Unit, 0.0)
        self.retired: dict[Unit, float] = dict.fromkeys(Unit, 0.0)
        self.signals: dict[tuple[Unit, Unit], list[float]] = {}
        self.consumed: dict[tuple[Unit, Unit], list[float]] = {}
        self.busy: dict[Unit, float] = dict.fromkeys(Unit, 0.0)
        self.moved: dict[Unit, int] = dict.fromkeys(Unit, 0)
        self.arrived: dict[Unit, float] = dict.fromkeys(Unit, 0.0)
        self.ends: dict[Unit, list[float]] = {unit: [] for unit in Unit}
        transfers = min(TRANSFERS_IN_FLIGHT, configuration.outstanding_bursts)
        self.in_flight = dict.fromkeys(Unit, transfers) | {Unit.GEMM: GEMMS_IN_FLIGHT}
        bursts = min(configuration.outstanding_bursts, memory.outstanding_bursts)
        self.flying: deque[float] = deque([0.0] * bursts, maxlen=bursts)
        self.answered: deque[float] = deque([0.0] * bursts, maxlen=bursts)

    def run(self, program: Sequence[Instruction]) -> Estimate:
        """Place every instruction in time."""
        spans = np.full((len(program), 2), -1, dtype=np.int64)
        halted = 0.0
        for index, instruction in enumerate(program):
            unit = instruction.home
            ready = self.fetch.word(index) + FETCH_CYCLES
            if isinstance(instruction, Halt) or unit is None:
                halted = ready - 2
                break
            queue = self.starts[unit]
            depth = self.configuration.queue_depth + 1
            ready = max(ready, queue[-depth] if len(queue) >= depth else 0.0)
            self.fetch.left.append(ready - FETCH_CYCLES)
            start = self._start(unit, instruction, ready)
            end = self._signal(unit, instruction, self._execute(instruction, unit, start))
            self.busy[unit] += end - max(start, self.retired[unit])
            self.retired[unit] = end
            self.ends[unit].append(end)
            spans[index] = round(start), round(end)
        return Estimate(
            round(max([halted, *self.retired.values()])),
            spans,
            {unit: round(cycles) for unit, cycles in self.busy.items()},
            dict(self.moved),
        )

    def _start(self, unit: Unit, instruction: Instruction, ready: float) -> float:
        previous = self.starts[unit][-1] + 1 if self.starts[unit] else 0.0
        start = max(ready, self.free[unit], previous)
        ends, limit = self.ends[unit], self.in_flight[unit]
        if len(ends) >= limit:
            start = max(start, ends[-limit] + 1)
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
        end = max(end, self.retired[unit] + 1)
        for other in instruction.signal:
            sent = self.signals.setdefault((unit, other), [])
            taken = self.consumed.get((unit, other), [])
            oldest = len(sent) - limit
            if 0 <= oldest < len(taken):
                end = max(end, taken[oldest] + 1)
        for other in instruction.signal:
            self.signals[unit, other].append(end)
        return end

    def _execute(self, instruction: Instruction, unit: Unit, start: float) -> float:
        if isinstance(instruction, Load | Store):
            moved = transfer(instruction, self.configuration)
            self.moved[unit] += moved.bytes
            return (self._load if unit is Unit.LOAD else self._store)(moved, start)
        if isinstance(instruction, Gemm):
            lanes = self.configuration.lanes_in
            first = max(start, self.arrived[unit])
            self.arrived[unit] = first + gemm_steps(instruction, self.configuration)
            self.free[unit] = max(start, self.arrived[unit] - 2 * lanes)
            return first + gemm_cycles(instruction, self.configuration)
        if isinstance(instruction, Vector):
            pipeline = VECTOR_ACC_CYCLES if instruction.to_acc else VECTOR_ACT_CYCLES
            self.free[unit] = start + instruction.steps() + pipeline
            return self.free[unit]
        return max(start, self.retired[unit]) + 1

    def _load(self, moved: Transfer, start: float) -> float:
        if not moved.beats:
            places = self.configuration.outstanding_bursts
            cycles = max(moved.pieces, FILL_RUN_CYCLES * (moved.runs - 1) / places)
            self.arrived[Unit.LOAD] = max(start, self.arrived[Unit.LOAD]) + cycles
            return self.arrived[Unit.LOAD] + FILL_CYCLES
        issue = start
        burst_cycles = max(moved.pieces, moved.beats * self.beat_cycles) / moved.bursts
        arrived = self.arrived[Unit.LOAD]
        for _ in range(moved.bursts):
            issue = max(issue + 1, self.flying[0] + REQUEST_CYCLES)
            arrived = max(issue + self.latency - 1, arrived) + burst_cycles
            self.flying.append(arrived)
        self.arrived[Unit.LOAD] = arrived
        self.free[Unit.LOAD] = issue
        return arrived + LOAD_CYCLES

    def _store(self, moved: Transfer, start: float) -> float:
        burst_cycles = max(moved.pieces, moved.beats * self.beat_cycles) / moved.bursts
        sent = max(start, self.arrived[Unit.STORE])
        for _ in range(moved.bursts):
            sent += burst_cycles
            sent = max(sent, self.answered[0] + STORE_REQUEST_CYCLES)
            self.answered.append(sent + self.latency)
        self.arrived[Unit.STORE] = self.free[Unit.STORE] = sent
        return sent + self.latency + STORE_CYCLES


def gemm_steps(gemm: Gemm, configuration: Configuration) -> int:
    """Cycles for which GEMM feeds the array, the last tile's rows as they are."""
    tile_cycles = max(gemm.rows(), configuration.lanes_in, GEMM_REVISIT_STEPS)
    return (gemm.tiles() - 1) * tile_cycles + gemm.rows()


def gemm_cycles(gemm: Gemm, configuration: Configuration) -> int:
    """Cycles of a GEMM from start to retirement in an idle unit: first fill, steps, pipeline."""
    lanes = configuration.lanes_in
    levels = (lanes - 1).bit_length()
    return max(lanes, GEMM_REVISIT_STEPS) + gemm_steps(gemm, configuration) + levels + GEMM_CYCLES
