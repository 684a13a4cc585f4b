"""The assignment of nodes that takes the least time if the sides work one after the other.

It is a minimum cut. A node costs its time on the side where it runs. A value that the other side
reads costs one transfer, for any number of readers. The start of a segment is charged to every
value that enters it, which overestimates segments with several inputs. Values between two segments
cost nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..graph import Graph, accelerated_nodes
from .costs import NS_PER_US, Costs
from .min_cut import FlowNetwork
from .node_cycles import Cycles
from .user_placement import ACCELERATOR, HOST

OUTSIDE = ""
"""The host, as producer of the network's inputs and reader of its outputs."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A value that may need a transfer: its producer, its readers and its costs.

    Parameters
    ----------
    maker : str
        The producer, by its first output, or `OUTSIDE`.
    readers : frozenset of str
        The readers, by their first outputs, or `OUTSIDE`.
    enter_ns, leave_ns : int
        Cost from the host to the accelerator, and back.
    """

    maker: str
    readers: frozenset[str]
    enter_ns: int
    leave_ns: int

    def cost_ns(self, accelerated: frozenset[str]) -> int:
        """Return the nanoseconds of the transfer if the accelerator runs these nodes."""
        if self.maker in accelerated:
            return 0 if self.readers <= accelerated else self.leave_ns
        return self.enter_ns if self.readers & accelerated else 0


@dataclass(frozen=True, slots=True)
class Problem:
    """Times of nodes on both sides and of transfers, whose sum is minimised.

    Parameters
    ----------
    host_ns, accelerator_ns : mapping
        Time of every node on each side; None if it must not run there.
    crossings : tuple of Crossing
        Transfers of all values.
    """

    host_ns: Mapping[str, int | None]
    accelerator_ns: Mapping[str, int | None]
    crossings: tuple[Crossing, ...]

    def cost_ns(self, accelerated: frozenset[str]) -> int | None:
        """Return the time of an assignment; None if it is not allowed."""
        sides = {
            name: self.accelerator_ns[name] if name in accelerated else host
            for name, host in self.host_ns.items()
        }
        times = [time for time in sides.values() if time is not None]
        if len(times) < len(sides):
            return None
        return sum(times) + sum(crossing.cost_ns(accelerated) for crossing in self.crossings)

    def solve(self) -> frozenset[str]:
        """Return the accelerator's nodes in the cheapest assignment; in a tie, the most nodes."""
        network, source, sink = FlowNetwork(), (ACCELERATOR,), (HOST,)
        known = [*self.host_ns.values(), *self.accelerator_ns.values()]
        endless = 1 + sum(time for time in known if time is not None)
        endless += sum(crossing.enter_ns + crossing.leave_ns for crossing in self.crossings)
        for name, time in self.host_ns.items():
            network.connect(source, name, endless if time is None else time)
        for name, time in self.accelerator_ns.items():
            network.connect(name, sink, endless if time is None else time)
        network.connect(OUTSIDE, sink, endless)
        for number, crossing in enumerate(self.crossings):
            # Cut once, for any number of readers on the other side.
            leaving, entering = (number, HOST), (number, ACCELERATOR)
            network.connect(crossing.maker, leaving, crossing.leave_ns)
            network.connect(entering, crossing.maker, crossing.enter_ns)
            for reader in crossing.readers:
                network.connect(leaving, reader, endless)
                network.connect(reader, entering, endless)
        _, side = network.cut(source, sink)
        return frozenset(name for name in self.host_ns if name in side)


def problem_of(graph: Graph, cycles: Cycles, forced: Mapping[str, str], costs: Costs) -> Problem:
    """Return the problem of a network."""
    host = {name: ns_of(time) for name, time in costs.host_times(graph).items()}
    there = {
        name: ns_of(costs.cycles_us(count)) if isinstance(count := cycles.get(name), int) else None
        for name in host
    }
    return Problem(
        {name: None if forced.get(name) == ACCELERATOR else time for name, time in host.items()},
        {name: None if forced.get(name) == HOST else time for name, time in there.items()},
        crossings_of(graph, costs),
    )


def crossings_of(graph: Graph, costs: Costs) -> tuple[Crossing, ...]:
    """Return every value that the accelerator may produce or read."""
    shown = {output.value for output in graph.outputs}
    able = {node.output.name for node in accelerated_nodes(graph)}
    found = []
    for name in graph.types:
        maker = graph.producer(name)
        giver = maker.outputs[0].name if maker is not None else OUTSIDE
        readers = {node.outputs[0].name for node in graph.users(name)}
        if graph.is_constant(name) or able.isdisjoint({giver, *readers}):
            continue
        leave = ns_of(costs.transfer_us(graph, name))
        enter = leave + ns_of(costs.link.start_us)
        outside = {OUTSIDE} if name in shown else set()
        found.append(Crossing(giver, frozenset(readers | outside), enter, leave))
    return tuple(found)


def ns_of(microseconds: float) -> int:
    """Round to whole nanoseconds."""
    return round(microseconds * NS_PER_US)
