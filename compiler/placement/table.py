"""The placement table: times on both sides, transfers, reasons, and the gain of moving a layer.

A layer's time on the accelerator comes from the caller's cycles, of the layer alone or added to a
run. For a layer on the host it is an estimate. The gain of a move assumes that all other layers
stay.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..graph import Graph, is_accelerated
from .costs import NS_PER_US, Costs
from .decide import COST, Decision, Placement
from .float_reasons import float_reasons
from .layers import PlacedLayer, layers_timeline
from .problem import Crossing, crossings_of
from .user_placement import ACCELERATOR, HOST, why_not

UNFIT = "does not fit there: "
"""The beginning of the reason of a layer that the accelerator could run with more resources."""


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A layer in the table; times in microseconds.

    Parameters
    ----------
    name, op, output, target : str
        As in `PlacedLayer`.
    accelerator_us : float or None
        Time on the accelerator; None if it cannot run there or has no estimate.
    exact : bool
        Whether a timing model computed that time.
    transfer_us : float
        Time to transfer the values that the layer produces or reads first. Only accelerator layers
        have transfers.
    gain_us : float or None
        Time saved by moving only this layer to the other side, transfers included, if the sides
        worked one after the other. Negative if the move costs time; None if the layer cannot move
        or has no estimate.
    reason : str
        Why it runs there.
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


def placement_report(
    graph: Graph,
    layers: Sequence[PlacedLayer],
    placement: Placement,
    decision: Decision,
    costs: Costs,
) -> dict[str, Any]:
    """Return the table as JSON values.

    Parameters
    ----------
    layers : sequence of PlacedLayer
        All layers of the network, in order.

    Returns
    -------
    dict
        `policy`, `forced` and `costs` as requested, `rows` as `PlacedRow`, and `total_us`:
        `accelerator`, `host`, `transfer` and their `sum`; `makespan` is the time with both sides
        at work. The makespan includes values between two segments, the sum does not.
    """
    crossings = crossings_of(graph, costs)
    table = _Table(graph, layers, placement, decision, costs)
    rows, makespan = table.rows(crossings)
    total = {
        ACCELERATOR: sum(row.accelerator_us or 0 for row in rows if row.target == ACCELERATOR),
        HOST: sum(row.host_us for row in rows if row.target != ACCELERATOR),
        "transfer": sum(row.transfer_us for row in rows),
    }
    return {
        "policy": placement.policy,
        "forced": [list(choice) for choice in placement.forced],
        "costs": asdict(costs),
        "rows": [asdict(row) for row in rows],
        "total_us": {**total, "sum": sum(total.values()), "makespan": makespan},
    }


@dataclass(frozen=True, slots=True)
class _Table:
    """The rows of layers; see `placement_report`."""

    graph: Graph
    layers: Sequence[PlacedLayer]
    placement: Placement
    decision: Decision
    costs: Costs

    def rows(self, crossings: Sequence[Crossing]) -> tuple[list[PlacedRow], float]:
        """Return a row for each layer, and the makespan in microseconds."""
        accelerated = self.decision.accelerated
        near: dict[str, list[Crossing]] = {}
        for crossing in crossings:
            for name in {crossing.maker, *crossing.readers}:
                near.setdefault(name, []).append(crossing)
        owned = _owners(self.layers, crossings, accelerated)
        host_times = self.costs.host_times(self.graph)
        times = [(self._there_us(one), self._host_us(one, host_times)) for one in self.layers]
        spent = {
            layer.output: (there or 0) if layer.accelerated else host
            for layer, (there, host) in zip(self.layers, times, strict=True)
        }
        whole, beside = layers_timeline(self.graph, self.layers, spent, self.costs)
        in_float = float_reasons(self.graph)
        rows = []
        for index, (layer, (there, host)) in enumerate(zip(self.layers, times, strict=True)):
            own, other = (there, host) if layer.accelerated else (host, there)
            gain = None
            if own is not None and other is not None:
                around = {c for name in layer.keys for c in near.get(name, ())}
                gain = own - other + _moved_us(layer, around, accelerated)
            reason = self._reason(layer, own, other, gain, layer.output in beside)
            why = (in_float[name] for name in layer.keys if name in in_float)
            reason += f", as {neighbour}" if (neighbour := next(why, "")) else ""
            exact, moved = layer.accelerated and layer.exact, owned.get(index, 0) / NS_PER_US
            known = layer.name, layer.op, layer.output, layer.target
            rows.append(PlacedRow(*known, there, exact, host, moved, gain, reason))
        return rows, whole.total_ns / NS_PER_US

    def _host_us(self, layer: PlacedLayer, host_times: Mapping[str, float]) -> float:
        return sum(
            host_times[name]
            if layer.accelerated
            else self.costs.host_us(self.graph, node, layer.kernel)
            for name, node in zip(layer.keys, layer.nodes, strict=True)
        )

    def _there_us(self, layer: PlacedLayer) -> float | None:
        """Return a layer's microseconds on the accelerator; None if unknown."""
        if layer.accelerated:
            return None if layer.cycles is None else self.costs.cycles_us(layer.cycles)
        found = [self.decision.cycles.get(name) for name in layer.keys]
        cycles = [count for count in found if isinstance(count, int)]
        return self.costs.cycles_us(sum(cycles)) if len(cycles) == len(found) else None

    def _reason(
        self,
        layer: PlacedLayer,
        own: float | None,
        other: float | None,
        gain: float | None,
        beside: bool,
    ) -> str:
        refusals = (self.decision.cycles.get(name) for name in layer.keys)
        if refusal := next((text for text in refusals if isinstance(text, str)), ""):
            return f"{UNFIT}{refusal}"
        unable = [
            why_not(node)
            for node in layer.nodes
            if not is_accelerated(node) or 0 in node.output.type.shape[1:]
        ]
        if unable:
            return f"cannot run there: {', '.join(dict.fromkeys(unable))}"
        if any(name in self.decision.forced for name in layer.keys):
            return "forced"
        if self.placement.policy != COST or own is None or other is None or gain is None:
            return f"placement `{self.placement.policy}`"
        if gain > 0 and beside:
            return "works while the other side does"
        if gain > 0:
            return "cheaper by the estimate before it was compiled"
        if own <= other:
            return f"cheaper by {-gain:,.1f} us"
        far = HOST if layer.accelerated else ACCELERATOR
        return f"the {far} is faster by {own - other:,.1f} us, but the transfer costs more"


def _owners(
    layers: Sequence[PlacedLayer], crossings: Iterable[Crossing], accelerated: frozenset[str]
) -> Mapping[int, int]:
    """Return each layer's nanoseconds for values that it produces or reads first, by index."""
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
    """Return the microseconds of transfers saved by moving a layer to the other side."""
    moved = accelerated.symmetric_difference(layer.keys)
    saved = (crossing.cost_ns(accelerated) - crossing.cost_ns(moved) for crossing in crossings)
    return sum(saved) / NS_PER_US
