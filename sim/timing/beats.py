"""Cycle and instruction of every beat on main memory's channels.

The compiled model does not record beats, so the Python model times the program again with channels
that record their handshakes.
"""

from dataclasses import dataclass

import numpy as np

from ...isa.memory_model import MemoryModel
from .channels import ReadChannel, WriteChannel
from .definition import Model
from .fetch import Fetch
from .shared_bus import SharedBusModel, Write, unlimited
from .timing import Timing
from .transfers import Burst, Entry, Issuer

FETCH = -1
"""Owner of the beats of instruction words."""


@dataclass(frozen=True, slots=True)
class Beats:
    """A channel's beats in order of time.

    Parameters
    ----------
    cycle
        int64[beats]: cycle of the handshake, ascending.
    instruction
        int64[beats]: index of the LOAD or STORE that it belongs to, or `FETCH`.
    burst
        int64[beats]: number of its burst on this channel, from 0.
    """

    cycle: np.ndarray
    instruction: np.ndarray
    burst: np.ndarray


class _BeatRecorder:
    """Recorder of beats; the owner is set before the first beat of a burst."""

    def __init__(self) -> None:
        self.owner: Entry | None = None
        self.burst = -1
        self.beats: list[tuple[int, Entry | None, int]] = []

    def begin(self, owner: Entry | None) -> None:
        self.owner = owner
        self.burst += 1

    def beat(self, cycle: int) -> None:
        self.beats.append((cycle, self.owner, self.burst))

    def table(self, places: dict[int, int]) -> Beats:
        rows = [(at, FETCH if to is None else places[id(to)], n) for at, to, n in self.beats]
        return Beats(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)


class _Reads(ReadChannel):
    def __init__(self, memory: MemoryModel, recorder: _BeatRecorder) -> None:
        super().__init__(memory)
        self.recorder = recorder

    def deliver(self, ready: int) -> int:
        taken = super().deliver(ready)
        self.recorder.beat(self.handshake)
        return taken


class _Writes(WriteChannel):
    def __init__(self, memory: MemoryModel, answers: int, recorder: _BeatRecorder) -> None:
        super().__init__(memory, answers)
        self.recorder = recorder

    def write(self, piece: int) -> None:
        super().write(piece)
        self.recorder.beat(self.written)


class _Fetch(Fetch):
    def __init__(self, configuration, words: int, recorder: _BeatRecorder) -> None:
        super().__init__(configuration, words)
        self.recorder = recorder

    def grant(self, cycle: int) -> int:
        self.recorder.begin(None)
        return super().grant(cycle)


class _Issuer(Issuer):
    def __init__(self, configuration, start, send, recorder: _BeatRecorder) -> None:
        super().__init__(configuration, start, send)
        self.recorder = recorder

    def sends(self, burst: Burst, cycle: int) -> None:
        if not burst.fill:
            self.recorder.begin(burst.command)
        super().sends(burst, cycle)


class _RecordingModel(Model):
    def __init__(self, timing: Timing) -> None:
        configuration, memory = timing.configuration, timing.memory
        super().__init__(timing.program, configuration, memory)
        self.read, self.written_beats = _BeatRecorder(), _BeatRecorder()
        self.reads = _Reads(memory, self.read)
        self.writes = _Writes(memory, configuration.outstanding_bursts, self.written_beats)
        self.fetch = _Fetch(configuration, len(timing.program), self.read)
        self.load = _Issuer(configuration, self.start, self._read, self.read)
        self.store = _Issuer(configuration, self.start, self._write, self.written_beats)


class _RecordingSharedBusModel(SharedBusModel):
    def __init__(self, timing: Timing) -> None:
        super().__init__(timing.program, timing.configuration, timing.memory)
        self.read, self.written_beats = _BeatRecorder(), _BeatRecorder()
        self.reads = _Reads(unlimited(timing.memory), self.read)

    def _deliver_fetch(self, ready: int, beats: int) -> None:
        self.read.begin(None)
        super()._deliver_fetch(ready, beats)

    def _deliver_load(self, ready: int) -> None:
        if not self.loads[0].fill:
            self.read.begin(self.loads[0].command)
        super()._deliver_load(ready)

    def _take_store(self, write: Write) -> None:
        self.written_beats.begin(write.burst.command)
        super()._take_store(write)

    def _write_beat(self, taken: int, room: int) -> None:
        super()._write_beat(taken, room)
        self.written_beats.beat(self.written)


def beats(timing: Timing) -> tuple[Beats, Beats]:
    """Every beat of the read channel, and of the write channel.

    A write's cycle is that of its data; its address may be accepted later.
    """
    model = (_RecordingSharedBusModel if timing.memory.bus else _RecordingModel)(timing)
    model.run()
    # The entries of a unit are in the order of its instructions.
    places = {
        id(entry): index
        for unit, entries in model.entries.items()
        for entry, index in zip(entries, timing.links.of_unit(unit).tolist(), strict=True)
    }
    return model.read.table(places), model.written_beats.table(places)
