"""Clamps on activations outside which their reader is constant, so that int8 rounds more finely.

A sum with Relu is zero for every operand below minus the largest value of the other operand. An
activation function such as HardSwish is flat at its ends. A clamp there changes no result on the
calibration samples, and after a layer it costs no cycles.
"""

import math
from collections.abc import Iterable

import numpy as np

from ..graph import Builder, Graph, Node, verify
from ..graph import operators as ops
from ..passes.clean_activations import MAX_FLOAT32
from ..passes.patterns import clamp_of, clamped
from ..rewriting import first_match, op
from .calibrate import ActivationStatistics
from .equalise import BENT
from .float_layer import FloatLayer, maker, origin
from .histogram import Histogram
from .points import Points
from .ranges import LEVELS, Range
from .tables import GRID, apply_table

MIN_KEPT = 7 / 8
"""Share of the operand's range of a function of two slopes from which on it is not clamped."""

FLAT = 1 / 8
"""Share of an output step by which a flat function may vary."""

MAX_BIAS = 1 / 256
"""Maximum change of the samples' mean by a clamp, in output steps."""


def narrow(graph: Graph, points: Points, statistics: ActivationStatistics) -> Graph:
    """Return a graph with clamps where readers are flat; the same graph if there are none.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    points : Points
        Its points of quantisation.
    statistics : ActivationStatistics
        Statistics of these points.
    """
    makers = {layer.output for layer in points.layers if layer.kind != "table"}
    limits: dict[str, Range] = {}
    for layer in points.layers:
        bent = first_match(BENT, graph, layer.output) is not None
        for name, (low, high) in _limits(graph, layer, statistics):
            private = all(user.outputs[0].name in layer.inside for user in graph.users(name))
            if name not in makers or not private or graph.is_output(name):
                continue
            seen = statistics.histograms[name]
            kept = min(high, seen.high) - max(low, seen.low)
            if bent and kept > MIN_KEPT * (seen.high - seen.low):
                continue  # a clamp would keep its channels from being equalised
            if low > seen.low or high < seen.high:
                limits[name] = max(low, -MAX_FLOAT32), min(high, MAX_FLOAT32)
    return _clamped(graph, limits) if limits else graph


def _limits(
    graph: Graph, layer: FloatLayer, statistics: ActivationStatistics
) -> Iterable[tuple[str, Range]]:
    """Yield a layer's operands, each with the range outside which its value has no effect."""
    if layer.kind == "table":
        histogram = statistics.histograms.get(layer.inputs[0])
        if histogram is not None and histogram.total:
            yield layer.inputs[0], _unbiased_ends(graph, layer, histogram)
    node = maker(graph, layer.head)
    if layer.kind != "add" or node.attributes != ops.Binary("Add"):
        return
    lowest, highest = _clamp_behind(graph, layer)
    for name, other in (layer.inputs, layer.inputs[::-1]):
        known = statistics.histograms.get(other) or statistics.histograms[origin(graph, other)]
        yield name, (lowest - max(known.high, 0.0), highest - min(known.low, 0.0))


BEHIND_HEAD = clamped(op(ops.Binary))


def _clamp_behind(graph: Graph, layer: FloatLayer) -> Range:
    """Return the limits that a layer's Relu and Clip impose."""
    match = first_match(BEHIND_HEAD, graph, layer.output)
    assert match is not None, "only clamps stand behind a layer's head"
    clamp = clamp_of(match["clamps"])
    return clamp.low, clamp.high


def _unbiased_ends(graph: Graph, layer: FloatLayer, histogram: Histogram) -> Range:
    """Return the flat ends at which a clamp hardly changes the mean of the samples.

    A square is flat near zero; if most values lie there, a clamp shifts the mean of all of them.
    """
    low, high = flat_ends(graph, layer, histogram.low, histogram.high)
    centres, counts = histogram.centres()
    before = apply_table(graph, layer, centres.astype(np.float32)).astype(np.float64)
    most = MAX_BIAS * (before.max() - before.min()) / (LEVELS - 1) * histogram.total

    def moves(clamped: np.ndarray) -> bool:
        after = apply_table(graph, layer, clamped.astype(np.float32))
        return abs(float((after - before) @ counts)) > most

    return (
        -math.inf if moves(np.maximum(centres, low)) else low,
        math.inf if moves(np.minimum(centres, high)) else high,
    )


def flat_ends(graph: Graph, layer: FloatLayer, low: float, high: float) -> Range:
    """Return the range between the flat ends of a table's function.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    layer : FloatLayer
        A layer of kind `table`.
    low, high : float
        The range of its input.
    """
    x = np.linspace(low, high, GRID, dtype=np.float32)
    y = apply_table(graph, layer, x).astype(np.float64)
    step = float(y.max() - y.min()) / (LEVELS - 1)
    first = _flat(y, step)
    last = GRID - 1 - _flat(y[::-1], step)
    if first >= last:
        return low, high
    return float(x[first]), float(x[last])


def _flat(y: np.ndarray, step: float) -> int:
    """Return the last index up to which a function varies by at most `FLAT` of a step."""
    spread = np.maximum.accumulate(y) - np.minimum.accumulate(y)
    return int(np.flatnonzero(spread <= FLAT * step)[-1])


def _clamped(graph: Graph, limits: dict[str, Range]) -> Graph:
    """Return the graph with a Clip after each of these values."""
    builder = Builder.from_graph(graph)
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        inputs = tuple(renamed.get(name, name) for name in node.inputs)
        builder.append(Node(node.name, node.attributes, inputs, node.outputs))
        for name in (value.name for value in node.outputs if value.name in limits):
            clip = ops.Unary("Clip", limits[name])
            renamed[name] = builder.emit(clip, [name], node.name, f"{name}.narrowed")
    return verify(builder.graph(graph.outputs), "narrow")
