"""Activity over time: cycles that each unit spends on each activity, per time slot."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....isa.instructions import Unit
from ....sim.timing.stalls import Wait
from ...execution.timed import TimedSegment
from ..trace_slices import Track, track_slices

SLOTS = 160
"""Number of slots that a page 1,280 pixels wide shows well."""

FETCH_WAITS = {
    "work": Wait.WORK,
    "waits for main memory": Wait.MEMORY,
}
"""States of a unit that correspond to FETCH's slices; all other slices are queues."""


def activity_bins(segments: Sequence[TimedSegment]) -> dict[str, Any]:
    """Return cycles per slot by unit and `Wait`, and beats per slot by channel and owner."""
    total = sum(segment.timing.cycles for segment in segments)
    width = max(1, -(-total // SLOTS))
    edges = np.arange(0, total + width, width)
    units = {name: np.zeros((len(Wait), edges.size - 1)) for name in ("FETCH", *Unit.__members__)}
    channels = {name: np.zeros(edges.size - 1, dtype=int) for name in ("FETCH", "LOAD", "STORE")}
    offset = 0
    for segment in segments:
        found, cycles = segment.activity, segment.timing.cycles
        for unit in Unit:
            for wait in Wait:
                mine = (found.unit == unit) & (found.wait == wait)
                # The model's last cycle is that of the last retirement; done is told after it.
                spans = np.stack([found.begin[mine], np.minimum(found.end[mine], cycles)])
                units[unit.name][wait] += _overlap(spans + offset, edges)
        waits: dict[Wait, list[tuple[int, int]]] = {}
        for piece in track_slices(segment):
            if piece.track is Track.FETCH:
                name = piece.name if piece.kind == "wait" else "work"
                wait = FETCH_WAITS.get(name, Wait.QUEUE)
                waits.setdefault(wait, []).append((piece.begin, piece.end))
        for wait, spans in waits.items():
            units["FETCH"][wait] += _overlap(np.array(spans).T + offset, edges)
        read, written = segment.beats
        fetched = read.instruction < 0
        for name, beats in (
            ("FETCH", read.cycle[fetched]),
            ("LOAD", read.cycle[~fetched]),
            ("STORE", written.cycle),
        ):
            channels[name] += np.histogram(beats + offset, edges)[0]
        offset += cycles
    return {
        "slot_cycles": width,
        "cycles": total,
        "units": {
            name: {
                wait.name.lower(): np.rint(rows[wait]).astype(int).tolist()
                for wait in Wait
                if rows[wait].any()
            }
            for name, rows in units.items()
        },
        "beats": {name: counts.tolist() for name, counts in channels.items()},
    }


def _overlap(spans: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the cycles of each slot that disjoint spans, int64[2, spans], cover."""
    if not spans.size:
        return np.zeros(edges.size - 1)
    begins, ends = np.sort(spans[0]), np.sort(spans[1])
    covered = np.concatenate([[0], np.cumsum(ends - begins)])
    times = np.stack([begins, ends], axis=1).ravel()
    sums = np.stack([covered[:-1], covered[1:]], axis=1).ravel()
    return np.diff(np.interp(edges, times, sums))
