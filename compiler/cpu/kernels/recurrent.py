"""The updates that follow the matrix products of one step of a recurrent layer, for all samples.

Gates lie side by side in the columns, in ONNX's order: i, o, f, c for LSTM and z, r, h for GRU.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ... import te
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule

Part = Callable[[str, int], te.TensorExpression]
"""Element of an operand's gate, by name and position."""


def _lstm_cell(part: Part) -> te.TensorExpression:
    """`sigmoid(f) * cell + sigmoid(i) * tanh(c)`."""
    i, f, c = (part("gates", gate) for gate in (0, 2, 3))
    return te.sigmoid(f) * part("cell", 0) + te.sigmoid(i) * te.tanh(c)


def _lstm_state(part: Part) -> te.TensorExpression:
    """`sigmoid(o) * tanh(cell)` of the new cell state."""
    return te.sigmoid(part("gates", 1)) * te.tanh(part("cell", 0))


def _gru_state(part: Part) -> te.TensorExpression:
    """`h + z * (state - h)` with `z = sigmoid(xz + rz)`, `h = tanh(xh + sigmoid(xr + rr) * rh)`."""
    (xz, xr, xh), (rz, rr, rh) = ([part(name, gate) for gate in range(3)] for name in "xr")
    new = te.tanh(xh + te.sigmoid(xr + rr) * rh)
    kept = te.sigmoid(xz + rz)
    return (1.0 - kept) * new + kept * part("state", 0)


UPDATES: Mapping[str, tuple[Mapping[str, int], Callable[[Part], te.TensorExpression]]] = {
    "lstm_cell": ({"gates": 4, "cell": 1}, _lstm_cell),
    "lstm_state": ({"gates": 4, "cell": 1}, _lstm_state),
    "gru_state": ({"x": 3, "r": 3, "state": 1}, _gru_state),
}
"""Operands of each update with their number of gates, and the function of the update."""


@dataclass(frozen=True, slots=True)
class RecurrentUpdate(Description):
    """The next state of `rows` samples with `hidden` numbers each, float32[rows, hidden].

    Operands are float32[rows, gates * hidden]. Those of a GRU are the parts of the three gates that
    stem from the input and from the state, and the state itself.

    Parameters
    ----------
    kind
        One of `UPDATES`.
    rows, hidden
        Extents.
    """

    kind: str
    rows: int
    hidden: int

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that the kernel takes, in the order of a call."""
        gates, _ = UPDATES[self.kind]
        return {n: Array("float32", (self.rows, k * self.hidden)) for n, k in gates.items()}

    @property
    def output(self) -> Array:
        """The array that the kernel computes."""
        return Array("float32", (self.rows, self.hidden))

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule for a target."""
        n, h = te.axes(n=self.rows, h=self.hidden)
        given = {name: te.tensor(name, a.dtype, a.shape) for name, a in self.operands.items()}
        _, compute = UPDATES[self.kind]
        value = compute(lambda name, gate: given[name][n, h + gate * self.hidden])
        kernel = te.kernel(self.kind, te.compute("out", "float32", (n, h), value))
        s = te.Schedule(kernel, processor=target.processor)
        s.split("out", "h", min(target.lanes, self.hidden))
        s.vectorise("out", "h.i")
        return KernelSchedule(s)
