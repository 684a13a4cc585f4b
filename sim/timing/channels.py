"""Main memory's read and write channels in the timing model, beat by beat.

All times are cycles. A registered event is visible in the next cycle. The names are those of AXI4
(ARM IHI 0022): AR and R for reads, AW, W and B for writes.
"""

from ...isa.memory_model import WRITE_BUFFER_BEATS, MemoryModel
from ...isa.pipeline import (
    FREEING_CYCLES,
    PACKING_CYCLES,
    QUEUED_BEATS,
    READ_BUFFER_BEATS,
    REQUEST_REGISTERS,
)


class Bandwidth:
    """Limit of `beats` beats per `cycles` cycles; unused bandwidth does not accumulate."""

    def __init__(self, memory: MemoryModel) -> None:
        self.beats, self.cycles = memory.beats, memory.cycles
        self.most = memory.cycles + memory.beats - 1
        self.credit, self.seen = self.most, 0

    def available(self, cycle: int) -> int:
        """First cycle from `cycle` on in which a beat may move."""
        missing = self.cycles - self._credit(cycle)
        return cycle if missing <= 0 else cycle + -(-missing // self.beats)

    def take(self, cycle: int) -> None:
        """Move a beat."""
        self.credit, self.seen = self._credit(cycle) - self.cycles, cycle

    def _credit(self, cycle: int) -> int:
        return min(self.most, self.credit + self.beats * (cycle - self.seen))


class ReadChannel:
    """AR and R, with the registers behind the arbiter and the core's read buffer.

    The arbiter grants a burst when these registers have room, AR offers it in the next cycle, and
    its beats follow those of all earlier bursts.
    """

    def __init__(self, memory: MemoryModel) -> None:
        self.latency = memory.latency_cycles
        self.outstanding = memory.outstanding_bursts
        self.bandwidth = Bandwidth(memory)
        self.accepted = [-1] * REQUEST_REGISTERS
        """Cycles of the last handshakes on AR."""
        self.granted = -1
        """Cycle of the last grant."""
        self.ends: list[int] = []
        """Per burst, the handshake of its last beat on R."""
        self.handshake = -1
        """The last handshake on R."""
        self.taken = [-1] * READ_BUFFER_BEATS
        """Cycles in which the last beats left the read buffer."""

    @property
    def room(self) -> int:
        """First cycle in which the arbiter can grant a burst."""
        return max(self.accepted[0], self.granted) + 1

    def grant(self, cycle: int) -> int:
        """Grant a burst in a cycle not before `room`; return when its data may begin."""
        self.granted = cycle
        accepted = max(cycle, self.accepted[-1]) + 1
        if len(self.ends) >= self.outstanding:
            accepted = max(accepted, self.ends[-self.outstanding] + 1)
        self.accepted = [*self.accepted[1:], accepted]
        return accepted + self.latency

    def deliver(self, ready: int) -> int:
        """Move the next beat on R; return the first cycle in which the core can take it."""
        offered = self.bandwidth.available(max(ready, self.handshake + 1))
        self.bandwidth.take(offered)
        self.handshake = max(offered, self.taken[-READ_BUFFER_BEATS] + 1)
        return max(self.handshake + 1, self.taken[-1] + 1)

    def take(self, cycle: int) -> None:
        """Let the core take the last delivered beat."""
        self.taken = [*self.taken[1:], cycle]

    def end_burst(self) -> None:
        """Note that the last delivered beat was the last of its burst."""
        self.ends.append(self.handshake)


class WriteChannel:
    """AW, W and B, with the registers in front of AW and W."""

    def __init__(self, memory: MemoryModel, answers: int) -> None:
        self.latency = memory.latency_cycles
        self.outstanding = memory.outstanding_bursts
        self.bandwidth = Bandwidth(memory)
        self.answers = answers
        """Largest number of STORE bursts that wait for a response."""
        self.addressed = -1
        """The last handshake on AW."""
        self.responses: list[int] = []
        self.returned: list[int] = []
        """Per beat, when it left the packer for the register in front of W."""
        self.written = -1
        """The last handshake on W."""
        self.commits: list[int] = []
        """Per beat, the cycle in which both address and data have arrived."""

    def send(self, cycle: int) -> int:
        """Send a burst in the first possible cycle from `cycle` on; return that cycle."""
        cycle = max(cycle, self.addressed)
        if len(self.responses) >= self.answers:
            cycle = max(cycle, self.responses[-self.answers] + 1)
        address = cycle + 1
        if len(self.responses) >= self.outstanding:
            address = max(address, self.responses[-self.outstanding] + 1)
        self.addressed = address
        return cycle

    def room(self, cycle: int) -> int:
        """First cycle from `cycle` on in which the packer has a slot for one more beat."""
        if len(self.returned) < QUEUED_BEATS:
            return cycle
        return max(cycle, self.returned[-QUEUED_BEATS] + FREEING_CYCLES)

    def write(self, piece: int) -> None:
        """Move a beat whose last piece was taken in cycle `piece`."""
        returned = max(piece + PACKING_CYCLES, self.written)
        written = returned + 1
        if len(self.commits) >= WRITE_BUFFER_BEATS:
            written = max(written, self.commits[-WRITE_BUFFER_BEATS] + 1)
        written = self.bandwidth.available(written)
        self.bandwidth.take(written)
        self.returned.append(returned)
        self.written = written
        self.commits.append(max(written, self.addressed, self.commits[-1] if self.commits else 0))

    def end_burst(self) -> int:
        """End the last sent burst; return the cycle of its response."""
        answered = self.commits[-1] + self.latency
        if self.responses:
            answered = max(answered, self.responses[-1] + 1)
        self.responses.append(answered)
        return answered
