"""A run as a timeline for Perfetto and `chrome://tracing`: who worked when, and why not.

One process per segment, one thread per unit and per memory channel. The format counts in
microseconds; here one is a cycle. Format: "Trace Event Format", Google, 2016.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UsageError
from ...isa.assembly import format_instruction
from ...isa.instructions import Unit
from ..execution.timed import TimedSegment
from .trace_slices import Slice, Track, track_slices

BINS = 512
"""Points of each counter's curve."""

LEAST_BIN_CYCLES = 64

Event = dict[str, Any]


def trace_events(segments: Sequence[TimedSegment]) -> Iterator[Event]:
    """All events of a trace; segments follow each other in time."""
    begin, flows = 0, count(1)
    for number, segment in enumerate(segments):
        slices = list(track_slices(segment))
        yield from _names(number, len(segments), {piece.track for piece in slices})
        yield from (_slice_event(number, begin, piece, segment) for piece in slices)
        if segment.agrees:
            yield from _flows(number, begin, segment, slices, flows)
            yield from _counters(number, begin, segment)
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


def _slice_event(number: int, begin: int, piece: Slice, segment: TimedSegment) -> Event:
    arguments: dict[str, Any] = {}
    if piece.instruction >= 0:
        arguments["instruction"] = piece.instruction
        if piece.kind == "work":
            arguments["assembly"] = format_instruction(segment.program[piece.instruction])
            arguments["for"] = segment.note(piece.instruction)
    return {
        "ph": "X",
        "name": piece.name,
        "cat": piece.kind,
        "pid": number,
        "tid": int(piece.track),
        "ts": begin + piece.begin,
        "dur": piece.end - piece.begin,
        "args": arguments,
    }


def _flows(
    number: int, begin: int, segment: TimedSegment, slices: Sequence[Slice], flows: Iterator[int]
) -> Iterator[Event]:
    """An arrow per token, from the end of the work that gives it to the work that takes it."""
    works: dict[int, list[Slice]] = {}
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
    """Bytes a cycle on the bus, and instructions that wait in each queue."""
    timing = segment.timing
    cycles, bus = timing.cycles, timing.configuration.bus_bytes
    width = max(LEAST_BIN_CYCLES, -(-cycles // BINS))
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


def trace_json(segments: Sequence[TimedSegment], network: str, device: str) -> dict[str, Any]:
    """A whole trace as JSON values."""
    first = segments[0].timing if segments else None
    other = {
        "network": network,
        "device": device,
        "time": "1 us is 1 cycle",
        "slices": _what(segments),
    }
    if first is not None:
        other["configuration"] = first.configuration.name
        other["memory"] = str(first.memory)
    return {
        "traceEvents": list(trace_events(segments)),
        "displayTimeUnit": "ms",
        "otherData": other,
    }


def _what(segments: Sequence[TimedSegment]) -> str:
    """What the slices are: the model's, or what hardware measured where the two differ."""
    if not all(segment.agrees for segment in segments):
        return "start to retirement alone: random stalls are not in the timing model"
    if any(segment.timing.memory.stall_probability for segment in segments):
        return "work and waits, without the memory's random stalls"
    return "work and waits"


def write_trace(path: Path, segments: Sequence[TimedSegment], network: str, device: str) -> None:
    """Write a trace, one event a line.

    Raises
    ------
    UsageError
        When the file cannot be written.
    """
    values = trace_json(segments, network, device)
    events = ",\n".join(json.dumps(event) for event in values.pop("traceEvents"))
    rest = json.dumps(values)[1:]
    try:
        path.write_text(f'{{"traceEvents": [\n{events}\n],\n{rest}\n')
    except OSError as problem:
        raise UsageError(
            f"`--trace {path}`: cannot be written, got `{problem.strerror}`; choose another path"
        ) from None
