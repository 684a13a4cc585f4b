"""The slices of a trace's tracks: work and waits of every unit, and bursts on main memory.

Slices of one track never overlap. A unit's slices show its activity, exact to the cycle, except
after its last work, where its track is empty.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ...isa.encoding import word_bytes
from ...isa.instructions import Unit
from ...sim.timing.beats import FETCH, Beats
from ...sim.timing.stalls import Wait
from ..execution.timed import TimedSegment
from .terminal import shorten

NO_INSTRUCTION = -1

LAYER_COLUMNS = 28
"""Most characters of a layer's name in the name of a slice, which has little space."""


class Track(IntEnum):
    """Threads of a trace in their order on the screen."""

    FETCH = 1
    LOAD = 2
    LOAD_SYNC = 3
    GEMM = 4
    GEMM_SYNC = 5
    VECTOR = 6
    VECTOR_SYNC = 7
    STORE = 8
    STORE_SYNC = 9
    READ = 10
    WRITE = 11

    @property
    def title(self) -> str:
        """Title of the track."""
        if self in (Track.READ, Track.WRITE):
            return f"main memory: {self.name.lower()}"
        return self.name.replace("_SYNC", ": SYNC")

    @property
    def unit_name(self) -> str:
        """Name of the unit whose time it shows."""
        return self.name.removesuffix("_SYNC")

    @property
    def unit(self) -> Unit | None:
        """The unit whose time it shows; None for FETCH and the channels."""
        return Unit[self.unit_name] if self.unit_name in Unit.__members__ else None


@dataclass(frozen=True, slots=True)
class TraceSlice:
    """A stretch of time on a track.

    Parameters
    ----------
    kind : str
        `work`, `wait`, `sync` or `burst`.
    instruction : int
        Index in the program, or `NO_INSTRUCTION`.
    begin, end : int
        First cycle, and first cycle after it.
    """

    track: Track
    kind: str
    name: str
    instruction: int
    begin: int
    end: int


def track_slices(segment: TimedSegment) -> Iterator[TraceSlice]:
    """Yield all slices of a segment; only start to retirement if the model does not agree."""
    if not segment.agrees:
        for unit in Unit:
            yield from _measured_slices(segment, unit)
        return
    yield from _fetch_slices(segment)
    yield from _unit_slices(segment)
    for unit in Unit:
        yield from _sync_slices(segment, unit)
    for track, channel in zip((Track.READ, Track.WRITE), segment.beats, strict=True):
        yield from _burst_slices(segment, track, channel)


def slice_name(segment: TimedSegment, index: int) -> str:
    """Return an instruction's name: its layer, shortened, and its mnemonic."""
    name, mnemonic = segment.layer_name(index), segment.program[index].mnemonic
    return f"{shorten(name, LAYER_COLUMNS)}: {mnemonic}" if name else mnemonic


def wait_name(segment: TimedSegment, wait: Wait, by: int) -> str:
    """Describe a wait, and name the unit that is waited for."""
    other = Unit(int(segment.timing.links.unit[by])).name if by >= 0 else "another unit"
    return {
        Wait.MEMORY: "waits for main memory",
        Wait.TOKEN: f"waits for {other}'s token",
        Wait.QUEUE: f"starved: dispatch waits for {other}'s full queue",
        Wait.FETCH: "starved: waits for FETCH",
        Wait.UNIT: "waits for its own pipeline",
        Wait.FILL: "fills its pipeline",
    }[wait]


def _unit_slices(segment: TimedSegment) -> Iterator[TraceSlice]:
    found = segment.activity
    columns = (found.unit, found.instruction, found.wait, found.by, found.begin, found.end)
    for unit, index, kind, by, begin, end in zip(*(c.tolist() for c in columns), strict=True):
        track, wait = Track[Unit(unit).name], Wait(kind)
        if wait is Wait.WORK:
            yield TraceSlice(track, "work", slice_name(segment, index), index, begin, end)
        elif wait is not Wait.DONE:
            yield TraceSlice(track, "wait", wait_name(segment, wait, by), index, begin, end)


def _sync_slices(segment: TimedSegment, unit: Unit) -> Iterator[TraceSlice]:
    """Yield the slices of SYNCs, which have their own track because they overlap other work."""
    links, timing = segment.timing.links, segment.timing
    mine = links.of_unit(unit)
    syncs = mine[~links.works[mine]]
    starts, retired = timing.column("start")[syncs], timing.column("retired")[syncs]
    free = 0
    for index, start, end in zip(syncs.tolist(), starts.tolist(), retired.tolist(), strict=True):
        begin = max(start, free)
        free = end + 1
        yield TraceSlice(
            Track[f"{unit.name}_SYNC"], "sync", slice_name(segment, index), index, begin, free
        )


def _measured_slices(segment: TimedSegment, unit: Unit) -> Iterator[TraceSlice]:
    """Yield slices from start to retirement; an overlapped one begins as the previous one ends."""
    assert segment.spans is not None
    free, track = 0, Track[unit.name]
    for index in segment.timing.links.of_unit(unit).tolist():
        start, retired = segment.spans[index].tolist()
        begin, free = max(start, free), retired + 1
        yield TraceSlice(track, "work", slice_name(segment, index), index, begin, free)


def _fetch_slices(segment: TimedSegment) -> Iterator[TraceSlice]:
    """Yield, per word, its way from main memory, its beats, and its wait for a full queue."""
    timing = segment.timing
    beats = word_bytes(timing.configuration) // timing.configuration.bus_bytes
    words, entered = timing.column("word").tolist(), timing.column("entered").tolist()
    free = 0
    for index, word in enumerate(words):
        if word < 0:
            break
        begin = max(free, word - beats)
        if begin > free:
            yield TraceSlice(Track.FETCH, "wait", "waits for main memory", index, free, begin)
        # HALT enters no queue; the last word is complete in the cycle that its slice ends with.
        free = max(word, entered[index], begin + 1)
        yield TraceSlice(
            Track.FETCH, "work", slice_name(segment, index), index, begin, max(word, begin + 1)
        )
        if free > max(word, begin + 1):
            unit = Unit(int(timing.links.unit[index])).name
            name = f"waits for {unit}'s full queue"
            yield TraceSlice(Track.FETCH, "wait", name, index, max(word, begin + 1), free)


def _burst_slices(segment: TimedSegment, track: Track, beats: Beats) -> Iterator[TraceSlice]:
    """Yield a slice from the first to the last beat of each burst."""
    if not beats.cycle.size:
        return
    first = np.flatnonzero(np.diff(beats.burst, prepend=-1))
    last = np.append(first[1:], beats.cycle.size) - 1
    columns = (beats.instruction[first], beats.cycle[first], beats.cycle[last])
    for index, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        if index == FETCH:
            yield TraceSlice(track, "burst", "FETCH: words", NO_INSTRUCTION, begin, end + 1)
        else:
            yield TraceSlice(track, "burst", slice_name(segment, index), index, begin, end + 1)
