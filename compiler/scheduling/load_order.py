"""Loads that pass other loads, so that LOAD works while a layer waits for the one before it.

LOAD works in program order, so weights behind an activation that is not yet stored wait with it.
Instructions whose data do not conflict may be in any order. A simulation with the measured
durations issues them anew: of the next loads, it takes the first one that can start.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from ...isa.configuration import Configuration
from ...isa.footprints import Footprint, data_conflict, footprint
from ...isa.instructions import Instruction, Unit

WINDOW = 64
"""Maximum number of loads that a load may pass."""


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
"""Measures the fields of the `Span` of all instructions of a program but SYNC and HALT."""


class LoadOrder:
    """Orders in which loads pass loads that wait, all with the same results.

    Parameters
    ----------
    instructions
        In an order in which each one follows those that it depends on.
    spans
        The times of these instructions in this order.

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
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        spans: Sequence[Span],
        configuration: Configuration,
    ) -> None:
        self.spans = spans
        self.used = [footprint(one, configuration) for one in instructions]
        self.queues = {unit: list[int]() for unit in Unit}
        self.lead = dict.fromkeys(Unit, 1 << 62)
        self.oldest: list[int] = []
        for index, (used, span) in enumerate(zip(self.used, spans, strict=True)):
            assert used.unit is not None
            loads = self.queues[Unit.LOAD]
            self.oldest.append(loads[-WINDOW] if len(loads) >= WINDOW else 0)
            self.queues[used.unit].append(index)
            self.lead[used.unit] = min(self.lead[used.unit], span.first - span.start)
        self.users: list[list[int]] = [[] for _ in instructions]
        self.depends = [self._depend(index) for index in range(len(instructions))]
        self.ports = [_ports(used) for used in self.used]
        self._begin(0)

    def _begin(self, delay: int) -> None:
        self.delay, self.done = delay, 0
        self.waiting = {unit: deque(queue) for unit, queue in self.queues.items()}
        self.missing, self.ready = self.depends.copy(), [0] * len(self.used)
        self.busy: dict[int, tuple[Unit, int]] = {}
        self.free = dict.fromkeys(Unit, 0)

    def _depend(self, index: int) -> int:
        """Note the instructions that one depends on, and return their number."""
        used, found, seen = self.used[index], 0, set[Unit]()
        for other in range(index - 1, self.oldest[index] - 1, -1):
            unit = self.used[other].unit
            if unit in seen or (unit is used.unit and unit is not Unit.LOAD):
                continue
            if data_conflict(self.used[other], used):
                self.users[other].append(index)
                found += 1
                if unit is not Unit.LOAD and unit is not None:
                    seen.add(unit)
        return found

    def passing(self, delay: int) -> list[int]:
        """Issue the instruction that can start first, until none is left.

        Parameters
        ----------
        delay
            Cycles by which a load that passes may delay the next one in order.
        """
        self._begin(delay)
        order: list[int] = []
        issued = [False] * (len(self.used) + 1)
        others = [unit for unit in Unit if unit is not Unit.LOAD]
        while len(order) < len(self.used):
            heads = [self.waiting[unit][0] for unit in others if self.waiting[unit]]
            starts = [(self._start(index), index) for index in heads if self._may_start(index)]
            start, index = min([*starts, *self._next_load()])
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

    def _next_load(self) -> list[tuple[int, int]]:
        """The load that can start first, with its start; the next one in order if several can."""
        queue, free, lead = self.waiting[Unit.LOAD], self.free[Unit.LOAD], self.lead[Unit.LOAD]
        found: list[tuple[int, int]] = []
        for index in islice(queue, WINDOW):
            if not self._may_start(index):
                continue
            start, span = self._start(index), self.spans[index]
            if found and start >= found[0][0]:
                continue
            end = max(start + lead, free) + span.last - span.first + 1
            if index == queue[0] or end - lead <= self._due(queue[0]) + self.delay:
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
        for port in self.ports[index]:
            self.busy[port] = unit, end
        self.waiting[unit].remove(index)


def _ports(used: Footprint) -> tuple[int, ...]:
    """The read ports of banks that an instruction uses, and from -1 down the write ports."""
    reads = tuple(bit for bit in range(1, used.reads.bit_length()) if used.reads >> bit & 1)
    return *reads, *(-bit for bit in range(1, used.writes.bit_length()) if used.writes >> bit & 1)
