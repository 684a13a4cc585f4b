"""The quantiser: it turns a float graph and a few samples into a graph in QDQ form and a report."""

import time
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from .. import frontend
from ..graph import Graph
from .batches import Batches
from .budget import Clock
from .candidates import CandidateSearch, Progress
from .float_layer import FloatLayer
from .given_masks import mark_masks
from .measure import (
    LayerQuality,
    NetworkQuality,
    compare_networks,
    measure_layers,
)
from .narrow_weights import narrow_weights
from .options import DEFAULT_OPTIONS, QuantiserOptions
from .prepare import prepare
from .rescue import rescue


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
    four_bits : tuple of FloatLayer
        Layers whose weights have 4 bits.
    masks : tuple of str
        Float inputs that hold only the values of a mask in all samples; others are rounded to them.
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
    four_bits: tuple[FloatLayer, ...]
    masks: tuple[str, ...]
    end_db: float
    layers: tuple[LayerQuality, ...]

    def integer_graph(self) -> Graph:
        """Return the graph of integer layers that the accelerator runs."""
        return frontend.recognise_layers(self.graph)


@threadpool_limits.wrap(limits=1, user_api="blas")
def quantise(
    graph: Graph,
    batches: Batches,
    options: QuantiserOptions = DEFAULT_OPTIONS,
    progress: Progress = lambda text: None,
    clock: Clock = time.monotonic,
) -> QuantisedNetwork:
    """Quantise a float network.

    BLAS takes one thread: its results would depend on their number, and most products are too small
    for several.

    Parameters
    ----------
    graph : Graph
        The graph that `import_onnx` returns, for one sample.
    batches : Batches
        Calibration samples; see `make_batches`.
    options : QuantiserOptions
        Options of the quantiser.
    progress : callable
        Called with a description of each step, the best noise so far and the time left.
    clock : Clock
        The clock by which an effort in seconds is spent.

    Raises
    ------
    CompileError
        If the model is quantised already, has no layer to quantise, or a layer to keep in float is
        unknown.
    InputError
        If a sample gives infinite values.
    """
    marked, masks = mark_masks(graph, batches.inputs)
    prepared = prepare(marked)
    search = CandidateSearch(prepared, batches, options, progress, clock)
    found = search.plain()
    best = search.best(found)
    if options.correct:
        chosen = sorted(found, key=lambda each: -each.end_db)[: search.corrections]
        corrected = search.compare([search.corrected(each) for each in chosen])
        best = search.best([*found, *corrected])
    rescued: dict[str, str] = {}
    if options.rescue and search.loses_too_much(best):
        rescued, saved = rescue(search, search.best(found))
        if rescued:
            again = [saved][: search.corrections] if options.correct else []
            more = search.compare([search.corrected(each) for each in again])
            best = search.best([saved, *more])
    four_bits: tuple[FloatLayer, ...] = ()
    if options.weight_bits == 4:
        best, four_bits = narrow_weights(search, best)
    search.progress("measuring layers")
    qualities = measure_layers(
        best.source.graph, best.inserted, best.points, best.quantisations, search.compared
    )
    return QuantisedNetwork(
        best.inserted.graph,
        prepared,
        best.method,
        best.source.equalised,
        bool(best.corrections),
        tuple(rescued.values()),
        four_bits,
        masks,
        best.end_db,
        qualities,
    )


@threadpool_limits.wrap(limits=1, user_api="blas")
def evaluate_quality(
    quantised: QuantisedNetwork, integer: Graph, batches: Batches, labels: np.ndarray | None
) -> NetworkQuality:
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
    return compare_networks(quantised.reference, integer, batches, labels)
