"""The table of who runs what: times on both sides, transfers, reasons, and what a move would bring.

A layer's time on the accelerator follows from the cycles that the caller knows: what it takes by
itself, or adds to a run; that of a layer which the host runs is an estimate. A move is looked at
alone, all others staying.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..graph import Graph, Node, is_accelerated
from ..host import HostKernel, Recurrence
from .costs import NS_PER_US, Costs
from .decide import COST, Crossing, Decision, Placement, crossings_of
from .forced import ACCELERATOR, CPU, why_not

HOST = "host"
"""Where NumPy computes; `cpu` are kernels of the CPU target, on the same processor."""


@dataclass(frozen=True, slots=True)
class PlacedLayer:
    """Nodes that run together.

    Parameters
    ----------
    name, op
        What reports call it.
    target
        `accelerator`, `cpu` for a kernel of the CPU target, or `host` for NumPy.
    nodes
        In order; one in NumPy.
    cycles, exact
        On the accelerator, and whether a timing model told them; None where nobody knows.
    kernel
        That of the CPU target.
    """

    name: str
    op: str
    target: str
    nodes: tuple[Node, ...]
    cycles: int | None = None
    exact: bool = False
    kernel: HostKernel | Recurrence | None = None

    @property
    def accelerated(self) -> bool:
        """Whether the accelerator runs it."""
        return self.target == ACCELERATOR

    @property
    def output(self) -> str:
        """The value that it gives."""
        return self.nodes[-1].outputs[0].name

    @property
    def keys(self) -> tuple[str, ...]:
        """First outputs of its nodes."""
        return tuple(node.outputs[0].name for node in self.nodes)


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A layer in the table; times in microseconds.

    Parameters
    ----------
    name, op, output, target
        As in `PlacedLayer`.
    accelerator_us
        None where it cannot run there, or nobody has estimated it.
    exact
        Whether that is the timing model's.
    transfer_us
        For values between host and accelerator: those that it gives, and those that it is the
        first to read. Accelerator layers alone have such.
    gain_us
        What moving this layer alone to the other side would save, transfers included; negative
        where it would cost time, None where it cannot be moved or nobody has estimated it.
    reason
        Why it is there.
    """

    name: str
    op: str
    output: str
    target: str
    accelerator_us: float | None
    exact: bool
    host_us: float
    transfer_us: float
    gain_us: float | None
    reason: str


