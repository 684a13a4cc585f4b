"""Recurrent layers: RNN, GRU and LSTM as ONNX defines them, computed one time step after another.

Gates are in ONNX's order: z, r, h for GRU; i, o, f, c for LSTM.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ...formulas import Formula, compute
from ..functions import UNARY, Function
from ..operator import Operator, operator
from ..types import FLOATS, TensorType, Types, wide
from .elementwise import Unary

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
"""Number of activation functions in each direction."""

GATE_FUNCTIONS = 2
"""Number of activations per cell; the third one of an LSTM applies to the cell state."""

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}

_OWN = {
    "Affine": Function("alpha * x + beta", parameters={"alpha": 1.0, "beta": 0.0}),
    "ScaledTanh": Function("alpha * tanh(beta * x)", parameters={"alpha": 1.0, "beta": 1.0}),
}
_SHARED = (
    *("Elu", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"),
    "ThresholdedRelu",
)
ACTIVATIONS: dict[str, Function] = {**_OWN, **{name: UNARY[name] for name in _SHARED}}
"""ONNX's activations of recurrent layers; alpha comes before beta."""

BYTES = ("int8", "int16")
"""Types of weights that have scales; int16 holds bytes minus their zero points."""

Activation = Callable[[np.ndarray], np.ndarray]


@operator("recurrent", 6, 10)
class Recurrent(Operator):
    """A recurrent layer; `kind` is RNN, GRU or LSTM.

    Inputs: x [S, N, I], w [D, G * H, I], r [D, G * H, H], bias [D, 2 * G * H], int32 lengths [N],
    first state [D, N, H]; for LSTM also the first cell state and peepholes [D, 3 * H]. Outputs:
    all states [S, D, N, H], the last states [D, N, H], and for LSTM the last cell states.

    If w and r are int8 or int16, two inputs follow with their scales [D, G * H], float32.

    Attributes
    ----------
    direction : str
        forward, reverse or bidirectional.
    activations : tuple of (str, float, float)
        Name, alpha and beta of each gate function in each direction.
    clip : float
        Limit on the magnitude of the inputs of the gates' functions; 0 for none. The cell state of
        an LSTM is not limited, as in ONNX Runtime.
    linear_before_reset, input_forget : bool
        As in ONNX's GRU and LSTM.
    """

    kind: str
    direction: str
    activations: tuple[tuple[str, float, float], ...]
    clip: float = 0.0
    linear_before_reset: bool = False
    input_forget: bool = False

    @property
    def states(self) -> slice:
        """Positions of the first states among the inputs; peepholes and scales follow."""
        return slice(5, 7 if self.kind == "LSTM" else 6)

    @property
    def scales(self) -> slice:
        """Positions of the scales of the weights among the inputs; empty for floats."""
        return slice(8 if self.kind == "LSTM" else 6, None)

    def result_type(self, types: Types) -> tuple[TensorType, ...]:
        long = self.kind == "LSTM"
        x, w, r = types[:3]
        gates, directions = GATES.get(self.kind, 0), DIRECTIONS.get(self.direction, 0)
        ranks = len(x.shape) == len(w.shape) == len(r.shape) == 3
        self.expect(bool(gates and directions and ranks), "x, w and r of rank 3", types)
        steps, batch, features = x.shape
        hidden = r.shape[-1]
        expected = [
            (directions, gates * hidden, features),
            (directions, gates * hidden, hidden),
            (directions, 2 * gates * hidden),
            (batch,),
            (directions, batch, hidden),
        ]
        expected += [(directions, batch, hidden), (directions, 3 * hidden)] if long else []
        dtypes = [x.dtype, x.dtype, x.dtype, "int32", *(x.dtype,) * (len(expected) - 4)]
        if w.dtype in BYTES and r.dtype in BYTES:
            expected += [(directions, gates * hidden)] * 2
            dtypes = [w.dtype, r.dtype, *dtypes[2:], "float32", "float32"]
        fits = [t.shape for t in types[1:]] == expected and x.dtype in FLOATS
        fits = fits and [t.dtype for t in types[1:]] == dtypes
        fits = fits and len(self.activations) == directions * FUNCTIONS[self.kind]
        fits = fits and all(name in ACTIVATIONS for name, _, _ in self.activations)
        self.expect(fits, f"operands of shapes {expected} behind x", types)
        state = TensorType(x.dtype, (directions, batch, hidden))
        every = TensorType(x.dtype, (steps, directions, batch, hidden))
        return (every, state, state) if long else (every, state)

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        count = FUNCTIONS[self.kind]
        x, w, r, bias, lengths, *states = arrays[: self.scales.start]
        w, r = real_weights(w, r, arrays[self.scales])
        rows = []
        with np.errstate(all="ignore"):
            for index in range(w.shape[0]):
                functions = [
                    _function(one, self.clip if position < GATE_FUNCTIONS else 0.0)
                    for position, one in enumerate(
                        self.activations[index * count : (index + 1) * count]
                    )
                ]
                backwards = self.direction == "reverse" or index == 1
                operands = [wide(array[index]) for array in (w, r, bias, *states)]
                rows.append(_run(self, functions, backwards, wide(x), lengths, operands))
        every, *last = zip(*rows, strict=True)
        results = (np.stack(every, axis=1), *(np.stack(one) for one in last))
        return tuple(result.astype(x.dtype) for result in results)


