"""Comparisons of integer meanings with QDQ graphs, on given or drawn values.

Values are drawn like those in networks: scores are normal, the residual stream has outlier
channels, sequences are correlated from step to step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import helper

from ....isa import meanings
from .qdq import Int8Tensor, run_qdq

ACTIVATIONS = {
    "Gelu": (meanings.gelu, [helper.make_node("Gelu", ["x"], ["y"], approximate="none")]),
    "Gelu, tanh": (
        meanings.gelu_tanh,
        [helper.make_node("Gelu", ["x"], ["y"], approximate="tanh")],
    ),
    "SiLU": (
        meanings.silu,
        [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])],
    ),
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """Integer results beside those of a QDQ graph.

    Parameters
    ----------
    required
        The least share of equal values.
    """

    name: str
    values: int
    equal: float
    largest: int
    required: float

    @classmethod
    def of(cls, name: str, found: np.ndarray, expected: np.ndarray, required: float):
        """Count the values that are equal."""
        apart = np.abs(found.astype(np.int32) - expected)
        return cls(name, apart.size, float((apart == 0).mean()), int(apart.max()), required)

    @classmethod
    def over(cls, name: str, parts: "Sequence[Agreement]"):
        """Join comparisons of one kind."""
        values = sum(part.values for part in parts)
        equal = sum(part.equal * part.values for part in parts) / values
        largest = max(part.largest for part in parts)
        return cls(name, values, equal, largest, max(part.required for part in parts))

    @property
    def holds(self) -> bool:
        """Whether enough values are equal and none differs by more than 1."""
        return self.equal >= self.required and self.largest <= 1


def compare_softmax(
    name: str, scores: np.ndarray, y: tuple[float, int], valid: np.ndarray | None = None
) -> Agreement:
    """Compare rows of scores, float[rows, keys]; keys beyond `valid` are masked."""
    x = Int8Tensor.of(scores)
    found = meanings.softmax(x.data, x.scale, *y, valid)
    nodes, constants = [], {}
    if valid is not None:
        beyond = np.arange(x.data.shape[-1]) >= valid[:, None]
        constants["mask"] = np.where(beyond, -np.inf, 0).astype(np.float32)
        nodes.append(helper.make_node("Add", ["x", "mask"], ["masked"]))
    nodes.append(helper.make_node("Softmax", ["masked" if nodes else "x"], ["y"], axis=-1))
    expected = run_qdq(nodes, {"x": x}, y, constants)
    return Agreement.of(name, found, expected, 0.999)


def compare_norm(
    name: str,
    rows: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    epsilon: float,
    centred: bool,
    zero_points: tuple[int, int] = (0, 0),
) -> Agreement:
    """Compare LayerNormalization (`centred`) or RMSNormalization of float[rows, channels]."""
    x = Int8Tensor.of(rows, zero_points[0])
    constants = {"gamma": gamma.astype(np.float32), "beta": beta.astype(np.float32)}
    if centred:
        operands = ["x", "gamma", "beta"]
        nodes = [helper.make_node("LayerNormalization", operands, ["y"], axis=-1, epsilon=epsilon)]
    else:
        constants |= {"axis": np.array([-1]), "epsilon": np.float32(epsilon)}
        nodes = [
            helper.make_node("Mul", ["x", "x"], ["square"]),
            helper.make_node("ReduceMean", ["square", "axis"], ["mean"]),
            helper.make_node("Add", ["mean", "epsilon"], ["spread"]),
            helper.make_node("Sqrt", ["spread"], ["root"]),
            helper.make_node("Div", ["x", "root"], ["normal"]),
            helper.make_node("Mul", ["normal", "gamma"], ["scaled"]),
            helper.make_node("Add", ["scaled", "beta"], ["y"]),
        ]
    y = _normalised_scale(x.floats, gamma, beta, epsilon, centred, zero_points[1]), zero_points[1]
    held = meanings.norm_constants(gamma, beta, epsilon, x.scale, y[0])
    if centred:
        found = meanings.layer_norm(x.data, held, y[1])
    else:
        found = meanings.rms_norm(x.data, x.zero_point, held, y[1])
    return Agreement.of(name, found, run_qdq(nodes, {"x": x}, y, constants), 0.995)


def _normalised_scale(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, epsilon: float, centred: bool, zero: int
) -> float:
    moved = x - x.mean(-1, keepdims=True) if centred else x
    y = moved / np.sqrt(np.square(moved).mean(-1, keepdims=True) + epsilon) * gamma + beta
    return float(np.abs(y).max()) / (127 - abs(zero))


def compare_activation(name: str) -> Agreement:
    """Compare a function on all bytes, for several scales."""
    function, nodes = ACTIVATIONS[name]
    found, expected = [], []
    for span in (0.5, 2.0, 6.0, 20.0):
        x = Int8Tensor(np.arange(-128, 128).astype(np.int8), span / 128, 11)
        y = span / 120, -7
        found.append(meanings.byte_table(function, x.scale, x.zero_point, *y))
        expected.append(run_qdq(nodes, {"x": x}, y))
    return Agreement.of(name, np.array(found), np.array(expected), 0.998)


def compare_rotary(name: str, rows: np.ndarray, pairs: str) -> Agreement:
    """Compare rotary embedding of float[positions, channels]."""
    positions, channels = rows.shape
    half = channels // 2
    angles = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(half) / half)
    x, y = Int8Tensor.of(rows, 3), (float(np.abs(rows).max()) / 120, -2)
    if pairs == "halves":
        partner = np.concatenate([np.arange(half, channels), np.arange(half)])
        first = np.arange(channels) < half
        place = np.concatenate([np.arange(half)] * 2)
    else:
        partner, first = np.arange(channels) ^ 1, np.arange(channels) % 2 == 0
        place = np.arange(channels) // 2
    held = {
        "partner": partner,
        "cos": np.cos(angles)[:, place].astype(np.float32),
        "sin": (np.sin(angles)[:, place] * np.where(first, -1, 1)).astype(np.float32),
    }
    factors = [np.rint(127 * held[kind]).astype(np.int8) for kind in ("cos", "sin")]
    scale = x.scale / (127 * y[0])
    found = meanings.rotate((x.data, x.data[:, partner]), x.zero_point, factors, scale, y[1])
    nodes = [
        helper.make_node("Gather", ["x", "partner"], ["other"], axis=-1),
        helper.make_node("Mul", ["x", "cos"], ["one"]),
        helper.make_node("Mul", ["other", "sin"], ["two"]),
        helper.make_node("Add", ["one", "two"], ["y"]),
    ]
    return Agreement.of(name, found, run_qdq(nodes, {"x": x}, y, held), 0.9)


# Drawn values -----------------------------------------------------------------------------------

UNIT = (1 / 256, -128)
"""Scale and zero point of probabilities, as quantisers give them to Softmax."""


def draw_softmax(generator: np.random.Generator, rows: int) -> Iterator[Agreement]:
    """Rows of several lengths and widths of scores, with a mask and with a calibrated scale."""
    for keys, deviation in ((64, 3.0), (197, 1.0), (197, 2.5), (1024, 2.0)):
        scores = generator.normal(0, deviation, (rows, keys))
        yield compare_softmax(f"softmax, {keys} keys, deviation {deviation:g}", scores, UNIT)
    scores = generator.normal(0, 2, (rows, 128))
    valid = np.arange(rows) % 128 + 1
    yield compare_softmax("softmax, 128 keys, causal", scores, UNIT, valid)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    top = float((1 / weights.sum(-1)).max())
    yield compare_softmax("softmax, 128 keys, calibrated scale", scores, (top / 255, -128))


def draw_norms(generator: np.random.Generator, rows: int) -> Iterator[Agreement]:
    """Rows of several lengths, with and without outlier channels."""
    for channels, outliers in ((64, 0), (192, 3), (768, 5), (1024, 0), (4096, 3)):
        x = generator.normal(0, 1, (rows, channels)) + generator.normal(0, 0.5, channels)
        x[:, generator.choice(channels, outliers, replace=False)] *= 20
        gamma, beta = generator.normal(1, 0.3, channels), generator.normal(0, 0.5, channels)
        title = f"{channels} channels, {outliers} outliers"
        yield compare_norm(f"layer norm, {title}", x, gamma, beta, 1e-5, True, (4, -6))
        none = np.zeros(channels)
        yield compare_norm(f"RMS norm, {title}", x, gamma, none, 1e-5, False, (4, 0))


def draw_others(generator: np.random.Generator, rows: int) -> Iterator[Agreement]:
    """Activations and rotary embedding."""
    yield from map(compare_activation, ACTIVATIONS)
    for pairs in ("halves", "interleaved"):
        yield compare_rotary(f"rotary, {pairs}", generator.normal(0, 1, (rows, 64)), pairs)


def draw_all(seed: int, rows: int) -> Sequence[Agreement]:
    """All comparisons on drawn values."""
    generator = np.random.default_rng(seed)
    return [
        *draw_softmax(generator, rows),
        *draw_norms(generator, rows),
        *draw_others(generator, rows),
    ]
