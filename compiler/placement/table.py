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
    rows, makespan = placed_rows(graph, layers, placement, decision, costs)
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


def placed_rows(
    graph: Graph,
    layers: Sequence[PlacedLayer],
    placement: Placement,
    decision: Decision,
    costs: Costs,
) -> tuple[list[PlacedRow], float]:
    """Return a row for each layer, and the makespan in microseconds; see `placement_report`."""
    crossings = crossings_of(graph, costs)
    near: dict[str, list[Crossing]] = {}
    for crossing in crossings:
        for name in {crossing.maker, *crossing.readers}:
            near.setdefault(name, []).append(crossing)
    owned = _owners(layers, crossings, decision.accelerated)
    host_times = costs.host_times(graph)
    times = [_times(graph, layer, host_times, decision, costs) for layer in layers]
    spent = {
        layer.output: (there or 0) if layer.accelerated else host
        for layer, (there, host) in zip(layers, times, strict=True)
    }
    whole, beside = layers_timeline(graph, layers, spent, costs)
    in_float = float_reasons(graph)
    rows = []
    for index, (layer, (there, host)) in enumerate(zip(layers, times, strict=True)):
        own, other = (there, host) if layer.accelerated else (host, there)
        gain = None
        if own is not None and other is not None:
            around = {c for name in layer.keys for c in near.get(name, ())}
            gain = own - other + _moved_us(layer, around, decision.accelerated)
        reason = _reason(layer, own, other, gain, placement, decision, layer.output in beside)
        why = (in_float[name] for name in layer.keys if name in in_float)
        reason += f", as {neighbour}" if (neighbour := next(why, "")) else ""
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
    return rows, whole.total_ns / NS_PER_US


def _times(
    graph: Graph,
    layer: PlacedLayer,
    host_times: Mapping[str, float],
    decision: Decision,
    costs: Costs,
) -> tuple[float | None, float]:
    """Return a layer's microseconds on the accelerator, None if unknown, and on the host."""
    host = sum(
        host_times[name] if layer.accelerated else costs.host_us(graph, node, layer.kernel)
        for name, node in zip(layer.keys, layer.nodes, strict=True)
    )
    return _accelerator_us(layer, decision, costs), host


def _accelerator_us(layer: PlacedLayer, decision: Decision, costs: Costs) -> float | None:
    if layer.accelerated:
        return None if layer.cycles is None else costs.cycles_us(layer.cycles)
    found = [decision.cycles.get(name) for name in layer.keys]
    cycles = [count for count in found if isinstance(count, int)]
    return costs.cycles_us(sum(cycles)) if len(cycles) == len(found) else None


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


def _reason(
    layer: PlacedLayer,
    own: float | None,
    other: float | None,
    gain: float | None,
    placement: Placement,
    decision: Decision,
    beside: bool,
) -> str:
    refusals = (decision.cycles.get(name) for name in layer.keys)
    if refusal := next((text for text in refusals if isinstance(text, str)), ""):
        return f"{UNFIT}{refusal}"
    unable = [
        why_not(node)
        for node in layer.nodes
        if not is_accelerated(node) or 0 in node.output.type.shape[1:]
    ]
    if unable:
        return f"cannot run there: {', '.join(dict.fromkeys(unable))}"
    if any(name in decision.forced for name in layer.keys):
        return "forced"
    if placement.policy != COST or own is None or other is None or gain is None:
        return f"placement `{placement.policy}`"
    if gain > 0 and beside:
        return "works while the other side does"
    if gain > 0:
        return "cheaper by the estimate before it was compiled"
    if own <= other:
        return f"cheaper by {-gain:,.1f} us"
    far = HOST if layer.accelerated else ACCELERATOR
    return f"the {far} is faster by {own - other:,.1f} us, but the transfer costs more"
