"""The timing model behind one data bus for reads and writes.

The bus serves one burst at a time, in order of time. To decide which one is next, the model must
know all bursts that arrive before the decision. The next burst of LOAD or STORE may wait for a
burst that has not been served; it then arrives after the decision. So the model looks ahead for it,
up to the cycle of the decision, which is the horizon. `LaterError` ends a look ahead that would
pass the horizon or need another decision.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...isa.configuration import Configuration
from ...isa.instructions import Instruction
from ...isa.memory_model import MemoryModel
from ...isa.pipeline import FREEING_CYCLES, PACKING_CYCLES, PLACING_CYCLES, QUEUED_BEATS
from ...isa.sdram import BUFFERED_BURSTS
from .channels import ReadChannel
from .definition import Model
from .transfers import NEVER, Burst, Issuer


class LaterError(Exception):
    """A look ahead would pass the horizon or need another decision."""


@dataclass(slots=True)
class _Read:
    """A read burst that AR has accepted: of LOAD, or of FETCH if `burst` is None."""

    accepted: int
    beats: int
    burst: Burst | None


@dataclass(slots=True)
class Write:
    """A write burst that STORE has sent."""

    burst: Burst
    sent: int
    complete: int = -1
    """Cycle in which W accepted its last beat; -1 while earlier bursts must be served first."""
    taken: int = -1
    """Cycle in which its last piece was taken."""

    @property
    def beats(self) -> int:
        return sum(self.burst.pieces)


def unlimited(memory: MemoryModel) -> MemoryModel:
    """Return a memory without limits for channel R, since the shared bus sets the pace."""
    return replace(memory, cycles=1, bus=None, outstanding_bursts=4096)


class SharedBusModel(Model):
    """The model with a memory whose reads and writes share a bus; see `SharedBus`."""

    def __init__(
        self, program: Sequence[Instruction], configuration: Configuration, memory: MemoryModel
    ) -> None:
        super().__init__(program, configuration, memory)
        assert memory.bus is not None
        self.bus = memory.bus
        self.first_beat = memory.latency_cycles - 1
        """From a decision to the first beat, or to the response of a write of one beat."""
        self.beat_cycles = memory.cycles
        self.reads = ReadChannel(unlimited(memory))
        self.load = Issuer(configuration, self.start, self._send_load)
        self.store = Issuer(configuration, self.start, self._send_store)
        self.horizon: int | None = None
        self.waiting: deque[_Read] = deque()
        self.loads: deque[Burst] = deque()
        """Bursts that LOAD has sent and not yet received, fills included."""
        self.entered: deque[int] = deque()
        """Cycle in which each of them was sent."""
        self.stores: deque[Write] = deque()
        """Bursts that STORE has sent and the bus has not served yet."""
        self.addressed = self.written = -1
        self.returned: list[int] = []
        self.responses: list[int] = []
        self.free = self.bus.refresh_cycles
        """First cycle of the next decision."""
        self.due = 0
        self.refreshes = 0
        self.wrote = False

    # The bus -----------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Serve the next burst, or refresh."""
        self._refuse_while_looking_ahead()
        while self._learn(self._next_decision()):
            pass
        reads, writes = self._read_ready(), self._write_ready()
        cycle = max(self.free, min(reads, writes))
        if max(self.free, self.due) <= cycle:
            self.free = max(self.free, self.due) + self.bus.refresh_cycles
            self.refreshes += 1
            self.due = 1 + self.refreshes * self.bus.refresh_interval_cycles
            return
        assert cycle < NEVER
        if reads <= cycle and (self.wrote or writes > cycle):
            self._serve_read(cycle)
        else:
            self._serve_write(cycle)

    def _next_decision(self) -> int:
        """Return the cycle of the next decision, as far as bursts are known."""
        return max(self.free, min(self._read_ready(), self._write_ready(), self.due))

    def _refuse_while_looking_ahead(self) -> None:
        """Raise `LaterError` during a look ahead, which must not decide."""
        if self.horizon is not None:
            raise LaterError

    def _learn(self, horizon: int) -> bool:
        """Look ahead for one more burst before a cycle; return whether there is one."""
        self.horizon = horizon
        try:
            return self._learn_read() or self._learn_write()
        finally:
            self.horizon = None

    def _learn_read(self) -> bool:
        if self.waiting or (self.load.planned and not self.load.planned[0].fill):
            return False
        try:
            burst = self.load.head()
            if burst is not None and burst.fill:
                self._send_load()
        except LaterError:
            return False
        return burst is not None

    def _learn_write(self) -> bool:
        if not self.stores:
            try:
                if self.store.head() is None:
                    return False
                self._send_store()
            except LaterError:
                return False
        elif self.stores[0].complete >= 0:
            return False
        self._take_store(self.stores[0])
        return True

    def _read_ready(self) -> int:
        """First cycle in which the next read can be served; NEVER while none is known."""
        ends = self.reads.ends
        room = ends[-BUFFERED_BURSTS] + 1 if len(ends) >= BUFFERED_BURSTS else 0
        if self.waiting:
            return max(self.waiting[0].accepted + 1, room)
        granted = min(self._fetch_grant(), self._planned_grant())
        if granted == NEVER:
            return NEVER
        return max(granted + 2, self.reads.accepted[-1] + 2, room)

    def _planned_grant(self) -> int:
        """When LOAD's next burst is sent, if that is known; all those before were served."""
        planned = self.load.planned
        return NEVER if not planned or planned[0].fill else self._load_grant(planned[0])

    def _write_ready(self) -> int:
        if not self.stores or self.stores[0].complete < 0:
            return NEVER
        return self.stores[0].complete + 1

    def _serve_read(self, cycle: int) -> None:
        if not self.waiting:
            fetch = self._fetch_grant()
            if fetch <= self._planned_grant():
                self._send_fetch(fetch)
            else:
                self._send_load()
        read = self.waiting.popleft()
        ready = cycle + self.first_beat
        if read.burst is None:
            self._deliver_fetch(ready, read.beats)
        else:
            self._deliver_load(ready)
        self.reads.end_burst()
        self._deliver_fills()
        self.free = cycle + read.beats * self.beat_cycles + self.bus.read_gap_cycles
        self.wrote = False

    def _serve_write(self, cycle: int) -> None:
        write = self.stores.popleft()
        answered = cycle + self.first_beat + (write.beats - 1) * self.beat_cycles
        command, before = write.burst.command, self.responses[-1] if self.responses else -1
        self.responses.append(answered)
        command.starved += answered - max(write.sent, before) - len(write.burst.pieces)
        if write.burst.last:
            command.last, command.complete = write.taken, answered + 1
        self.free = cycle + write.beats * self.beat_cycles + self.bus.write_gap_cycles
        self.wrote = True

    # Reads -------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        self._decide()

    def _read(self) -> None:
        """Go on until LOAD's next burst is delivered, or closer to it; fills need no decision."""
        if not self.loads:
            burst = self.load.head()
            assert burst is not None
            if burst.fill:
                self._send_load()
                return
        self._decide()

    def _send_fetch(self, cycle: int) -> None:
        beats = self.fetch.grant(cycle)
        self.reads.grant(cycle)
        self.waiting.append(_Read(self.reads.accepted[-1], beats, None))

    def _load_grant(self, burst: Burst) -> int:
        load, most = self.load, self.configuration.outstanding_bursts
        while (ended := len(load.sent) - most) >= len(self.load_ends):
            self._decide()
        ready = max(burst.queued, load.sent[-1] if load.sent else 0) + 1
        if ended >= 0:
            ready = max(ready, self.load_ends[ended] + 1)
        return ready if burst.fill else max(ready, self.reads.room)

    def _send_load(self) -> None:
        """Send LOAD's next burst, after all that FETCH requests no later."""
        number = len(self.load.sent)
        burst = self.load.head()
        while len(self.load.sent) == number:
            assert burst is not None
            cycle = self._load_grant(burst)
            if not burst.fill:
                if self.horizon is not None and cycle >= self.horizon:
                    raise LaterError
                fetch = self._fetch_grant()
                if fetch <= cycle:
                    self._send_fetch(fetch)
                    continue
                # FETCH's next request may follow a burst that has not been served.
                if self.horizon is None and self.waiting and self._next_decision() < cycle:
                    self._decide()
                    continue
                self.reads.grant(cycle)
                beats = sum(burst.pieces)
                self.waiting.append(_Read(self.reads.accepted[-1], beats, burst))
            self.load.sends(burst, cycle)
            self.loads.append(burst)
            self.entered.append(cycle)
        self._deliver_fills()

    def _deliver_fetch(self, ready: int, beats: int) -> None:
        for beat in range(beats):
            arrives = self.reads.deliver(ready + beat * self.beat_cycles)
            self.reads.take(arrives)
            self.fetch.arrived.append(arrives)
        self.fetch.ends.append(self.fetch.arrived[-1])

    def _deliver_fills(self) -> None:
        while self.loads and self.loads[0].fill:
            self._deliver_load(0)

    def _deliver_load(self, ready: int) -> None:
        """Deliver LOAD's first burst, whose data may be offered from `ready` on."""
        burst, cutter, reads = self.loads.popleft(), self.load_cutter, self.reads
        command, opens_beat, arrives = burst.command, True, 0
        for piece, ends_beat in cutter.pieces(self.entered.popleft(), burst.pieces):
            if opens_beat and not burst.fill:
                arrives = reads.deliver(ready)
                ready += self.beat_cycles
            cutter.taken = max(piece, arrives)
            opens_beat = ends_beat
            command.starved += cutter.taken - piece
            if command.first < 0:
                command.first = cutter.taken
            if ends_beat and not burst.fill:
                reads.take(cutter.taken)
        self.load_ends.append(cutter.taken)
        if burst.last:
            command.last = cutter.taken
            command.complete = cutter.taken + PLACING_CYCLES

    # Writes ------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Go on until STORE's next burst has its response, or closer to it."""
        self._refuse_while_looking_ahead()
        if not self.stores:
            self._send_store()
        self._decide()

    def _response(self, number: int) -> int:
        """Return when a burst was answered; -1 for a negative number."""
        while number >= len(self.responses):
            self._decide()
        return self.responses[number] if number >= 0 else -1

    def _send_store(self) -> None:
        """Send STORE's next burst; its data follow when fewer bursts wait."""
        burst = self.store.head()
        assert burst is not None
        store, number = self.store, len(self.store.sent)
        answered = self._response(number - self.configuration.outstanding_bursts)
        cycle = max(burst.queued + 1, store.sent[-1] + 1 if store.sent else 0)
        cycle = max(cycle, self.addressed, answered + 1)
        self.addressed = cycle + 1
        store.sends(burst, cycle)
        self.stores.append(Write(burst, cycle))

    def _take_store(self, write: Write) -> None:
        """Take the pieces of a burst, and write its beats, when all those before were served."""
        cutter, command = self.store_cutter, write.burst.command
        number = len(self.responses) - BUFFERED_BURSTS
        room = self.responses[number] if number >= 0 else -1
        for piece, ends_beat in cutter.pieces(write.sent, write.burst.pieces):
            cutter.taken = piece
            if ends_beat and len(self.returned) >= QUEUED_BEATS:
                cutter.taken = max(piece, self.returned[-QUEUED_BEATS] + FREEING_CYCLES)
            if command.first < 0:
                command.first = cutter.taken
            if ends_beat:
                self._write_beat(cutter.taken, room)
        write.complete, write.taken = max(self.written, write.sent + 1), cutter.taken

    def _write_beat(self, taken: int, room: int) -> None:
        self.returned.append(max(taken + PACKING_CYCLES, self.written))
        self.written = max(self.returned[-1] + 1, room)


def model_of(
    program: Sequence[Instruction], configuration: Configuration, memory: MemoryModel
) -> Model:
    """Return the timing model that suits the memory."""
    kind = SharedBusModel if memory.bus else Model
    return kind(program, configuration, memory)
