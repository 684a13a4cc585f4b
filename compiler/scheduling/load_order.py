"""Loads that pass other loads, so that LOAD works while a layer waits for the one before it.

LOAD works in program order, so weights behind an activation that is not yet stored wait with it.
Instructions whose data do not conflict may be in any order. A simulation with the measured
durations issues them anew: of the next loads, it takes the first one that can start.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...isa.configuration import Configuration, Memory
from ...isa.footprints import Footprint, data_conflict
from ...isa.instructions import Instruction, Unit

WINDOW = 64
"""Maximum number of loads that a load may pass."""

BLOCK = 128
"""Instructions whose banks are compared with those of earlier ones at once."""


class Span(NamedTuple):
    """Measured times of an instruction.

    Parameters
    ----------
    start, first, last, retired
        Cycles in which it starts, begins and ends its work, and is complete for other units.
    """

    start: int
    first: int
    last: int
    retired: int


Spans = Callable[[Sequence[Instruction], Configuration], Sequence[tuple[int, ...]]]
"""Measures the `Span` fields of every instruction except SYNC and HALT."""


class LoadOrder:
    """Orders in which loads pass loads that wait, all with the same results.

    Parameters
    ----------
    order
        Instructions, each of which follows those that it depends on.
    used
        Their footprints.
    spans
        Their times in this order.
    conflicts
        What is known of pairs of instructions, whose keys are `earlier << 32 | later`; more is
        added. Orders of one program share most pairs.

    Attributes
    ----------
    lead
        For each unit, the fewest cycles from a start to the work: these overlap other work.
    free, busy
        When each unit has ended its latest work; for each port, its last user and when that ends.
    done
        All instructions before this one are issued.
    oldest
        For each instruction, an earlier one; with all before it, it is issued first.
    users, depends
        For each instruction, those that depend on it, and the number of those that it depends on.
    missing, ready
        How many of the instructions that it depends on are not issued, and when the others end.
    loads
        Those that wait for no other instruction, in order.
    """

    def __init__(
        self,
        order: Sequence[int],
        used: Sequence[Footprint],
        spans: Sequence[Span],
        conflicts: dict[int, bool],
    ) -> None:
        self.spans, self.used = spans, used
        self.queues = {unit: list[int]() for unit in Unit}
        self.lead = dict.fromkeys(Unit, 1 << 62)
        self.oldest: list[int] = []
        for index, (one, span) in enumerate(zip(used, spans, strict=True)):
            assert one.unit is not None
            loads = self.queues[Unit.LOAD]
            self.oldest.append(loads[-WINDOW] if len(loads) >= WINDOW else 0)
            self.queues[one.unit].append(index)
            self.lead[one.unit] = min(self.lead[one.unit], span.first - span.start)
        self.users: list[list[int]] = [[] for _ in order]
        self.depends = self._depend(order, conflicts)
        self.ports = [_ports(one) for one in used]
        self._begin(0)

    def _begin(self, delay: int) -> None:
        self.delay, self.done = delay, 0
        self.waiting = {unit: deque(queue) for unit, queue in self.queues.items()}
        self.missing, self.ready = self.depends.copy(), [0] * len(self.used)
        self.busy: dict[int, tuple[Unit, int]] = {}
        self.free = dict.fromkeys(Unit, 0)
        self.loads = [index for index in self.queues[Unit.LOAD] if not self.depends[index]]

    def _depend(self, order: Sequence[int], conflicts: dict[int, bool]) -> list[int]:
        """Note the instructions that each one depends on, and return their numbers."""
        found, used = [0] * len(order), self.used
        last, seen = -1, set[Unit | None]()
        for index, other in self._possible():
            if index != last:
                last, seen = index, set()
            unit = used[other].unit
            if unit in seen:
                continue
            pair = order[other] << 32 | order[index]
            conflict = conflicts.get(pair)
            if conflict is None:
                conflict = conflicts[pair] = data_conflict(used[other], used[index])
            if conflict:
                self.users[other].append(index)
                found[index] += 1
                if unit is not Unit.LOAD:  # it has done all before this one
                    seen.add(unit)
        return found

    def _possible(self) -> Iterator[tuple[int, int]]:
        """Pairs of instructions, and of earlier ones from the nearest on, whose data may meet.

        Most pairs fail here, so this is the work of arrays.
        """
        memories = _rows_of(self.used)
        bits = [(one.unit, one.reads, one.writes) for one in self.used]
        spans = [(one.dram_low, one.dram_high) for one in self.used]
        units, reads, writes = np.array(bits, dtype=np.uint64).reshape(-1, 3).T
        low, high = np.array(spans, dtype=np.int64).reshape(-1, 2).T
        oldest, places = np.array(self.oldest), np.arange(len(self.used))
        for first in range(0, len(self.used), BLOCK):
            mine = slice(first, first + BLOCK), None
            others = slice(self.oldest[first], first + BLOCK)
            shared = reads[others] & writes[mine]
            shared |= writes[others] & (reads[mine] | writes[mine])
            apart = (high[others] < low[mine]) | (high[mine] < low[others])
            possible = (shared > 1) | ((shared == 1) & ~apart)
            possible &= (places[others] < places[mine]) & (places[others] >= oldest[mine])
            possible &= (units[others] != units[mine]) | (units[mine] == Unit.LOAD)
            rows, columns = np.nonzero(possible[:, ::-1])
            later, earlier = rows + first, places[others][-1] - columns
            meet = np.zeros(len(later), bool)
            for read, written in memories:
                for one, other in (written, read), (read, written), (written, written):
                    meet |= (one[0, earlier] <= other[1, later]) & (
                        other[0, later] <= one[1, earlier]
                    )
            yield from zip(later[meet].tolist(), earlier[meet].tolist(), strict=True)

    def passing(self, delay: int, *, patient: bool = False) -> list[int]:
        """Issue the instruction that can start first, until none is left.

        Parameters
        ----------
        delay
            Cycles by which a load that passes may delay the next one in order.
        patient
            Whether a store lets instructions of other units pass that would wait for its bank.
        """
        self._begin(delay)
        order: list[int] = []
        issued = [False] * (len(self.used) + 1)
        others = [unit for unit in Unit if unit is not Unit.LOAD]
        while len(order) < len(self.used):
            heads = [self.waiting[unit][0] for unit in others if self.waiting[unit]]
            starts = [(self._start(index), index) for index in heads if self._may_start(index)]
            starts += self._next_load()
            start, index = min(starts)
            if patient and self.used[index].unit is Unit.STORE:
                start, index = min(self._hindered(start, index, starts), default=(start, index))
            self._issue(index, start)
            order.append(index)
            issued[index] = True
            while issued[self.done]:
                self.done += 1
        return order

    def _may_start(self, index: int) -> bool:
        return not self.missing[index] and self.oldest[index] <= self.done

    def _start(self, index: int) -> int:
        unit = self.used[index].unit
        assert unit is not None
        start = max(self.ready[index], self.free[unit] - self.lead[unit])
        for port in self.ports[index]:
            user, end = self.busy.get(port, (unit, 0))
            if user is not unit and end > start:
                start = end
        return start

    def _hindered(
        self, start: int, store: int, starts: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Of the instructions that can start, those that need a port before a store leaves it."""
        end = start + self.spans[store].retired - self.spans[store].start
        ports = set(self.ports[store])
        return [
            (first, index)
            for first, index in starts
            if index != store and first < end and not ports.isdisjoint(self.ports[index])
        ]

    def _next_load(self) -> list[tuple[int, int]]:
        """The load that can start first, with its start; the next one in order if several can."""
        queue, free, lead = self.waiting[Unit.LOAD], self.free[Unit.LOAD], self.lead[Unit.LOAD]
        if not queue:
            return []
        found: list[tuple[int, int]] = []
        first, last, earliest = queue[0], queue[min(WINDOW, len(queue)) - 1], free - lead
        most = self._due(first) + self.delay + lead
        for index in self.loads:
            if index > last or (found and found[0][0] <= earliest):
                break
            if self.oldest[index] > self.done or (found and self.ready[index] >= found[0][0]):
                continue
            start = self._start(index)
            if found and start >= found[0][0]:
                continue
            work = self.spans[index].last - self.spans[index].first + 1
            if index == first or max(start + lead, free) + work <= most:
                found = [(start, index)]
        return found

    def _due(self, index: int) -> int:
        """When a load can start; before that is known, when it was measured to."""
        return self._start(index) if self._may_start(index) else self.spans[index].start

    def _issue(self, index: int, start: int) -> None:
        used, span = self.used[index], self.spans[index]
        unit = used.unit
        assert unit is not None
        first = max(start + self.lead[unit], self.free[unit])
        self.free[unit] = first + span.last - span.first + 1
        end = self.free[unit] + span.retired - span.last
        for user in self.users[index]:
            self.missing[user] -= 1
            self.ready[user] = max(self.ready[user], end)
            if not self.missing[user] and self.used[user].unit is Unit.LOAD:
                insort(self.loads, user)
        for port in self.ports[index]:
            self.busy[port] = unit, end
        self.waiting[unit].remove(index)
        if unit is Unit.LOAD:
            self.loads.remove(index)


def _rows_of(used: Sequence[Footprint]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The first and the last row that each instruction reads, and writes, in each memory.

    Returns
    -------
    list of (int64[2, instructions], int64[2, instructions])
        For each memory that is written. Where an instruction uses no row, the last comes first.
    """
    none = [(1 << 62, -1)] * len(used)
    rows = {memory: (none.copy(), none.copy()) for memory in Memory}
    for index, one in enumerate(used):
        for memory, low, high, _, _, writes, row in (*one.read_regions, *one.written_regions):
            first, last = rows[memory][writes][index]
            rows[memory][writes][index] = min(first, low // row), max(last, high // row)
    written = (each for each in rows.values() if any(last >= 0 for _, last in each[True]))
    return [(np.array(read).T, np.array(write).T) for read, write in written]


def _ports(used: Footprint) -> tuple[int, ...]:
    """The read ports of banks that an instruction uses, and from -1 down the write ports."""
    reads = tuple(bit for bit in range(1, used.reads.bit_length()) if used.reads >> bit & 1)
    return *reads, *(-bit for bit in range(1, used.writes.bit_length()) if used.writes >> bit & 1)
