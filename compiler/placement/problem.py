"""The assignment of nodes to two sides that takes the least time one after the other.

It is a minimum cut. A node costs its time on the side where it runs; a value that the other side
reads costs its transfer, once, however many nodes read it. Starting a segment is charged to every
value that enters one, which is too much for a segment of several inputs, and nothing is charged for
values between two segments.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..graph import Graph, accelerated_nodes
from .costs import NS_PER_US, Costs
from .min_cut import FlowNetwork
from .node_cycles import Cycles
from .user_placement import ACCELERATOR, CPU

OUTSIDE = ""
"""Producer of the network's inputs and reader of its outputs: the host."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A value that may have to be transferred: its producer, its readers, its costs.

    Parameters
    ----------
    maker, readers
        Nodes by their first outputs, or `OUTSIDE`.
    enter_ns, leave_ns
        From the host to the accelerator, and back.
    """

    maker: str
    readers: frozenset[str]
    enter_ns: int
    leave_ns: int

    def cost_ns(self, accelerated: frozenset[str]) -> int:
        """Nanoseconds of the transfer if the accelerator runs these nodes."""
        if self.maker in accelerated:
            return 0 if self.readers <= accelerated else self.leave_ns
        return self.enter_ns if self.readers & accelerated else 0


@dataclass(frozen=True, slots=True)
class Problem:
    """Times of the nodes on both sides, and of transfers; their sum is minimised.

    Parameters
    ----------
    host_ns, accelerator_ns
        Time of every node on either side; None where it must not run there.
    crossings
        Of all values.
    """

    host_ns: Mapping[str, int | None]
    accelerator_ns: Mapping[str, int | None]
    crossings: tuple[Crossing, ...]

    def cost_ns(self, accelerated: frozenset[str]) -> int | None:
        """Time of an assignment; None where it is not allowed."""
        sides = {
            name: self.accelerator_ns[name] if name in accelerated else host
            for name, host in self.host_ns.items()
        }
        times = [time for time in sides.values() if time is not None]
        if len(times) < len(sides):
            return None
        return sum(times) + sum(crossing.cost_ns(accelerated) for crossing in self.crossings)

    def solve(self) -> frozenset[str]:
        """Nodes of the accelerator in the cheapest assignment; of equals, the most nodes."""
        network, source, sink = FlowNetwork(), (ACCELERATOR,), (CPU,)
        known = [*self.host_ns.values(), *self.accelerator_ns.values()]
        endless = 1 + sum(time for time in known if time is not None)
        endless += sum(crossing.enter_ns + crossing.leave_ns for crossing in self.crossings)
        for name, time in self.host_ns.items():
            network.connect(source, name, endless if time is None else time)
        for name, time in self.accelerator_ns.items():
            network.connect(name, sink, endless if time is None else time)
        network.connect(OUTSIDE, sink, endless)
        for number, crossing in enumerate(self.crossings):
            # Cut once, however many of the readers are on the other side.
            leaving, entering = (number, CPU), (number, ACCELERATOR)
            network.connect(crossing.maker, leaving, crossing.leave_ns)
            network.connect(entering, crossing.maker, crossing.enter_ns)
            for reader in crossing.readers:
                network.connect(leaving, reader, endless)
                network.connect(reader, entering, endless)
        _, side = network.cut(source, sink)
        return frozenset(name for name in self.host_ns if name in side)


def problem_of(graph: Graph, cycles: Cycles, forced: Mapping[str, str], costs: Costs) -> Problem:
    """The problem of a network."""
    host = {name: ns_of(time) for name, time in costs.host_times(graph).items()}
    there = {
        name: ns_of(costs.cycles_us(count)) if isinstance(count := cycles.get(name), int) else None
        for name in host
    }
    return Problem(
        {name: None if forced.get(name) == ACCELERATOR else time for name, time in host.items()},
        {name: None if forced.get(name) == CPU else time for name, time in there.items()},
        crossings_of(graph, costs),
    )


def crossings_of(graph: Graph, costs: Costs) -> tuple[Crossing, ...]:
    """Every value that the accelerator may produce or read."""
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
    """Whole nanoseconds."""
    return round(microseconds * NS_PER_US)
