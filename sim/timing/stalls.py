"""Stall attribution: every cycle of every unit is work or a named wait.

The cycles of a unit between the work of two instructions belong to the later one. They count as a
wait for whatever it needed at that moment: its word, a full queue, a token, its own unit or main
memory.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ...isa.instructions import Unit
from .timing import Timing


class Wait(IntEnum):
    """Activity of a unit: work, or the reason for a wait."""

    WORK = 0
    MEMORY = 1
    TOKEN = 2
    QUEUE = 3
    FETCH = 4
    UNIT = 5
    FILL = 6
    DONE = 7


WAIT_TEXT = {
    Wait.WORK: "moves rows, steps or bytes",
    Wait.MEMORY: "waits for main memory",
    Wait.TOKEN: "waits for a token of another unit",
    Wait.QUEUE: "starved: dispatch stands before another unit's full queue",
    Wait.FETCH: "starved: FETCH has not brought the instruction yet",
    Wait.UNIT: "waits for its own pipeline",
    Wait.FILL: "fills its pipeline",
    Wait.DONE: "has nothing left to do",
}
"""Each one as text for tables and pages."""

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity of every unit over time; the intervals of a unit have no gaps.

    Parameters
    ----------
    unit, instruction
        int64[intervals]: unit, and instruction that the time belongs to; -1 after the unit's last
        instruction.
    wait
        int64[intervals]: a `Wait`.
    by
        int64[intervals]: the instruction that it waits for, or -1.
    begin, end
        int64[intervals]: first cycle, and end (exclusive).
    """

    unit: np.ndarray
    instruction: np.ndarray
    wait: np.ndarray
    by: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    def cycles(self, unit: Unit) -> dict[Wait, int]:
        """A unit's cycles by activity; they sum to those of the run."""
        mine = self.unit == unit
        sums = np.bincount(
            self.wait[mine], (self.end - self.begin)[mine], minlength=len(Wait)
        ).astype(int)
        return {wait: int(sums[wait]) for wait in Wait}


def activity(timing: Timing) -> Activity:
    """Attribute every cycle of every unit."""
    parts = [_unit_activity(timing, unit) for unit in Unit]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    used = columns[5] > columns[4]
    return Activity(*(column[used] for column in columns))


def _unit_activity(timing: Timing, unit: Unit) -> tuple[np.ndarray, ...]:
    links = timing.links
    all_of_unit = links.of_unit(unit)
    mine = all_of_unit[links.works[all_of_unit]]
    count = mine.size
    valid, ready, start, first, last, starved = (
        timing.column(name)[mine]
        for name in ("valid", "ready", "start", "first", "last", "starved")
    )
    memory_side = unit in (Unit.LOAD, Unit.STORE)

    # Ends of the phases before an instruction's work, in order; each begins where the one before
    # it ended, and all begin where the work of the instruction before ended.
    blocked, blocker = _blocked(timing, mine)
    waits = [Wait.QUEUE, Wait.FETCH, Wait.TOKEN, Wait.UNIT]
    giver = _last_giver(timing, mine)
    bys = [blocker, np.full(count, NOBODY), giver, np.full(count, NOBODY)]
    ends = [blocked, valid, ready, start]
    if memory_side:
        # Of the time to the first piece, what LOAD waited for its beat; STORE fills its pipeline.
        waits.append(Wait.FILL)
        bys.append(np.full(count, NOBODY))
        ends.append(first - np.minimum(starved, first - start) if unit is Unit.LOAD else first)
    waits += [Wait.MEMORY if unit is Unit.LOAD else Wait.FILL, Wait.WORK]
    bys += [np.full(count, NOBODY), np.full(count, NOBODY)]
    ends += [first, last + 1]

    cursor = np.concatenate([[0], last[:-1] + 1])[:count]
    begins, stops = [], []
    for end in ends:
        stop = np.maximum(cursor, end)
        begins.append(cursor)
        stops.append(stop)
        cursor = stop
    done = int(last[-1]) + 1 if count else 0
    phases = len(waits)
    return (
        np.full(phases * count + 1, unit, dtype=np.int64),
        np.append(np.tile(mine, phases), NOBODY),
        np.append(np.repeat(np.array(waits, dtype=np.int64), count), Wait.DONE),
        np.append(np.concatenate(bys), NOBODY),
        np.append(np.concatenate(begins), done),
        np.append(np.concatenate(stops), max(done, timing.cycles)),
    )


def _blocked(timing: Timing, mine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """End of the wait for a full queue before each instruction, and the unit of that queue."""
    word, entered = timing.column("word"), timing.column("entered")
    held = np.where(entered > word, entered, 0)
    latest = np.maximum.accumulate(held)
    holder = np.maximum.accumulate(np.where(entered > word, np.arange(word.size), NOBODY))
    return latest[mine], holder[mine]


def _last_giver(timing: Timing, mine: np.ndarray) -> np.ndarray:
    """The instruction that gave the last token, int64[instructions of the unit]."""
    givers = timing.links.givers[mine]
    times = np.where(givers >= 0, timing.column("retired")[givers], NOBODY)
    return givers[np.arange(mine.size), times.argmax(axis=1)]
