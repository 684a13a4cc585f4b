"""The slices of a run for the page's timeline, packed into rows of integers."""

import re
from collections.abc import Sequence
from typing import Any

from ....isa.assembly import format_instruction
from ....isa.instructions import Unit
from ....runtime.names import short_name
from ...execution.timed import TimedSegment
from ..trace_slices import track_slices
from .causes import CausedStep

MAX_SLICES = 40_000
"""Maximum number of slices of a page, so that it opens fast; the trace has all slices."""


def timeline(
    segments: Sequence[TimedSegment], paths: Sequence[Sequence[CausedStep]]
) -> dict[str, Any]:
    """Return slices as [begin, cycles, kind, name, instruction], tracks, names and instructions.

    Parameters
    ----------
    paths : sequence
        Critical path of each segment.

    Returns
    -------
    dict
        `complete` is false if the latest slices were left out.
    """
    tracks: dict[str, list[list[int]]] = {}
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}
    instructions: list[list[str]] = []
    steps: list[list[int]] = []
    tokens: list[list[int]] = []
    offset, left = 0, MAX_SLICES
    for segment, path in zip(segments, paths, strict=True):
        first = len(instructions)
        for index, instruction in enumerate(segment.program):
            note = re.sub(r"`([^`]*)`", lambda found: short_name(found[1]), segment.note(index))
            instructions.append([segment.label(index), note, format_instruction(instruction)])
        for piece in sorted(track_slices(segment), key=lambda piece: piece.begin):
            left -= 1
            if left < 0:
                break
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
            row = [offset + one.step.begin, one.cycles, names.setdefault(name, len(names)), at]
            steps.append(row)
        tokens += _tokens(segment, first, offset)
        offset += segment.timing.cycles
    return {
        "tracks": tracks,
        "names": list(names),
        "kinds": list(kinds),
        "instructions": instructions,
        "path": steps,
        "tokens": tokens,
        "complete": left >= 0,
    }


def _tokens(segment: TimedSegment, first: int, offset: int) -> list[list[int]]:
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
