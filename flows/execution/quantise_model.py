"""Import a float model and quantise it with samples from a file, as `calibration_options` says."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...compiler.graph import Graph
from ...compiler.importers import import_onnx
from ...compiler.quantiser import (
    Batches,
    QuantisedNetwork,
    QuantiserOptions,
    make_batches,
    prepare,
    quantise,
)
from ..cli.calibration_options import CalibrationOptions, calibration_rows
from ..cli.input_options import NO_WISHES, Wishes
from .samples import Samples, read_samples

Progress = Callable[[str], None]
"""Called with what is being done."""


@dataclass(frozen=True, slots=True)
class QuantisedModel:
    """A quantised model and the samples around it.

    Parameters
    ----------
    result
        The network.
    samples
        All of the file.
    rows
        Those that calibrated.
    others
        Those that did not.
    size
        Samples that the network takes at a time.
    """

    result: QuantisedNetwork
    samples: Samples
    rows: np.ndarray
    others: np.ndarray
    size: int

    def batches(self, rows: np.ndarray) -> Batches:
        """Some of the samples."""
        return Batches(
            {name: array[rows] for name, array in self.samples.inputs.items()}, self.size
        )


def quantise_model(
    source: Path,
    calibration: CalibrationOptions,
    progress: Progress,
    wishes: Wishes = NO_WISHES,
    check: Callable[[Graph], None] = lambda graph: None,
) -> QuantisedModel:
    """Import a float model and quantise it.

    Parameters
    ----------
    progress
        Called with what is being done.
    wishes
        Inputs and dimensions that are given beforehand.
    check
        Refuses graphs, given the float one as the quantiser takes it; before it calibrates.

    Raises
    ------
    TilewrightError
        When the model or the samples are not as they should be.
    """
    progress(f"reading {source.name}")
    graph = import_onnx(source, fixed=wishes.fixed, dims=wishes.dims)
    check(prepare(graph))
    samples = read_samples(calibration.path, graph)
    rows = calibration_rows(samples.count, calibration.samples)
    chosen = {name: array[rows] for name, array in samples.inputs.items()}
    batches = make_batches(graph, chosen)
    options = QuantiserOptions(calibration.method, calibration.keep_float)
    result = quantise(graph, batches, options, progress)
    others = np.setdiff1d(np.arange(samples.count), rows)
    return QuantisedModel(result, samples, rows, others, batches.size)


def integer_graph(
    source: Path, calibration: CalibrationOptions, progress: Progress, wishes: Wishes = NO_WISHES
) -> Graph:
    """A float model as a graph of integer layers; see `quantise_model`."""
    return quantise_model(source, calibration, progress, wishes).result.integer_graph()
