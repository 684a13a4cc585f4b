"""The timing model in Python: the RTL as recurrences over events.

The cycle of each event is the latest of a few earlier ones plus constants. Queues and tokens are
first in, first out, so the dependences between events do not change with time. The one exception is
the read port, which FETCH and LOAD share: its bursts are granted one by one in order of time.
Everything else is lazy: an instruction's times are computed when another event needs them.
"""

from collections.abc import Sequence

import numpy as np

from ...isa import durations
from ...isa.configuration import Configuration
from ...isa.instructions import Gemm, Halt, Instruction, Sync, Unit, Vector
from ...isa.memory_model import MemoryModel
from ...isa.pipeline import (
    FETCH_START_CYCLES,
    GEMM_REVISIT_STEPS,
    GEMMS_IN_FLIGHT,
    LEAVING_CYCLES,
    PLACING_CYCLES,
    READY_CYCLES,
    VECTORS_IN_FLIGHT,
)
from .channels import ReadChannel, WriteChannel
from .fetch import Fetch
from .transfers import COLUMNS, Burst, Cutter, Entry, Issuer


class Model:
    """State of the model while it times a program.

    Parameters
    ----------
    program
        A program that the checker accepts.
    """

    def __init__(
        self, program: Sequence[Instruction], configuration: Configuration, memory: MemoryModel
    ) -> None:
        self.program, self.configuration = program, configuration
        self.reads = ReadChannel(memory)
        self.writes = WriteChannel(memory, configuration.outstanding_bursts)
        self.fetch = Fetch(configuration, len(program))
        self.remembered = durations.commands_in_flight(configuration)

        self.entries: dict[Unit, list[Entry]] = {unit: [] for unit in Unit}
        self.started = dict.fromkeys(Unit, 0)
        self.ended = dict.fromkeys(Unit, 0)
        """Per unit, numbers of instructions with known start and with known retirement."""
        self.load = Issuer(configuration, self.start, self._read)
        self.store = Issuer(configuration, self.start, self._write)
        self.load_cutter, self.store_cutter = Cutter(), Cutter()
        self.load_ends: list[int] = []
        """Per burst of LOAD, the cycle in which its last piece was taken."""
        self.gemms: list[Entry] = []
        self.vectors: list[Entry] = []
        self.last_step, self.last_tile = -GEMM_REVISIT_STEPS, -1
        """Cycles in which GEMM issued its last row and took its last weight tile."""

    def run(self) -> tuple[int, np.ndarray]:
        """Time all instructions.

        Returns
        -------
        cycles
            From start to done.
        times
            int64[instructions, columns], by `COLUMNS`; HALT has only the arrival of its word.
        """
        pairs = [(u, v) for u in Unit for v in Unit if u is not v]
        given: dict[tuple[Unit, Unit], list[Entry]] = {pair: [] for pair in pairs}
        taken: dict[tuple[Unit, Unit], list[Entry]] = {pair: [] for pair in pairs}
        limit = self.configuration.token_limit
        times = np.full((len(self.program), len(COLUMNS)), -1, dtype=np.int64)
        order: list[Entry] = []
        dispatched = 0
        for instruction in self.program:
            complete = self._word(dispatched)
            unit = instruction.home
            if unit is None or isinstance(instruction, Halt):
                times[len(order), :] = [complete, *[-1] * (len(COLUMNS) - 2), 0]
                dispatched = complete
                break
            dispatched = max(complete, self._room(unit))
            entry = Entry(instruction, unit, len(self.entries[unit]), complete, dispatched)
            for other in instruction.wait:
                entry.waits.append(given[other, unit][len(taken[other, unit])])
                taken[other, unit].append(entry)
            for other in instruction.signal:
                earlier = len(given[unit, other]) - limit
                if earlier >= 0:
                    entry.rooms.append(taken[unit, other][earlier])
                given[unit, other].append(entry)
            self.entries[unit].append(entry)
            if not isinstance(instruction, Sync) and unit in (Unit.LOAD, Unit.STORE):
                (self.load if unit is Unit.LOAD else self.store).commands.append(entry)
            order.append(entry)
        for place, entry in enumerate(order):
            self.retire(entry)
            times[place] = entry.times()
        done = max([dispatched, *(entry.retired for entry in order)]) + 1
        return done - FETCH_START_CYCLES + 1, times

    # FETCH and the queues ----------------------------------------------------------------------

    def _word(self, dispatched: int) -> int:
        """Cycle in which the next word is complete."""
        fetch = self.fetch
        for _ in range(fetch.word_beats):
            while len(fetch.arrived) <= len(fetch.shifted):
                self._fetch()
            fetch.shift(dispatched)
        return fetch.shifted[-1] + 1

    def _room(self, unit: Unit) -> int:
        """First cycle in which the unit's queue has room for one more."""
        entries, depth = self.entries[unit], self.configuration.queue_depth
        if len(entries) < depth:
            return 0
        if depth == 1:
            return self.start(entries[-1]) + LEAVING_CYCLES + 1
        return self._moved(entries[1 - depth]) + 1

    def _moved(self, entry: Entry) -> int:
        """Cycle in which an instruction moves from the queue's memory to its output register."""
        if not entry.place:
            return entry.entered + 1
        before = self.start(self.entries[entry.unit][entry.place - 1])
        return max(entry.entered + 1, before + LEAVING_CYCLES)

    # Starts and retirements --------------------------------------------------------------------

    def start(self, entry: Entry) -> int:
        """Cycle in which an instruction starts."""
        entries = self.entries[entry.unit]
        while self.started[entry.unit] <= entry.place:
            self._start(entries[self.started[entry.unit]])
            self.started[entry.unit] += 1
        return entry.start

    def retire(self, entry: Entry) -> int:
        """Cycle in which an instruction retires."""
        entries = self.entries[entry.unit]
        while self.ended[entry.unit] <= entry.place:
            self._retire(entries[self.ended[entry.unit]])
            self.ended[entry.unit] += 1
        return entry.retired

    def _start(self, entry: Entry) -> None:
        entries = self.entries[entry.unit]
        shallow = self.configuration.queue_depth == 1
        entry.valid = (entry.entered if shallow else self._moved(entry)) + 1
        ready = entry.valid
        if entry.place >= self.remembered:
            ready = max(ready, self.retire(entries[entry.place - self.remembered]) + 1)
        for giver in entry.waits:
            ready = max(ready, self.retire(giver) + 1)
        entry.ready = ready = ready + READY_CYCLES
        instruction = entry.instruction
        if isinstance(instruction, Gemm):
            self._start_gemm(entry, instruction)
        elif isinstance(instruction, Vector):
            self._start_vector(entry, instruction)
        elif isinstance(instruction, Sync):
            entry.start = entry.first = entry.last = ready
            entry.complete = ready + 1
        else:
            issuer = self.load if entry.unit is Unit.LOAD else self.store
            entry.start = max(ready, issuer.free(entry))

    def _start_gemm(self, entry: Entry, gemm: Gemm) -> None:
        entry.start = max(entry.ready, self.last_step + 1)
        if len(self.gemms) >= GEMMS_IN_FLIGHT:
            entry.start = max(entry.start, self.retire(self.gemms[-GEMMS_IN_FLIGHT]) + 1)
        self.gemms.append(entry)
        tile_cycles = durations.tile_cycles(self.configuration)
        tile = max(entry.ready, self.last_tile + 1) + tile_cycles
        entry.first = max(entry.start + 1, self.last_step + GEMM_REVISIT_STEPS, tile)
        entry.last = entry.first + durations.gemm_rows_cycles(gemm, self.configuration) - 1
        self.last_step, self.last_tile = entry.last, entry.last - gemm.rows() + 1
        entry.complete = entry.last + durations.gemm_tail_cycles(self.configuration)

    def _start_vector(self, entry: Entry, vector: Vector) -> None:
        entry.start = entry.ready
        if self.vectors:
            entry.start = max(entry.start, self.vectors[-1].complete)
        if len(self.vectors) >= VECTORS_IN_FLIGHT:
            entry.start = max(entry.start, self.retire(self.vectors[-VECTORS_IN_FLIGHT]) + 1)
        self.vectors.append(entry)
        entry.first, entry.last = entry.start + 1, entry.start + vector.steps()
        entry.complete = entry.last + durations.vector_tail_cycles(vector)

    def _retire(self, entry: Entry) -> None:
        self.start(entry)
        while entry.complete < 0:
            (self._read if entry.unit is Unit.LOAD else self._write)()
        entry.retired = max(entry.complete, entry.start + 1)
        if entry.place:
            entry.retired = max(
                entry.retired, self.entries[entry.unit][entry.place - 1].retired + 1
            )
        for taker in entry.rooms:
            entry.retired = max(entry.retired, self.start(taker) + 1)

    # The memory port ---------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Grant FETCH's next burst, after all that LOAD requests earlier."""
        while (burst := self.load.head()) and not self._fetch_is_first(burst):
            self._read()
        cycle = self._fetch_grant()
        beats = self.fetch.grant(cycle)
        ready = self.reads.grant(cycle)
        for _ in range(beats):
            arrives = self.reads.deliver(ready)
            self.reads.take(arrives)
            self.fetch.arrived.append(arrives)
        self.fetch.ends.append(self.fetch.arrived[-1])
        self.reads.end_burst()

    def _fetch_is_first(self, burst: Burst) -> bool:
        """Whether the arbiter grants FETCH's next burst before this one of LOAD."""
        return self._fetch_grant() <= self._load_grant(burst)

    def _fetch_grant(self) -> int:
        return max(self.fetch.request(), self.reads.room)

    def _load_grant(self, burst: Burst) -> int:
        """Cycle in which LOAD's next burst is sent if FETCH does not come first."""
        load, most = self.load, self.configuration.outstanding_bursts
        ready = max(burst.queued, load.sent[-1] if load.sent else 0) + 1
        if len(self.load_ends) >= most:
            ready = max(ready, self.load_ends[-most] + 1)
        return ready if burst.fill else max(ready, self.reads.room)

    def _read(self) -> None:
        """Send LOAD's next burst, after all that FETCH requests no later."""
        burst = self.load.head()
        assert burst is not None
        while not burst.fill and self._fetch_is_first(burst):
            self._fetch()
        cycle = self._load_grant(burst)
        self.load.sends(burst, cycle)
        cutter, reads, command = self.load_cutter, self.reads, burst.command
        ready = 0 if burst.fill else reads.grant(cycle)
        opens_beat, arrives = True, 0
        for piece, ends_beat in cutter.pieces(cycle, burst.pieces):
            if opens_beat and not burst.fill:
                arrives = reads.deliver(ready)
            cutter.taken = max(piece, arrives)
            opens_beat = ends_beat
            command.starved += cutter.taken - piece
            if command.first < 0:
                command.first = cutter.taken
            if ends_beat and not burst.fill:
                reads.take(cutter.taken)
        if not burst.fill:
            reads.end_burst()
        self.load_ends.append(cutter.taken)
        if burst.last:
            command.last = cutter.taken
            command.complete = cutter.taken + PLACING_CYCLES

    def _write(self) -> None:
        """Send STORE's next burst, with its data and its response."""
        burst = self.store.head()
        assert burst is not None
        store, writes, cutter = self.store, self.writes, self.store_cutter
        cycle = writes.send(max(burst.queued, store.sent[-1] if store.sent else 0) + 1)
        store.sends(burst, cycle)
        command, before = burst.command, writes.responses[-1] if writes.responses else -1
        for piece, ends_beat in cutter.pieces(cycle, burst.pieces):
            cutter.taken = writes.room(piece) if ends_beat else piece
            if command.first < 0:
                command.first = cutter.taken
            if ends_beat:
                writes.write(cutter.taken)
        answered = writes.end_burst()
        command.starved += answered - max(cycle, before) - len(burst.pieces)
        if burst.last:
            command.last, command.complete = cutter.taken, answered + 1