def as_unary(name: str, alpha: float, beta: float) -> Unary:
    """Return an activation as Unary; there is none for Affine and ScaledTanh."""
    return Unary(name, (alpha, beta)[: len(UNARY[name].parameters)])


def real_weights(
    w: np.ndarray, r: np.ndarray, scales: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of a layer in floats, `scales` being the operands that follow them."""
    if not scales:
        return w, r
    own, recurrent = scales
    return w * own[..., None], r * recurrent[..., None]


def formula_of(activation: tuple[str, float, float]) -> Formula:
    """Return the formula of an activation of `x`."""
    function, values = ACTIVATIONS[activation[0]], activation[1:]
    return function.with_parameters(values[: len(function.parameters)])


def _function(activation: tuple[str, float, float], clip: float) -> Activation:
    formula = formula_of(activation)

    def apply(x: np.ndarray) -> np.ndarray:
        inside = np.clip(x, -clip, clip) if clip else x
        return compute(formula, {"x": inside}).astype(x.dtype)

    return apply


def _run(
    op: Recurrent,
    functions: list[Activation],
    backwards: bool,
    x: np.ndarray,
    lengths: np.ndarray,
    operands: list[np.ndarray],
) -> tuple[np.ndarray, ...]:
    """Run one direction: return all states [S, N, H], and the last state and cell state [N, H]."""
    w, r, bias, state, *more = operands
    cell, peepholes = more or (None, None)
    every = np.zeros((len(x), *state.shape), dtype=x.dtype)
    half = len(bias) // 2
    inputs = x @ w.T + bias[:half]
    for step in range(len(x))[:: -1 if backwards else 1]:
        live = (step < lengths)[:, None]
        if op.kind == "RNN":
            new = functions[0](inputs[step] + state @ r.T + bias[half:])
        elif op.kind == "GRU":
            new = _gru(op, functions, inputs[step], state, r, bias[half:])
        else:
            assert cell is not None
            assert peepholes is not None
            gates = inputs[step] + state @ r.T + bias[half:]
            new, new_cell = _lstm(op, functions, gates, cell, peepholes)
            cell = np.where(live, new_cell, cell)
        state = np.where(live, new, state)
        every[step] = np.where(live, state, 0)
    return (every, state) if cell is None else (every, state, cell)


def _gru(op: Recurrent, functions, x, state, r, bias) -> np.ndarray:
    gate, candidate = functions
    hidden = state.shape[-1]
    update = gate(x[:, :hidden] + state @ r[:hidden].T + bias[:hidden])
    middle = slice(hidden, 2 * hidden)
    reset = gate(x[:, middle] + state @ r[middle].T + bias[middle])
    last = slice(2 * hidden, None)
    if op.linear_before_reset:
        inner = reset * (state @ r[last].T + bias[last])
    else:
        inner = (reset * state) @ r[last].T + bias[last]
    return (1 - update) * candidate(x[:, last] + inner) + update * state


def _lstm(op: Recurrent, functions, gates, cell, peepholes) -> tuple[np.ndarray, np.ndarray]:
    gate, candidate, output = functions
    i, o, f, c = np.split(gates, 4, axis=-1)
    peep_i, peep_o, peep_f = np.split(peepholes, 3)
    i = gate(i + peep_i * cell)
    f = 1 - i if op.input_forget else gate(f + peep_f * cell)
    new = f * cell + i * candidate(c)
    return gate(o + peep_o * new) * output(new), new
