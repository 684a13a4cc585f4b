"""The quantiser: it turns a float graph and a few samples into a graph in QDQ form and a report."""

from dataclasses import dataclass

import numpy as np

from .. import frontend
from ..graph import Graph
from .batches import Batches
from .candidates import Progress, QuantisationCandidate, best_candidate
from .float_layer import FloatLayer, origin
from .measure import (
    Agreement,
    LayerQuality,
    compare_networks,
    has_classes,
    measure_layers,
)
from .options import DEFAULT_OPTIONS, QuantiserOptions
from .prepare import prepare

MOST_RESCUED = 4
"""Most layers that automatically return to float."""

RESCUE_GAIN_DB = 1.0
"""Least gain in dB, at the network's end, for which a layer stays in float."""


@dataclass(frozen=True, slots=True)
class QuantisedNetwork:
    """A quantised network.

    Attributes
    ----------
    graph : Graph
        The graph in QDQ form; `frontend.recognise_layers` turns it into integer layers.
    reference : Graph
        The float graph that it stands for.
    method : str
        The method that chose the ranges.
    equalised, corrected : bool
        Whether these steps were kept.
    rescued : tuple of str
        Layers that stay in float because the network would lose too much accuracy.
    end_db : float
        Signal-to-noise ratio after the last layers, on the calibration samples.
    layers : tuple of LayerQuality
        Quality of each layer, on the calibration samples.
    """

    graph: Graph
    reference: Graph
    method: str
    equalised: bool
    corrected: bool
    rescued: tuple[str, ...]
    end_db: float
    layers: tuple[LayerQuality, ...]

    def integer_graph(self) -> Graph:
        """Return the graph of integer layers that the accelerator runs."""
        return frontend.recognise_layers(self.graph)


def quantise(
    graph: Graph,
    batches: Batches,
    options: QuantiserOptions = DEFAULT_OPTIONS,
    progress: Progress = lambda text: None,
) -> QuantisedNetwork:
    """Quantise a float network.

    Parameters
    ----------
    graph : Graph
        The graph that `import_onnx` returns, for one sample.
    batches : Batches
        Calibration samples; see `make_batches`.
    options : QuantiserOptions
        Options of the quantiser.
    progress : callable
        Called with a description of each step.

    Raises
    ------
    CompileError
        If the model is quantised already, has no layer to quantise, or a layer to keep in float is
        unknown.
    InputError
        If a sample gives infinite values.
    """
    prepared = prepare(graph)
    best = best_candidate(prepared, options.keep_float, batches, options, progress)
    rescued: dict[str, str] = {}
    while options.rescue and len(rescued) < MOST_RESCUED:
        if not _loses_too_much(prepared, best, batches, options):
            break
        kept = (*options.keep_float, *rescued)
        attempt = _rescue(prepared, best, kept, batches, options, progress)
        if attempt is None:
            break
        more, best = attempt
        rescued |= more
    progress("measuring layers")
    qualities = measure_layers(best.source, best.inserted, best.points, best.quantisations, batches)
    return QuantisedNetwork(
        best.inserted.graph,
        prepared,
        best.method,
        best.equalised,
        bool(best.corrections),
        tuple(rescued.values()),
        best.end_db,
        qualities,
    )


def _loses_too_much(
    graph: Graph, best: QuantisationCandidate, batches: Batches, options: QuantiserOptions
) -> bool:
    if best.end_db < options.least_end_db:
        return True
    if not has_classes(graph):
        return False
    expected, got = batches.output(graph), batches.output(best.inserted.graph)
    same = compare_networks(expected, got, None, classes=True).same_class
    return same is not None and same < options.least_agreement


def _rescue(
    graph: Graph,
    best: QuantisationCandidate,
    kept: tuple[str, ...],
    batches: Batches,
    options: QuantiserOptions,
    progress: Progress,
) -> tuple[dict[str, str], QuantisationCandidate] | None:
    """Keep the noisiest layer in float, alone or with the layers whose outputs it reads.

    Returns the layers, as output of the first node -> name, and the new candidate; None if
    nothing helps.
    """
    qualities = measure_layers(best.source, best.inserted, best.points, best.quantisations, batches)
    noisy = sorted(
        (quality for quality in qualities if quality.alone_db < options.least_layer_db),
        key=lambda quality: quality.alone_db,
    )
    weighted = sum(layer.weighted for layer in best.points.layers)
    for quality in noisy[:MOST_RESCUED]:
        for layers in ([quality.layer], [quality.layer, *_read_by(best, quality.layer)]):
            if sum(layer.weighted for layer in layers) == weighted:
                continue
            progress(f"trying `{quality.layer.name}` in float")
            # The first node's output has the same name in all forms of the graph.
            more = {layer.head: layer.name for layer in layers}
            attempt = best_candidate(graph, (*kept, *more), batches, options, progress)
            if attempt.end_db > best.end_db + RESCUE_GAIN_DB:
                return more, attempt
    return None


def _read_by(best: QuantisationCandidate, reader: FloatLayer) -> list[FloatLayer]:
    """Return the layers whose outputs a layer reads."""
    sources = {origin(best.source, name) for name in reader.inputs}
    return [layer for layer in best.points.layers if layer.output in sources]


def evaluate_quality(
    quantised: QuantisedNetwork, integer: Graph, batches: Batches, labels: np.ndarray | None
) -> Agreement:
    """Compare the integer network with the float one.

    Parameters
    ----------
    quantised : QuantisedNetwork
        The network.
    integer : Graph
        Its `integer_graph`; the accelerator's results are bit-exact to it.
    batches : Batches
        Samples, preferably not the calibration samples.
    labels : int[samples] or None
        Classes of the samples.
    """
    expected = batches.output(quantised.reference)
    got = batches.output(integer)
    return compare_networks(expected, got, labels, has_classes(quantised.reference))
