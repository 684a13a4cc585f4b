"""Comparisons of recurrent cells with ONNX Runtime's LSTM and GRU in float, over a sequence."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from ....isa import meanings
from .qdq import Int8Tensor, run_float

MIN_SNR_DB = 30.0
"""Least quality of a cell's outputs."""

OUTPUT_SCALE = 1 / 127
STATE_SPAN = 8.0


@dataclass(frozen=True, slots=True)
class CellQuality:
    """int8 outputs of a cell beside float ones.

    Parameters
    ----------
    equal, near : float
        Shares of values that are equal once rounded, and that differ by at most 1.
    """

    name: str
    values: int
    snr_db: float
    equal: float
    near: float

    @classmethod
    def of(cls, name: str, found: np.ndarray, expected: np.ndarray):
        """Compare int8 outputs with float ones."""
        noise = found * OUTPUT_SCALE - expected
        apart = np.abs(found - np.rint(expected / OUTPUT_SCALE))
        snr_db = 10 * np.log10(np.square(expected).sum() / np.square(noise).sum())
        shares = float((apart == 0).mean()), float((apart <= 1).mean())
        return cls(name, apart.size, float(snr_db), *shares)

    @property
    def holds(self) -> bool:
        """Whether the outputs are good enough."""
        return self.snr_db >= MIN_SNR_DB


@dataclass(frozen=True, slots=True)
class CellWeights:
    """Weights of a cell, one row of `gates * hidden` columns per input or state.

    Parameters
    ----------
    inputs, states : float64[..., gates * hidden]
    biases : float64[gates * hidden]
        In the order of ONNX: i, o, f, c or z, r, h.
    """

    inputs: np.ndarray
    states: np.ndarray
    biases: np.ndarray

    @classmethod
    def draw(cls, generator: np.random.Generator, width: int, hidden: int, gates: int):
        """Draw weights like those of a trained cell at its beginning."""
        inputs = generator.normal(0, width**-0.5, (width, gates * hidden))
        states = generator.normal(0, hidden**-0.5, (hidden, gates * hidden))
        return cls(inputs, states, generator.normal(0, 0.5, gates * hidden))

    def quantise(self, x_scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Round to int8 and int32 with one scale per channel for both products."""
        inputs, states = self.inputs * x_scale, self.states * OUTPUT_SCALE
        scale = np.maximum(np.abs(inputs).max(0), np.abs(states).max(0)) / 127
        rounded = (np.rint(part / scale).astype(np.int32) for part in (inputs, states, self.biases))
        return (*rounded, scale.astype(np.float32))


def draw_sequence(generator: np.random.Generator, steps: int, width: int) -> np.ndarray:
    """Draw float[steps, width] with a correlation of 0.7 from step to step."""
    x = generator.normal(0, 1, (steps, width))
    for step in range(1, steps):
        x[step] = 0.7 * x[step - 1] + 0.71 * x[step]
    return x


def compare_cell(kind: str, name: str, x: np.ndarray, weights: CellWeights) -> CellQuality:
    """Run `LSTM` or `GRU` over a sequence, as integers and in ONNX Runtime."""
    hidden = weights.states.shape[0]
    extra: dict[str, Any] = {"linear_before_reset": 1} if kind == "GRU" else {}
    nodes = [helper.make_node(kind, ["x", "w", "r", "b"], ["y"], hidden_size=hidden, **extra)]
    arrays = {
        "w": weights.inputs.T[None],
        "r": weights.states.T[None],
        "b": np.concatenate([weights.biases, np.zeros_like(weights.biases)])[None],
    }
    held = {key: array.astype(np.float32) for key, array in arrays.items()}
    (expected,) = run_float(nodes, {"x": x[:, None].astype(np.float32)}, ["y"], held)
    return CellQuality.of(name, run_cell(kind, x, weights), expected.reshape(len(x), hidden))


def run_cell(kind: str, x: np.ndarray, weights: CellWeights) -> np.ndarray:
    """Outputs of the integer cell, int8[steps, hidden]."""
    tensor = Int8Tensor.of(x)
    inputs, states, biases, scales = weights.quantise(tensor.scale)
    hidden = weights.states.shape[0]
    scales = scales.reshape(-1, hidden)
    output, state = np.zeros(hidden, np.int8), np.zeros(hidden, np.int32)
    outputs = []
    for row in tensor.data.astype(np.int32):
        ahead = (row @ inputs + biases).reshape(-1, hidden)
        behind = (output.astype(np.int32) @ states).reshape(-1, hidden)
        if kind == "LSTM":
            output, state = meanings.lstm_cell(
                ahead + behind, scales, state, STATE_SPAN, OUTPUT_SCALE
            )
        else:
            totals = np.stack([*(ahead + behind)[:2], ahead[2], behind[2]])
            output, state = meanings.gru_cell(totals, scales[[0, 1, 2, 2]], state, OUTPUT_SCALE)
        outputs.append(output)
    return np.array(outputs)


def draw_cells(seed: int, steps: int) -> list[CellQuality]:
    """Both cells on drawn weights and sequences, 256 wide with a state of 128."""
    generator = np.random.default_rng(seed)
    x = draw_sequence(generator, steps, 256)
    return [
        compare_cell(kind, f"{kind}, 256 to 128", x, CellWeights.draw(generator, 256, 128, gates))
        for kind, gates in (("LSTM", 4), ("GRU", 3))
    ]
