"""A program's cycles if the arbiter grants reads as it did on another machine.

Each time of a program is a maximum of earlier times plus delays, so a machine on which no delay is
longer ends no later. The arbiter between FETCH and LOAD is the exception: a request that comes some
cycles earlier may be granted before a more urgent one, which then waits for a whole burst. With its
decisions given, the rule holds to the cycle.
"""

from typing_extensions import override

from ...isa.configuration import Configuration
from ...sim.timing import Timing
from ...sim.timing.beats import FETCH, beats
from ...sim.timing.definition import Model
from ...sim.timing.transfers import Burst


class _OrderedModel(Model):
    def __init__(self, timing: Timing, machine: Configuration) -> None:
        super().__init__(timing.program, machine, timing.memory)
        self.order = read_order(timing)

    @override
    def _fetch_is_first(self, burst: Burst) -> bool:
        granted = len(self.reads.ends)
        return granted < len(self.order) and self.order[granted]


def read_order(timing: Timing) -> list[bool]:
    """Return for each burst of the read channel, in order, whether FETCH requested it."""
    reads, _ = beats(timing)
    owners = dict(zip(reads.burst.tolist(), reads.instruction.tolist(), strict=True))
    return [owner == FETCH for _, owner in sorted(owners.items())]


def cycles_in_order_of(timing: Timing, machine: Configuration) -> int:
    """Return the cycles on a machine whose arbiter decides as it did in `timing`.

    Both machines cut transfers into the same bursts, and read and write over separate channels.
    """
    assert timing.memory.bus is None
    assert machine.burst_bytes == timing.configuration.burst_bytes
    return _OrderedModel(timing, machine).run()[0]
