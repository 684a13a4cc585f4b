"""Trace of a run for Perfetto and `chrome://tracing`: the work and waits of every unit.

One process per segment, one thread per unit and per memory channel. Times are those at a clock, in
whole nanoseconds; `cycle` and `cycles` of a slice are exact. Format: "Trace Event Format", Google,
2016.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from ...atomic_write import write_output
from ...isa.assembly import format_instruction
from ...isa.instructions import Unit
from ..cli.clock_options import DEFAULT_CLOCK_MHZ
from ..execution.timed import TimedSegment
from .trace_slices import TraceSlice, Track, track_slices

BINS = 512
"""Points of each counter's curve."""

MIN_BIN_CYCLES = 64

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TraceClock:
    """The time of cycles in the format's microseconds, rounded to nanoseconds.

    Perfetto counts whole nanoseconds. Two slices that meet in a cycle therefore meet in the trace.
    """

    mhz: float

    def time_us(self, cycle: int) -> float:
        """Microseconds from the start of the run to a cycle."""
        return round(cycle * 1e3 / self.mhz) / 1e3

    def span(self, begin: int, end: int) -> Event:
        """Time and duration of the cycles from `begin` up to `end`, without it."""
        at = self.time_us(begin)
        return {"ts": at, "dur": round(self.time_us(end) - at, 3)}


def trace_events(segments: Sequence[TimedSegment], clock: TraceClock) -> Iterator[Event]:
    """Yield all events of a trace; segments follow each other in time."""
    begin, flows = 0, count(1)
    for number, segment in enumerate(segments):
        slices = list(track_slices(segment))
        yield from _names(number, len(segments), {piece.track for piece in slices})
        yield from (_slice_event(number, begin, piece, segment, clock) for piece in slices)
        if segment.agrees:
            for event in _flows(number, begin, segment, slices, flows):
                yield {**event, "ts": clock.time_us(event["ts"])}
            for event in _counters(number, begin, segment):
                yield {**event, "ts": clock.time_us(event["ts"])}
        begin += _cycles(segment)


def _cycles(segment: TimedSegment) -> int:
    if segment.agrees or segment.spans is None:
        return segment.timing.cycles
    return int(segment.spans.max()) + 1


def _names(number: int, segments: int, used: set[Track]) -> Iterator[Event]:
    title = "accelerator" if segments == 1 else f"accelerator, segment {number}"
    yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": title}}
    for track in sorted(used):
        common = {"ph": "M", "pid": number, "tid": int(track)}
        yield {**common, "name": "thread_name", "args": {"name": track.title}}
        yield {**common, "name": "thread_sort_index", "args": {"sort_index": int(track)}}


def _slice_event(
    number: int, begin: int, piece: TraceSlice, segment: TimedSegment, clock: TraceClock
) -> Event:
    first, last = begin + piece.begin, begin + piece.end
    arguments: dict[str, Any] = {"cycle": first, "cycles": last - first}
    if piece.instruction >= 0:
        arguments["instruction"] = piece.instruction
        if layer := segment.layer_name(piece.instruction):
            arguments["layer"] = layer
        if piece.kind == "work":
            arguments["assembly"] = format_instruction(segment.program[piece.instruction])
            arguments["for"] = segment.note(piece.instruction)
    return {
        "ph": "X",
        "name": piece.name,
        "cat": piece.kind,
        "pid": number,
        "tid": int(piece.track),
        **clock.span(first, last),
        "args": arguments,
    }


def _flows(
    number: int,
    begin: int,
    segment: TimedSegment,
    slices: Sequence[TraceSlice],
    flows: Iterator[int],
) -> Iterator[Event]:
    """Yield an arrow per token, from the end of the work that gives it to the work that takes it.

    Times are cycles here and in `_counters`.
    """
    works: dict[int, list[TraceSlice]] = {}
    for piece in slices:
        if piece.kind in ("work", "sync") and piece.track.unit is not None:
            works.setdefault(piece.instruction, []).append(piece)
    givers = segment.timing.links.givers
    for taker, unit in zip(*np.nonzero(givers >= 0), strict=True):
        giver = int(givers[taker, unit])
        source, target = works[giver][-1], works[int(taker)][0]
        name = f"{Unit(unit).name} to {target.track.unit_name}"
        common = {"cat": "token", "name": name, "id": next(flows), "pid": number}
        at = begin + source.end - 1
        yield {**common, "ph": "s", "tid": int(source.track), "ts": at}
        at = begin + max(target.begin, source.end - 1)
        yield {**common, "ph": "f", "bp": "e", "tid": int(target.track), "ts": at}


