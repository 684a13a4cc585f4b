"""Import a float model and quantise it with samples from a file."""

import warnings
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
    doubts,
    make_batches,
    prepare,
    quantise,
)
from ..cli.calibration_options import CalibrationOptions, calibration_rows
from ..cli.input_options import NO_OVERRIDES, InputOverrides
from .samples import Samples, follow_states, read_samples

Progress = Callable[[str], None]
"""Called with a description of the current step."""


@dataclass(frozen=True, slots=True)
class QuantisedModel:
    """A quantised model, and the samples of the file.

    Parameters
    ----------
    result : QuantisedNetwork
        The network.
    samples : Samples
        All samples of the file.
    rows : ndarray
        Indices of the samples that calibrated the model.
    others : ndarray
        Indices of the other samples.
    size : int
        Samples per run of the network.
    """

    result: QuantisedNetwork
    samples: Samples
    rows: np.ndarray
    others: np.ndarray
    size: int

    @property
    def compared(self) -> np.ndarray:
        """Return the indices of samples to evaluate with: those unseen by calibration, if any."""
        return self.others if len(self.others) else self.rows

    def batches(self, rows: np.ndarray) -> Batches:
        """Some of the samples, in batches."""
        return Batches(
            {name: array[rows] for name, array in self.samples.inputs.items()}, self.size
        )


def quantise_model(
    source: Path,
    calibration: CalibrationOptions,
    progress: Progress,
    overrides: InputOverrides = NO_OVERRIDES,
    check: Callable[[Graph], object] = lambda graph: None,
) -> QuantisedModel:
    """Import a float model and quantise it.

    Parameters
    ----------
    progress : Progress
        Called with a description of each step.
    overrides : InputOverrides
        Inputs and dimensions that the user fixed.
    check : callable
        Called with the prepared float graph before calibration; raises to reject it.

    Raises
    ------
    TilewrightError
        When the model or the samples are invalid.
    """
    progress(f"reading {source.name}")
    graph = import_onnx(source, **overrides.of_import)
    check(prepare(graph))
    samples = read_samples(calibration.path, graph, overrides.states)
    if overrides.states:
        progress("following the states")
        samples = follow_states(samples, graph, overrides.states)
    rows = calibration_rows(samples.count, calibration.samples)
    chosen = {name: array[rows] for name, array in samples.inputs.items()}
    batches = make_batches(graph, chosen)
    for sentence in doubts(chosen):
        warnings.warn(sentence, stacklevel=2)
    options = QuantiserOptions(
        calibration.method,
        calibration.keep_float,
        effort=calibration.effort,
        weight_bits=calibration.weight_bits,
        weight_db=calibration.weight_db,
    )
    result = quantise(graph, batches, options, progress)
    others = np.setdiff1d(np.arange(samples.count), rows)
    return QuantisedModel(result, samples, rows, others, batches.size)


def integer_graph(
    source: Path,
    calibration: CalibrationOptions,
    progress: Progress,
    overrides: InputOverrides = NO_OVERRIDES,
    check: Callable[[Graph], object] = lambda graph: None,
) -> Graph:
    """A float model as a graph of integer layers; see `quantise_model`."""
    return quantise_model(source, calibration, progress, overrides, check).result.integer_graph()
