"""What follows the matrix products of one step of a recurrent layer, for all samples at once.

Gates lie side by side in the columns, in ONNX's order: i, o, f, c for LSTM and z, r, h for GRU.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ... import te
from ..target import Target
from .description import Array, Plan


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of `rows` samples with `hidden` numbers of state each; float32."""

    rows: int
    hidden: int

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("float32", (self.rows, self.hidden))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def _columns(self, gates: int) -> Array:
        return Array("float32", (self.rows, gates * self.hidden))


@dataclass(frozen=True, slots=True)
class LstmCell(_Step):
    """`out = sigmoid(f) * cell + sigmoid(i) * tanh(c)` of `gates` [rows, 4 * hidden]."""

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        return {"gates": self._columns(4), "cell": self.output}

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        gates, cell, n, h = _opened(self, "gates", "cell")
        i, f, c = (gates[n, h + k * self.hidden] for k in (0, 2, 3))
        value = te.sigmoid(f) * cell[n, h] + te.sigmoid(i) * te.tanh(c)
        return _scheduled("lstm_cell", te.compute("out", "float32", (n, h), value), self, target)


@dataclass(frozen=True, slots=True)
class LstmState(_Step):
    """`out = sigmoid(o) * tanh(cell)` of `gates` [rows, 4 * hidden] and the new cell state."""

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        return {"gates": self._columns(4), "cell": self.output}

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        gates, cell, n, h = _opened(self, "gates", "cell")
        value = te.sigmoid(gates[n, h + self.hidden]) * te.tanh(cell[n, h])
        return _scheduled("lstm_state", te.compute("out", "float32", (n, h), value), self, target)


@dataclass(frozen=True, slots=True)
class GruState(_Step):
    """The next state from `x` and `r`, what the input and the state give to the three gates.

    `out = h + z * (state - h)` with `z = sigmoid(xz + rz)` and
    `h = tanh(xh + sigmoid(xr + rr) * rh)`; both operands are [rows, 3 * hidden].
    """

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        return {"x": self._columns(3), "r": self._columns(3), "state": self.output}

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        x, r, n, h = _opened(self, "x", "r")
        state = te.tensor("state", "float32", self.output.shape)
        xz, xr, xh = (x[n, h + k * self.hidden] for k in range(3))
        rz, rr, rh = (r[n, h + k * self.hidden] for k in range(3))
        new = te.tanh(xh + te.sigmoid(xr + rr) * rh)
        kept = te.sigmoid(xz + rz)
        value = (1.0 - kept) * new + kept * state[n, h]
        return _scheduled("gru_state", te.compute("out", "float32", (n, h), value), self, target)


def _opened(step: "LstmCell | LstmState | GruState", *names: str):
    """Two tensors and the axes of the output."""
    n, h = te.axes(n=step.rows, h=step.hidden)
    tensors = [te.tensor(name, "float32", step.operands[name].shape) for name in names]
    return *tensors, n, h


def _scheduled(name: str, out: te.Operand, step: _Step, target: Target) -> Plan:
    schedule = te.Schedule(te.kernel(name, out), processor=target.processor)
    schedule.split("out", "h", min(target.lanes, step.hidden))
    schedule.vectorise("out", "h.i")
    return Plan(schedule)
