"""The slices of a run for the page's timeline, packed into rows of integers.

The page of a long run has every slice of its slowest layers. Elsewhere, what a unit does within
some cycles is joined: sums by kind of slice stay exact, and no part of the run is empty.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....isa.assembly import format_instruction
from ....isa.instructions import Unit
from ....runtime.names import short_name
from ...execution.timed import TimedSegment
from ..trace_slices import track_slices
from .causes import CausedStep

MAX_SLICES = 40_000
"""Maximum number of slices of a page, so that it opens fast; the trace has all slices."""

EXACT_SHARE = 0.6
"""Share of them that the slowest layers of a long run get."""

FIRST_JOINED_CYCLES = 64

Row = list[int]
"""[begin, cycles, kind, name, instruction], and the number of slices if several are joined."""


def timeline(
    segments: Sequence[TimedSegment],
    paths: Sequence[Sequence[CausedStep]],
    completions: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return rows by track, names, kinds and instructions.

    Parameters
    ----------
    paths : sequence
        Critical path of each segment.
    completions : sequence
        The consecutive spans of layers.

    Returns
    -------
    dict
        `joined_cycles` says within how many cycles slices are joined, 0 if all are exact;
        `exact_layers` counts the layers that are exact.
    """
    tracks: dict[str, list[Row]] = {}
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}
    path_rows: list[Row] = []
    tokens: list[list[int]] = []
    offset, first = 0, 0
    for segment, path in zip(segments, paths, strict=True):
        for piece in sorted(track_slices(segment), key=lambda piece: piece.begin):
            row = [
                offset + piece.begin,
                piece.end - piece.begin,
                kinds.setdefault(piece.kind, len(kinds)),
                names.setdefault(piece.name, len(names)),
                first + piece.instruction if piece.instruction >= 0 else -1,
            ]
            tracks.setdefault(piece.track.title, []).append(row)
        for one in path:
            at = first + one.step.instruction if one.step.instruction >= 0 else -1
            name = f"{one.unit.name if one.unit is not None else 'start'}: {one.cause}"
            kind = kinds.setdefault("path", len(kinds))
            name_at = names.setdefault(name, len(names))
            path_rows.append([offset + one.step.begin, one.cycles, kind, name_at, at])
        tokens += _tokens(segment, offset)
        offset += segment.timing.cycles
        first += len(segment.program)
    everything = [*tracks.values(), path_rows]
    exact, joined_cycles = _exact_spans(everything, completions), 0
    if len(exact) < len(completions):
        joined_cycles = FIRST_JOINED_CYCLES
        while True:
            joined = [_join(rows, exact, joined_cycles) for rows in everything]
            if sum(map(len, joined)) <= MAX_SLICES or joined_cycles > offset:
                break
            joined_cycles *= 2
        for rows, fewer in zip(everything, joined, strict=True):
            rows[:] = fewer
        tokens = [t for t in tokens if any(begin <= t[1] and t[3] < end for begin, end in exact)]
    return {
        "tracks": tracks,
        "names": list(names),
        "kinds": list(kinds),
        "instructions": _instructions(segments, everything),
        "path": path_rows,
        "tokens": tokens,
        "joined_cycles": joined_cycles,
        "exact_layers": len(exact),
    }


def _exact_spans(
    everything: Sequence[Sequence[Row]], completions: Sequence[Mapping[str, Any]]
) -> list[tuple[int, int]]:
    """Return the spans of the layers that keep all slices: all, or the slowest ones."""
    spans = [(each["begin"], each["end"]) for each in completions]
    left = MAX_SLICES - sum(map(len, everything))
    if left >= 0:
        return spans
    begins = sorted(row[0] for rows in everything for row in rows)
    exact, room = [], EXACT_SHARE * MAX_SLICES
    for begin, end in sorted(spans, key=lambda span: span[0] - span[1]):
        room -= bisect_left(begins, end) - bisect_left(begins, begin)
        if room < 0:
            break
        exact.append((begin, end))
    return sorted(exact)


def _join(rows: Sequence[Row], exact: Sequence[tuple[int, int]], cycles: int) -> list[Row]:
    """Join short slices that begin within some cycles, by kind and name, outside exact spans."""
    made: list[Row] = []
    groups: dict[tuple[int, int], Row] = {}
    begin = 0

    def flush() -> None:
        at = begin
        for row in groups.values():
            row[0] = at
            at += row[1]
            made.append(row if row[5] > 1 else row[:5])
        groups.clear()

    spans = iter([*exact, (1 << 62, 1 << 62)])
    span = next(spans)
    for row in rows:
        while row[0] >= span[1]:
            span = next(spans)
        if row[1] >= cycles or row[0] >= span[0]:
            flush()
            made.append(row)
            continue
        if groups and row[0] >= begin + cycles:
            flush()
        if not groups:
            begin = row[0]
        group = groups.setdefault((row[2], row[3]), [0, 0, *row[2:], 0])
        group[1] += row[1]
        group[5] += 1
    flush()
    return made


def _instructions(
    segments: Sequence[TimedSegment], everything: Iterable[Sequence[Row]]
) -> list[list[str]]:
    """Return label, note and text of the instructions that rows name, which get their places."""
    used = sorted({row[4] for rows in everything for row in rows} - {-1})
    place = {at: new for new, at in enumerate(used)} | {-1: -1}
    for rows in everything:
        for row in rows:
            row[4] = place[row[4]]
    found, first, wanted = [], 0, iter([*used, -1])
    at = next(wanted)
    for segment in segments:
        end = first + len(segment.program)
        while first <= at < end:
            note = segment.note(at - first)
            note = re.sub(r"`([^`]*)`", lambda match: short_name(match[1]), note)
            text = format_instruction(segment.program[at - first])
            found.append([segment.label(at - first), note, text])
            at = next(wanted)
        first = end
    return found


def _tokens(segment: TimedSegment, offset: int) -> list[list[int]]:
    """Per token: giving unit, its retirement, taking unit, when the taker has all of its own."""
    timing = segment.timing
    retired, ready = timing.column("retired"), timing.column("ready")
    rows = []
    for taker, unit in zip(*(timing.links.givers >= 0).nonzero(), strict=True):
        giver = int(timing.links.givers[taker, unit])
        home = Unit(int(timing.links.unit[taker]))
        rows.append(
            [int(unit), offset + int(retired[giver]), int(home), offset + int(ready[taker])]
        )
    return rows
