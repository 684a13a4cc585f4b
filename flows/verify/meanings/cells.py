"""Comparisons of recurrent cells with ONNX Runtime's LSTM and GRU in float, over a sequence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ....compiler.graph import Graph, evaluate
from ....compiler.importers import import_onnx
from ....compiler.quantiser import Batches, quantise
from ...bench.onnxruntime_peer import peer_session

MIN_SNR_DB = 30.0
"""Least quality of a cell's outputs."""

OUTPUT_SCALE = 1 / 127

GATES = {"LSTM": 4, "GRU": 3}
STATES = {"LSTM": ("h", "c"), "GRU": ("h",)}


@dataclass(frozen=True, slots=True)
class CellQuality:
    """Outputs of a cell of integers beside float ones.

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
        """Compare the outputs of integers with float ones."""
        noise = found - expected
        apart = np.abs(np.rint(found / OUTPUT_SCALE) - np.rint(expected / OUTPUT_SCALE))
        snr_db = 10 * np.log10(np.square(expected).sum() / np.square(noise).sum())
        shares = float((apart == 0).mean()), float((apart <= 1).mean())
        return cls(name, apart.size, float(snr_db), *shares)

    @property
    def holds(self) -> bool:
        """Whether the outputs are good enough."""
        return self.snr_db >= MIN_SNR_DB


def draw_sequence(generator: np.random.Generator, steps: int, width: int) -> np.ndarray:
    """Draw float[steps, width] with a correlation of 0.7 from step to step."""
    x = generator.normal(0, 1, (steps, width))
    for step in range(1, steps):
        x[step] = 0.7 * x[step - 1] + 0.71 * x[step]
    return x


def draw_cell(
    kind: str, generator: np.random.Generator, width: int, hidden: int
) -> onnx.ModelProto:
    """Draw one step of a layer, with weights like those of a trained one at its beginning."""
    gates = GATES[kind] * hidden
    held = {
        "w": generator.normal(0, width**-0.5, (1, gates, width)),
        "r": generator.normal(0, hidden**-0.5, (1, gates, hidden)),
        "b": np.append(generator.normal(0, 0.5, gates), np.zeros(gates))[None],
    }
    states = STATES[kind]
    extra: dict[str, Any] = {"linear_before_reset": 1} if kind == "GRU" else {}
    made = ["", *(f"{name}_out" for name in states)]
    operands = ["x", *held, "", *states]
    nodes = [helper.make_node(kind, operands, made, hidden_size=hidden, **extra)]
    values = {"x": width, **dict.fromkeys((*states, *made[1:]), hidden)}
    typed = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 1, size))
        for name, size in values.items()
    }
    graph = helper.make_graph(
        nodes,
        kind,
        [typed[name] for name in ("x", *states)],
        [typed[name] for name in made[1:]],
        [numpy_helper.from_array(data.astype(np.float32), name) for name, data in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def compare_cell(kind: str, name: str, x: np.ndarray, proto: onnx.ModelProto) -> CellQuality:
    """Step a cell through a sequence, in ONNX Runtime and as the quantiser's integers."""
    graph, states = import_onnx(proto.SerializeToString()), STATES[kind]
    session = peer_session(proto.SerializeToString(), 1, optimised=False)
    rows = x[:, None, None].astype(np.float32)
    shown = [f"{one}_out" for one in states]
    expected, ahead = run_sequence(
        rows, graph, states, lambda inputs: [*map(np.asarray, session.run(shown, inputs))]
    )
    samples = {"x": rows, **{one: np.stack([each[one] for each in ahead]) for one in states}}
    integer = quantise(graph, Batches(samples, 1)).integer_graph()
    found, _ = run_sequence(
        rows, graph, states, lambda inputs: [*evaluate(integer, inputs).values()]
    )
    return CellQuality.of(name, found, expected)


def run_sequence(
    rows: np.ndarray,
    graph: Graph,
    states: tuple[str, ...],
    step: Callable[[dict[str, np.ndarray]], Sequence[np.ndarray]],
) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
    """Outputs of all steps, from states of 0, and the states ahead of each."""
    held = {one.name: np.zeros(one.type.shape, np.float32) for one in graph.inputs[1:]}
    outputs, ahead = [], []
    for row in rows:
        ahead.append(held)
        made = step({"x": row, **held})
        held = dict(zip(states, made, strict=True))
        outputs.append(made[0].ravel())
    return np.stack(outputs), ahead


def draw_cells(seed: int, steps: int) -> list[CellQuality]:
    """Both cells on drawn weights and sequences, 256 wide with a state of 128."""
    generator = np.random.default_rng(seed)
    x = draw_sequence(generator, steps, 256)
    return [
        compare_cell(kind, f"{kind}, 256 to 128", x, draw_cell(kind, generator, 256, 128))
        for kind in STATES
    ]
