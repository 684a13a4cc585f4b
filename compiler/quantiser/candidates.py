"""Ways to quantise one network, and the search for the one of least noise."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import CompileError
from ..graph import Graph, Quantisation
from .batches import Batches
from .calibrate import ActivationStatistics, calibrate, choose_quantisations
from .correct import correct_biases
from .equalise import equalise, find_links
from .insert import Inserted, insert_quantisation
from .layers import find_layers
from .measure import end_noise
from .narrow import narrow
from .options import AUTO, QuantiserOptions
from .points import Points, find_points
from .ranges import METHODS
from .separate import unlike_joins

Progress = Callable[[str], None]
"""Called with what is being done."""

MIN_GAIN_DB = 0.05
"""Least gain for which an extra step is kept."""


@dataclass(slots=True)
class QuantisationCandidate:
    """One way to quantise a network, and its noise.

    Attributes
    ----------
    source : Graph
        Float, with the changes that compute the same.
    points, statistics, quantisations
        Where and how it is quantised.
    inserted : Inserted
        The result.
    method : str
        How ranges were chosen.
    equalised : bool
        Whether the channels of `source` are.
    corrections : dict
        FloatLayer's output -> float64[channels] in its bias.
    end_db : float
        Ratio of signal to noise behind the last layers.
    """

    source: Graph
    points: Points
    statistics: ActivationStatistics
    quantisations: dict[str, Quantisation]
    inserted: Inserted
    method: str
    equalised: bool = False
    corrections: dict[str, np.ndarray] = field(default_factory=dict)
    end_db: float = -np.inf


def best_candidate(
    graph: Graph,
    keep_float: tuple[str, ...],
    batches: Batches,
    options: QuantiserOptions,
    progress: Progress,
) -> QuantisationCandidate:
    """Try all ways that the options allow, and return the one with the least noise.

    Parameters
    ----------
    graph : Graph
        Float, prepared.
    keep_float : tuple of str
        Layers, nodes or values that stay in float.
    batches : Batches
        The calibration samples.
    options : QuantiserOptions
        What to try.
    progress : callable
        Called with what is being done.

    Raises
    ------
    CompileError
        If no layer with weights is left to quantise, or a layer to keep in float is unknown.
    """
    points = find_points(graph, find_layers(graph, keep_float))
    if not any(layer.weighted for layer in points.layers):
        raise CompileError(
            f"model `{graph.name}`: expected a convolution or dense layer with constant weights to "
            "quantise, got none; run it in float, without calibration"
        )
    progress("calibrating")
    statistics = calibrate(graph, points, batches)
    apart = unlike_joins(graph, points, statistics)
    if apart:
        points = find_points(graph, find_layers(graph, keep_float, apart), apart)
        statistics = calibrate(graph, points, batches)
    narrowed = narrow(graph, points, statistics)
    if narrowed is not graph:
        graph = narrowed
        points = find_points(graph, find_layers(graph, keep_float, apart), apart)
        statistics = calibrate(graph, points, batches)
    sources = [(graph, statistics)]
    if options.equalise and (links := find_links(graph, points)):
        progress("equalising channels")
        other = equalise(graph, links, statistics.peaks)
        sources.append((other, calibrate(other, points, batches)))
    methods = tuple(METHODS) if options.method == AUTO else (options.method,)
    found: list[QuantisationCandidate] = []
    for source, statistics in sources:
        for method in methods:
            progress(f"quantising, ranges by {method}")
            plain = _candidate(source, points, statistics, method, batches)
            plain.equalised = source is not graph
            found.append(plain)
            if options.correct:
                progress(f"correcting biases, ranges by {method}")
                found.append(_corrected(plain, batches))
    # Of candidates that are equal but for chance, the one with the fewest steps.
    steps = [each.equalised + bool(each.corrections) for each in found]
    best = max(range(len(found)), key=lambda i: found[i].end_db - MIN_GAIN_DB * steps[i])
    return found[best]


def _candidate(
    graph: Graph, points: Points, statistics: ActivationStatistics, method: str, batches: Batches
) -> QuantisationCandidate:
    quantisations = choose_quantisations(points, statistics, method)
    inserted = insert_quantisation(graph, points, quantisations)
    end_db = end_noise(graph, inserted, points, batches)
    return QuantisationCandidate(
        graph, points, statistics, quantisations, inserted, method, end_db=end_db
    )


def _corrected(plain: QuantisationCandidate, batches: Batches) -> QuantisationCandidate:
    """Return a candidate with corrected biases."""
    graph, points = plain.source, plain.points
    corrections = correct_biases(plain.inserted, points, plain.statistics.means, batches)
    inserted = insert_quantisation(graph, points, plain.quantisations, corrections)
    end_db = end_noise(graph, inserted, points, batches)
    return replace(plain, inserted=inserted, corrections=corrections, end_db=end_db)
