"""Calibration: statistics of the float graph's activations, from which ranges are chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import Graph, Quantisation
from ..passes.recognise_states import GATE
from ..rewriting import first_match
from .batches import Batches
from .equalise import BENT
from .float_layer import FloatLayer
from .histogram import Histogram, merge
from .joint import run_jointly
from .points import Points
from .ranges import Function, Range, centred_quantisation, choose_range, quantisation_of_range
from .tables import sampled_table


@dataclass(frozen=True, slots=True)
class ActivationStatistics:
    """Statistics of a float graph's activations.

    Attributes
    ----------
    histograms : mapping
        Histogram of every value that may be quantised.
    peaks : mapping
        Output of a convolution -> float64[channels], the largest magnitude in each channel.
    means : mapping
        Value before a weighted layer's activation -> float64[channels], its mean.
    """

    histograms: Mapping[str, Histogram]
    peaks: Mapping[str, np.ndarray]
    means: Mapping[str, np.ndarray]

    @property
    def parts(self) -> tuple[Mapping[str, Any], ...]:
        return self.histograms, self.peaks, self.means


NOTHING_KNOWN = ActivationStatistics({}, {}, {})


def calibrate(
    graph: Graph, points: Points, batches: Batches, known: ActivationStatistics = NOTHING_KNOWN
) -> ActivationStatistics:
    """Collect statistics, batch by batch; no activation is kept longer than its batch.

    The network runs only as far as statistics are missing, and not at all if all are known.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    points : Points
        Its points of quantisation.
    batches : Batches
        The calibration samples.
    known : ActivationStatistics
        Statistics of the same values, such as those of other points; they are in the result too.

    Raises
    ------
    InputError
        If a sample gives infinite values.
    """
    weighted = [
        layer for layer in points.layers if layer.weighted and layer.linear not in known.means
    ]
    images = [
        layer.output
        for layer in points.layers
        if layer.kind == "conv" and layer.output not in known.peaks
    ]
    histograms = {name: Histogram(name) for name in points.values if name not in known.histograms}
    peaks = {name: np.zeros(graph.types[name].shape[1]) for name in images}
    sums = {layer.linear: ChannelMean() for layer in weighted}
    keep = tuple(dict.fromkeys([*histograms, *peaks, *sums]))
    for (values,) in run_jointly(batches, [graph], [keep]) if keep else ():
        for name, histogram in histograms.items():
            histogram.add(values[name])
        for name, peak in peaks.items():
            np.maximum(peak, np.abs(values[name]).max(axis=(0, 2, 3)), out=peak)
        for layer in weighted:
            sums[layer.linear].add(channels_last(layer, values[layer.linear]))
    means = {name: mean.value() for name, mean in sums.items()}
    parts = zip(known.parts, (histograms, peaks, means), strict=True)
    return ActivationStatistics(*({**old, **new} for old, new in parts))


STATE_ROOM = 2.0
"""Range of a state beside that of the samples: states add up over longer sequences. With 2 or more,
an increment's step is below the state's coarse one, so that its multiplier has 16 bits."""

ChosenRanges = dict[tuple[tuple[str, ...], str], Range]
"""Group and method -> range."""


def choose_quantisations(
    graph: Graph,
    points: Points,
    statistics: ActivationStatistics,
    method: str,
    ranges: ChosenRanges,
) -> dict[str, Quantisation]:
    """Return the quantisation of every point; points of a group share one.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    points : Points
        Its points of quantisation.
    statistics : ActivationStatistics
        Their statistics.
    method : str
        A key of `ranges.METHODS`.
    ranges : dict
        Ranges that an earlier call chose from the same statistics; new ones are added.

    Raises
    ------
    CompileError
        If the method is unknown.
    """
    chosen: dict[str, Quantisation] = {}
    tables = {layer.inputs[0]: layer for layer in points.layers if layer.kind == "table"}
    for group in points.groups:
        if (group, method) not in ranges:
            histograms = [statistics.histograms[name] for name in group]
            histogram = histograms[0] if len(group) == 1 else merge(group[0], histograms)
            function = _function_behind(graph, tables, group, histogram)
            ranges[group, method] = choose_range(histogram, method, function)
        if not points.gates.isdisjoint(group):
            quantisation = GATE
        elif not points.states.isdisjoint(group):
            known = [statistics.histograms[name] for name in group]
            reach = STATE_ROOM * max(max(-one.low, one.high) for one in known)
            quantisation = centred_quantisation(-reach, reach)
        elif not points.centred.isdisjoint(group):
            quantisation = centred_quantisation(*ranges[group, method])
        else:
            quantisation = quantisation_of_range(*ranges[group, method])
        chosen.update(dict.fromkeys(group, quantisation))
    return chosen


def _function_behind(
    graph: Graph, tables: Mapping[str, FloatLayer], group: tuple[str, ...], histogram: Histogram
) -> Function | None:
    """Return the elementwise function that is a point's only reader.

    None for functions with two slopes: channels that use only the flatter slope matter as much.
    """
    (name, *others), table = group, tables.get(group[0])
    user = graph.only_user(name)
    if others or table is None or user is None or user.outputs[0].name not in table.inside:
        return None
    if first_match(BENT, graph, table.output) is not None:
        return None
    return sampled_table(graph, table, min(histogram.low, 0.0), max(histogram.high, 0.0))


class ChannelMean:
    """Running mean over all but the last axis."""

    def __init__(self) -> None:
        self._sum: np.ndarray | float = 0.0
        self.count = 0

    def add(self, values: np.ndarray) -> None:
        """Count float[..., channels]."""
        rows = values.reshape(-1, values.shape[-1])
        self._sum = self._sum + rows.sum(axis=0, dtype=np.float64)
        self.count += len(rows)

    def value(self) -> np.ndarray:
        """Return float64[channels]."""
        return np.asarray(self._sum) / max(self.count, 1)


def channels_last(layer: FloatLayer, values: np.ndarray) -> np.ndarray:
    """Return a weighted layer's values with the output channels on the last axis."""
    return np.moveaxis(values, 1, -1) if layer.kind == "conv" else values
