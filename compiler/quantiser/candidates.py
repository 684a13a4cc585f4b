"""Candidate quantisations of a network, and the search for the one with the least noise.

The float network is calibrated once. Candidates share its statistics, ranges and scales of weights,
and are compared jointly, so that layers which they have in common run once.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import CompileError
from ..graph import Graph, Quantisation
from ..reach import reach
from .batches import Batches
from .budget import SLOWER, Clock
from .calibrate import (
    ActivationStatistics,
    ChosenRanges,
    calibrate,
    choose_quantisations,
)
from .correct import correct_biases
from .equalise import EqualisedPair, equalise, find_links
from .insert import Inserted, insert_quantisation
from .joint import run_jointly
from .layers import find_layers
from .macs import macs
from .measure import Noise, has_classes, last_values
from .narrow import narrow
from .options import AUTO, QuantiserOptions
from .points import Points, find_points
from .ranges import METHODS
from .separate import unlike_joins

Progress = Callable[[str], None]
"""Called with a description of each step."""

MIN_GAIN_DB = 0.05
"""Minimum gain in dB for which an extra step is kept."""

NODE_MACS = 200_000
"""Multiplications that take about as long as the overhead of one node."""


@dataclass(slots=True)
class FloatSource:
    """A float graph, with the results that its candidates share.

    Attributes
    ----------
    graph : Graph
        The float graph, with changes that keep its function.
    statistics : ActivationStatistics
        Statistics of its values, as far as they are known.
    equalised : bool
        Whether its channels are equalised.
    ranges, scales : dict
        Ranges of activations, and scales of weights, that candidates have found.
    """

    graph: Graph
    statistics: ActivationStatistics
    equalised: bool = False
    ranges: ChosenRanges = field(default_factory=dict)
    scales: dict[object, np.ndarray] = field(default_factory=dict)

    def inserted(
        self,
        points: Points,
        chosen: dict[str, Quantisation],
        corrections: dict[str, np.ndarray] | None = None,
        heads: frozenset[str] = frozenset(),
    ) -> Inserted:
        """Return the graph in QDQ form; see `insert_quantisation`."""
        return insert_quantisation(self.graph, points, chosen, corrections, self.scales, heads)


@dataclass(slots=True)
class QuantisationCandidate:
    """One way to quantise a network, and its noise.

    Attributes
    ----------
    source : FloatSource
        The float graph.
    points : Points
        The points of quantisation.
    quantisations : dict
        Quantisation of each point.
    inserted : Inserted
        The quantised graph.
    method : str
        The method that chose the ranges.
    corrections : dict
        Output of a weighted layer -> float64[channels], added to its bias.
    ends : dict
        Value after the last layers -> its signal-to-noise ratio in dB.
    end_db : float
        Their mean.
    same_class : float or None
        Share of samples that keep their class; None without classes.
    """

    source: FloatSource
    points: Points
    quantisations: dict[str, Quantisation]
    inserted: Inserted
    method: str
    corrections: dict[str, np.ndarray] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    end_db: float = -np.inf
    same_class: float | None = None


class CandidateSearch:
    """Candidates for one network.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    batches : Batches
        The calibration samples.
    options : QuantiserOptions
        Options of the quantiser.
    progress : callable
        Called with a description of each step, the best noise so far and the time left.
    clock : Clock
        The clock of a budget of seconds.

    Attributes
    ----------
    budget : WorkBudget or TimeBudget
        What is left for the search.
    batches : Batches
        The calibration samples that it uses.
    compared : Batches
        The calibration samples that compare candidates.
    cost : float
        Multiplications that comparing one candidate costs, with overhead.

    Raises
    ------
    CompileError
        If no layer with weights is left to quantise, or a layer to keep in float is unknown.
    InputError
        If a sample gives infinite values.
    """

    def __init__(
        self,
        graph: Graph,
        batches: Batches,
        options: QuantiserOptions,
        progress: Progress,
        clock: Clock = time.monotonic,
    ) -> None:
        self.options, self.budget = options, options.budget(clock)
        self._progress, self._best_db = progress, -np.inf
        cost = macs(graph)[1] + NODE_MACS * len(graph.nodes)
        points = find_points(graph, find_layers(graph, options.keep_float))
        if not any(layer.weighted for layer in points.layers):
            double = any(kind.dtype == "float64" for kind in graph.types.values())
            raise CompileError(
                f"model `{graph.name}`: expected a convolution or dense layer with constant "
                f"weights to quantise, got none{' in float32' * double}; "
                + ("export it in float32" if double else "run it as it is, without calibration")
            )
        few = self.budget.calibration_samples(cost, lambda: list(batches.first(1).run(graph)))
        self.batches = batches = batches.spread(int(max(4, min(few, batches.count))))
        self.progress(f"calibrating with {batches.count} sample{'s'[: batches.count > 1]}")
        with self.budget.doing(SLOWER * cost * batches.count):
            statistics = calibrate(graph, points, batches)
        self._apart = unlike_joins(graph, points, statistics)
        if self._apart:
            points = self.points(graph)
            statistics = calibrate(graph, points, batches, statistics)
        narrowed = narrow(graph, points, statistics)
        if narrowed is not graph:
            graph, points = narrowed, self.points(narrowed)
            statistics = calibrate(graph, points, batches, statistics)
        self.compared = batches.spread(max(4, int(self.budget.comparison_macs // cost)))
        self.cost = cost * self.compared.count
        self._correction = self.cost + cost * batches.count
        self.budget.keep(2 * SLOWER * self.cost)
        self.graph = graph
        self.sources = [FloatSource(graph, statistics)]
        if options.equalise and (links := find_links(graph, points)):
            self.progress("equalising channels")
            other = equalise(graph, links, statistics.peaks)
            known = _without(statistics, _scaled(graph, links))
            found = calibrate(other, points, batches, known)
            self.sources.append(FloatSource(other, found, equalised=True))
        self._ends = last_values(graph, points)
        self._output = graph.outputs[0].value if has_classes(graph) else None
        self._expected: dict[int, list[dict[str, np.ndarray]]] = {}

    def progress(self, text: str) -> None:
        """Tell the next step, with the best noise so far and the time left."""
        best = f", best {self._best_db:.1f} dB" if np.isfinite(self._best_db) else ""
        self._progress(f"{text}{best}{self.budget.status}")

    @property
    def corrections(self) -> int:
        """Return the number of candidates whose biases the budget allows to correct."""
        return self.budget.corrections(self._correction)

    def points(self, graph: Graph, in_float: Iterable[str] = ()) -> Points:
        """Return the points of a graph with more layers in float than the options say."""
        kept = (*self.options.keep_float, *in_float)
        return find_points(graph, find_layers(graph, kept, self._apart), self._apart)

    def plain(self) -> list[QuantisationCandidate]:
        """Return the candidates of all methods, without corrected biases."""
        chosen = self.options.method
        points = self.points(self.graph)
        return self.compare(
            [
                self.candidate(source, points, method)
                for source in self.sources
                for method in (tuple(METHODS) if chosen == AUTO else (chosen,))
            ]
        )

    def candidate(self, source: FloatSource, points: Points, method: str) -> QuantisationCandidate:
        """Return one candidate, not yet compared."""
        source.statistics = calibrate(source.graph, points, self.batches, source.statistics)
        chosen = choose_quantisations(
            source.graph, points, source.statistics, method, source.ranges
        )
        return QuantisationCandidate(
            source, points, chosen, source.inserted(points, chosen), method
        )

    def corrected(self, plain: QuantisationCandidate) -> QuantisationCandidate:
        """Return a candidate with corrected biases, not yet compared."""
        self.progress(f"correcting biases, ranges by {plain.method}")
        return self._with_biases(plain)

    def with_four_bits(
        self, found: QuantisationCandidate, heads: frozenset[str]
    ) -> QuantisationCandidate:
        """Return a candidate whose layers with these heads have weights of 4 bits.

        Its biases are corrected anew: rounding to 4 bits moves the mean of a channel.
        """
        inserted = found.source.inserted(found.points, found.quantisations, None, heads)
        plain = replace(found, inserted=inserted)
        return self._with_biases(plain, heads) if self.options.correct else plain

    def _with_biases(
        self, plain: QuantisationCandidate, heads: frozenset[str] = frozenset()
    ) -> QuantisationCandidate:
        source, points = plain.source, plain.points
        found = correct_biases(plain.inserted, points, source.statistics.means, self.batches)
        inserted = source.inserted(points, plain.quantisations, found, heads)
        return replace(plain, inserted=inserted, corrections=found)

    def compare(self, found: list[QuantisationCandidate]) -> list[QuantisationCandidate]:
        """Measure the noise of candidates.

        A float tail after the last layers, such as a softmax, would hide or exaggerate the noise.
        Candidates with more layers in float are measured after the same layers.
        """
        if not found:
            return found
        self.progress(
            f"comparing {len(found)} candidate{'s'[: len(found) > 1]} on "
            f"{self.compared.count} sample{'s'[: self.compared.count > 1]}"
        )
        graphs = [each.inserted.graph for each in found]
        batches = self.compared.fitting(self.graph, *graphs)
        shown = [{name: each.inserted.shown.get(name, name) for name in self._ends}
                 for each in found]  # fmt: skip
        keep = [
            (*names.values(), *(graph.outputs[0].value for _ in self._outputs()))
            for names, graph in zip(shown, graphs, strict=True)
        ]
        noises = [{name: Noise() for name in self._ends} for _ in found]
        same = [0 for _ in found]
        expected = self._expected_in(batches)
        with self.budget.doing(self.cost * len(found)):
            for true, got in zip(expected, run_jointly(batches, graphs, keep), strict=True):
                for place, values in enumerate(got):
                    for name, noise in noises[place].items():
                        noise.add(true[name], values[shown[place][name]])
                    for name in self._outputs():
                        classes = values[graphs[place].outputs[0].value]
                        same[place] += int(np.sum(_classes(true[name]) == _classes(classes)))
        for each, ends, count in zip(found, noises, same, strict=True):
            each.ends = {name: noise.sqnr_db for name, noise in ends.items()}
            each.end_db = float(np.mean([*each.ends.values()]))
            self._best_db = max(self._best_db, each.end_db)
            if self._output is not None:
                each.same_class = count / sum(
                    len(_classes(true[self._output])) for true in expected
                )
        return found

    def best(self, found: Sequence[QuantisationCandidate]) -> QuantisationCandidate:
        """Return the candidate with the least noise; a step must gain more than by chance.

        A correction that makes one value noisier is refused even if the mean improves, because a
        network's result may be one value among many states.
        """

        def costs(each: QuantisationCandidate) -> bool:
            return any(
                each.ends[name] < db - MIN_GAIN_DB
                for plain in found
                if not plain.corrections
                and plain.points is each.points
                and plain.source is each.source
                and plain.method == each.method
                for name, db in plain.ends.items()
            )

        return max(
            (each for each in found if not each.corrections or not costs(each)),
            key=lambda each: (
                each.end_db - MIN_GAIN_DB * (each.source.equalised + bool(each.corrections))
            ),
        )

    def loses_too_much(self, each: QuantisationCandidate) -> bool:
        """Tell whether a candidate has more noise, or other classes, than the options allow."""
        same = 1.0 if each.same_class is None else each.same_class
        return each.end_db < self.options.least_end_db or same < self.options.least_agreement

    def _outputs(self) -> tuple[str, ...]:
        return () if self._output is None else (self._output,)

    def _expected_in(self, batches: Batches) -> list[dict[str, np.ndarray]]:
        """Return the outputs of the float network, computed once for each size of batches."""
        if batches.size not in self._expected:
            keep = (*self._ends, *self._outputs())
            runs = run_jointly(batches, [self.graph], [keep])
            self._expected[batches.size] = [values for (values,) in runs]
        return self._expected[batches.size]


def _classes(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1).argmax(axis=1)


def _scaled(graph: Graph, links: Sequence[EqualisedPair]) -> set[str]:
    """Return the values that equalisation scales."""
    ends = {link.second for link in links}

    def readers(name: str) -> Iterable[str]:
        names = (value.name for user in graph.users(name) for value in user.outputs)
        return (one for one in names if one not in ends)

    return set(reach((link.first for link in links), readers))


def _without(known: ActivationStatistics, names: set[str]) -> ActivationStatistics:
    """Return the statistics of all other values."""
    kept = ({one: part[one] for one in part if one not in names} for part in known.parts)
    return ActivationStatistics(*kept)