def placed_layers(
    graph: Graph,
    steps: Sequence[str | int],
    segments: Sequence[Sequence[PlacedLayer]],
    kernels: Iterable[HostKernel | Recurrence],
) -> list[PlacedLayer]:
    """All layers of a network, each where its result is there.

    Parameters
    ----------
    steps
        Of the module.
    segments
        Layers of each segment.
    kernels
        Of the host.
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
            layers.append(PlacedLayer(name, op, CPU, kernel.nodes, kernel=kernel))
        elif step not in inside and (node := graph.producer(step)) is not None:
            layers.append(PlacedLayer(node.name, node.op, HOST, (node,)))
    return layers


def placement_report(
    graph: Graph,
    layers: Sequence[PlacedLayer],
    placement: Placement,
    decision: Decision,
    costs: Costs,
) -> dict[str, Any]:
    """The table as JSON values.

    Parameters
    ----------
    layers
        All of the network, in order.

    Returns
    -------
    dict
        `policy`, `forced` and `costs` as asked for, `rows` as `PlacedRow`, and `total_us`:
        `accelerator`, `host`, `transfer` and the `sum` of all, one after the other.
    """
    rows = placed_rows(graph, layers, placement, decision, costs)
    total = {
        ACCELERATOR: sum(row.accelerator_us or 0 for row in rows if row.target == ACCELERATOR),
        HOST: sum(row.host_us for row in rows if row.target != ACCELERATOR),
        "transfer": sum(row.transfer_us for row in rows),
    }
    return {
        "policy": placement.policy,
        "forced": [list(wish) for wish in placement.forced],
        "costs": asdict(costs),
        "rows": [asdict(row) for row in rows],
        "total_us": {**total, "sum": sum(total.values())},
    }


def placed_rows(
    graph: Graph,
    layers: Sequence[PlacedLayer],
    placement: Placement,
    decision: Decision,
    costs: Costs,
) -> list[PlacedRow]:
    """A row for each layer; see `placement_report`."""
    crossings = crossings_of(graph, costs)
    near: dict[str, list[Crossing]] = {}
    for crossing in crossings:
        for name in {crossing.maker, *crossing.readers}:
            near.setdefault(name, []).append(crossing)
    owned = _owners(layers, crossings, decision.accelerated)
    host_times = costs.host_times(graph)
    rows = []
    for index, layer in enumerate(layers):
        there = _accelerator_us(layer, decision, costs)
        host = sum(
            host_times[name] if layer.accelerated else costs.host_us(graph, node, layer.kernel)
            for name, node in zip(layer.keys, layer.nodes, strict=True)
        )
        own, other = (there, host) if layer.accelerated else (host, there)
        gain = None
        if own is not None and other is not None:
            beside = {c for name in layer.keys for c in near.get(name, ())}
            gain = own - other + _moved_us(layer, beside, decision.accelerated)
        reason = _reason(layer, own, other, gain, placement, decision)
        rows.append(
            PlacedRow(
                layer.name,
                layer.op,
                layer.output,
                layer.target,
                there,
                layer.accelerated and layer.exact,
                host,
                owned.get(index, 0) / NS_PER_US,
                gain,
                reason,
            )
        )
    return rows


def _accelerator_us(layer: PlacedLayer, decision: Decision, costs: Costs) -> float | None:
    if layer.accelerated:
        return None if layer.cycles is None else costs.cycles_us(layer.cycles)
    found = [decision.cycles.get(name) for name in layer.keys]
    cycles = [count for count in found if isinstance(count, int)]
    return costs.cycles_us(sum(cycles)) if len(cycles) == len(found) else None


def _owners(
    layers: Sequence[PlacedLayer], crossings: Iterable[Crossing], accelerated: frozenset[str]
) -> Mapping[int, int]:
    """Nanoseconds of transfers by layer: of what it gives, or is the first to read."""
    places = {name: index for index, layer in enumerate(layers) for name in layer.keys}
    owned: dict[int, int] = {}
    for crossing in crossings:
        if cost := crossing.cost_ns(accelerated):
            readers = (places[name] for name in crossing.readers & accelerated)
            given = crossing.maker in accelerated
            index = places[crossing.maker] if given else min(readers)
            owned[index] = owned.get(index, 0) + cost
    return owned


def _moved_us(
    layer: PlacedLayer, crossings: Iterable[Crossing], accelerated: frozenset[str]
) -> float:
    """Microseconds of transfers that moving a layer to the other side would save."""
    moved = accelerated.symmetric_difference(layer.keys)
    saved = (crossing.cost_ns(accelerated) - crossing.cost_ns(moved) for crossing in crossings)
    return sum(saved) / NS_PER_US


def _reason(
    layer: PlacedLayer,
    own: float | None,
    other: float | None,
    gain: float | None,
    placement: Placement,
    decision: Decision,
) -> str:
    unable = [why_not(node) for node in layer.nodes if not is_accelerated(node)]
    if unable:
        return f"cannot run there: {', '.join(dict.fromkeys(unable))}"
    refusals = (decision.cycles.get(name) for name in layer.keys)
    if refusal := next((text for text in refusals if isinstance(text, str)), ""):
        return f"does not fit there: {refusal}"
    if any(name in decision.forced for name in layer.keys):
        return "forced"
    if placement.policy != COST or own is None or other is None or gain is None:
        return f"placement `{placement.policy}`"
    if gain > 0:
        return "cheaper by the estimate before it was compiled"
    if own <= other:
        return f"cheaper by {-gain:,.1f} us"
    far = CPU if layer.accelerated else ACCELERATOR
    return f"the {far} is faster by {own - other:,.1f} us, but the transfer costs more"
