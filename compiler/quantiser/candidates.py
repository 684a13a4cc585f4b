"""Candidate quantisations of a network, and the search for the one with the least noise."""

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
"""Called with a description of each step."""

MIN_GAIN_DB = 0.05
"""Least gain in dB for which an extra step is kept."""


@dataclass(slots=True)
class QuantisationCandidate:
    """One way to quantise a network, and its noise.

    Attributes
    ----------
    source : Graph
        The float graph, with changes that keep its function.
    points : Points
        The points of quantisation.
    statistics : ActivationStatistics
        Statistics of the points.
    quantisations : dict
        Quantisation of each point.
    inserted : Inserted
        The quantised graph.
    method : str
        The method that chose the ranges.
    equalised : bool
        Whether the channels of `source` are equalised.
    corrections : dict
        Output of a weighted layer -> float64[channels], added to its bias.
    end_db : float
        Signal-to-noise ratio after the last layers.
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
    """Return the candidate with the least noise among all that the options allow.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    keep_float : tuple of str
        Layers, nodes or values that stay in float.
    batches : Batches
        The calibration samples.
    options : QuantiserOptions
        Options of the quantiser.
    progress : callable
        Called with a description of each step.

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
    # A step is worth its effort only if its gain exceeds random variation.
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