def _counters(number: int, begin: int, segment: TimedSegment) -> Iterator[Event]:
    """Yield bytes per cycle on the bus, and the number of instructions in each queue."""
    timing = segment.timing
    cycles, bus = timing.cycles, timing.configuration.bus_bytes
    width = max(MIN_BIN_CYCLES, -(-cycles // BINS))
    edges = np.arange(0, cycles + width, width)
    for name, channel in zip(("read", "written"), segment.beats, strict=True):
        moved, _ = np.histogram(channel.cycle, edges)
        for edge, beats in zip(edges.tolist(), moved.tolist(), strict=False):
            yield {
                "ph": "C",
                "name": f"bytes {name} a cycle",
                "pid": number,
                "ts": begin + edge,
                "args": {"bytes": round(beats * bus / width, 3)},
            }
    entered, start = timing.column("entered"), timing.column("start")
    for unit in Unit:
        mine = timing.links.of_unit(unit)
        times = np.concatenate([entered[mine], start[mine]])
        steps = np.repeat([1, -1], mine.size)
        at, where = np.unique(times, return_inverse=True)
        queued = np.cumsum(np.bincount(where, steps, minlength=at.size)).astype(int)
        for cycle, filled in zip(at.tolist(), queued.tolist(), strict=True):
            yield {
                "ph": "C",
                "name": f"{unit.name} queued",
                "pid": number,
                "ts": begin + cycle,
                "args": {"instructions": filled},
            }


def trace_json(
    segments: Sequence[TimedSegment],
    network: str,
    device: str,
    clock_mhz: float = DEFAULT_CLOCK_MHZ,
) -> dict[str, Any]:
    """Return a whole trace as JSON values."""
    first = segments[0].timing if segments else None
    other = {
        "network": network,
        "device": device,
        "time": f"at {clock_mhz:g} MHz: one cycle is {1e3 / clock_mhz:g} ns",
        "slices": _what(segments),
    }
    if first is not None:
        other["configuration"] = first.configuration.name
        other["memory"] = str(first.memory)
    return {
        "traceEvents": list(trace_events(segments, TraceClock(clock_mhz))),
        "displayTimeUnit": "ns",
        "otherData": other,
    }


def _what(segments: Sequence[TimedSegment]) -> str:
    """Say whether slices are the model's, or measured by hardware where the two differ."""
    if not all(segment.agrees for segment in segments):
        return "start to retirement alone: random stalls are not in the timing model"
    if any(segment.timing.memory.stall_probability for segment in segments):
        return "work and waits, without the memory's random stalls"
    return "work and waits"


def write_trace(
    path: Path,
    segments: Sequence[TimedSegment],
    network: str,
    device: str,
    clock_mhz: float = DEFAULT_CLOCK_MHZ,
) -> None:
    """Write a trace, one event per line.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    values = trace_json(segments, network, device, clock_mhz)
    events = ",\n".join(json.dumps(event) for event in values.pop("traceEvents"))
    rest = json.dumps(values)[1:]
    write_output(path, f'{{"traceEvents": [\n{events}\n],\n{rest}\n', f"`--trace {path}`")


def trace_sentence(path: Path, clock_mhz: float = DEFAULT_CLOCK_MHZ) -> str:
    """Say what a trace contains, and how to open it."""
    return (
        f"trace: `{path}`, {path.stat().st_size / 1e6:,.1f} MB, times at {clock_mhz:g} MHz; open "
        "it at https://ui.perfetto.dev (the file stays on your machine) or in `chrome://tracing`"
    )
