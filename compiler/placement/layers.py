"""Layers of a placed network, and their timeline with both sides at work."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ..graph import Graph, Node
from ..host import Finish, HostStep, Start
from ..host.order import HostEvent, nodes_of, order_events
from .costs import Costs
from .problem import ns_of
from .timeline import SegmentValues, Timeline, segment_values, timeline
from .user_placement import ACCELERATOR, HOST

NUMPY = "numpy"
"""Target of layers that NumPy computes; `host` is for kernels of the CPU target."""


@dataclass(frozen=True, slots=True)
class PlacedLayer:
    """Nodes that run together.

    Parameters
    ----------
    name, op : str
        Its name and operator in reports.
    target : str
        `accelerator`, `host` for a kernel of the CPU target, or `numpy`, on the host too.
    nodes : tuple of Node
        Its nodes in order; only one in NumPy.
    cycles : int or None
        Cycles on the accelerator; None if unknown.
    exact : bool
        Whether the cycles come from a timing model.
    kernel : HostStep or None
        Its kernel of the CPU target.
    """

    name: str
    op: str
    target: str
    nodes: tuple[Node, ...]
    cycles: int | None = None
    exact: bool = False
    kernel: HostStep | None = None

    @property
    def accelerated(self) -> bool:
        """Whether the accelerator runs it."""
        return self.target == ACCELERATOR

    @property
    def output(self) -> str:
        return self.nodes[-1].outputs[0].name

    @property
    def keys(self) -> tuple[str, ...]:
        """First outputs of its nodes."""
        return tuple(node.outputs[0].name for node in self.nodes)


def placed_layers(
    graph: Graph,
    steps: Sequence[str | int],
    segments: Sequence[Sequence[PlacedLayer]],
    kernels: Iterable[HostStep],
) -> list[PlacedLayer]:
    """List all layers of a network in the order in which their results are complete.

    Parameters
    ----------
    steps : sequence
        The module's steps.
    segments : sequence
        Layers of each segment.
    kernels : iterable
        The host's kernels.
    """
    ending = {kernel.output: kernel for kernel in kernels}
    inside = {n.outputs[0].name for kernel in ending.values() for n in kernel.nodes}
    layers: list[PlacedLayer] = []
    for step in steps:
        if isinstance(step, int):
            layers += segments[step]
        elif kernel := ending.get(step):
            name = " + ".join(dict.fromkeys(node.name for node in kernel.nodes))
            op = "+".join(node.op for node in kernel.nodes)
            layers.append(PlacedLayer(name, op, HOST, kernel.nodes, kernel=kernel))
        elif step not in inside and (node := graph.producer(step)) is not None:
            layers.append(PlacedLayer(node.name, node.op, NUMPY, (node,)))
    return layers


def layers_timeline(
    graph: Graph, layers: Sequence[PlacedLayer], times_us: Mapping[str, float], costs: Costs
) -> tuple[Timeline, frozenset[str]]:
    """Return the timeline, and the outputs of layers that run while the other side works.

    Parameters
    ----------
    layers : sequence of PlacedLayer
        All layers of a network in order; those between two host layers form one segment.
    times_us : mapping
        Microseconds of each layer on its side, by its output.
    """
    steps: list[str | int] = []
    ends: list[SegmentValues] = []
    segments: list[list[PlacedLayer]] = []
    for accelerated, group in groupby(layers, lambda layer: layer.accelerated):
        found = list(group)
        if not accelerated:
            steps += [layer.output for layer in found]
            continue
        steps.append(len(ends))
        ends.append(segment_values(graph, [node for layer in found for node in layer.nodes]))
        segments.append(found)
    kernels = [layer.kernel for layer in layers if layer.kernel is not None]
    events = order_events(graph, steps, ends, kernels)

    def host_ns(event: HostEvent) -> int:
        return ns_of(times_us[nodes_of(event)[-1].outputs[0].name])

    beside: set[str] = set()
    running: list[PlacedLayer] = []
    for event in events:
        if isinstance(event, Start):
            running = segments[event.segment]
        elif isinstance(event, Finish):
            running = []
        elif running and host_ns(event):
            beside.add(nodes_of(event)[-1].outputs[0].name)
            beside.update(layer.output for layer in running)
    there = [sum(ns_of(times_us[layer.output]) for layer in found) for found in segments]
    moves = {v.name: ns_of(costs.transfer_us(graph, v.name)) for e in ends for v in e.values}
    start_ns = ns_of(costs.link.start_us)
    whole = timeline(events, ends, host_ns, there, moves.__getitem__, start_ns)
    return whole, frozenset(beside)
