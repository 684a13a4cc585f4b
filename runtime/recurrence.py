"""Recurrent layers on the host: kernels called once per time step, with advancing addresses."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiler.aligned import address_of, aligned_empty
from ..compiler.cpu import BoundKernel, CompiledKernel, Description
from ..compiler.host.recurrence import Direction, Recurrence

Load = Callable[[Description], CompiledKernel]
"""A function that returns the machine code of a kernel."""


class RecurrenceCall:
    """A recurrence with its constants bound.

    Parameters
    ----------
    recurrence : Recurrence
        The layer.
    load : Load
        A function that returns the machine code of a kernel, for its description.
    """

    def __init__(self, recurrence: Recurrence, load: Load) -> None:
        self._recurrence = recurrence
        updates = [load(description).bind() for description in recurrence.updates()]
        self._runs = [_DirectionCall(d, recurrence, updates, load) for d in recurrence.directions]

    def __call__(self, values: dict[str, np.ndarray]) -> None:
        """Compute all outputs from the inputs, and add them to the values."""
        x, *states = (np.ascontiguousarray(values[name]) for name in self._recurrence.inputs)
        rows = [run(x, *(state[index] for state in states)) for index, run in enumerate(self._runs)]
        every, *last = zip(*rows, strict=True)
        results = (np.stack(every, axis=1), *(np.stack(one) for one in last))
        values |= dict(zip(self._recurrence.outputs, results, strict=True))


class _DirectionCall:
    def __init__(
        self, direction: Direction, recurrence: Recurrence, updates: list[BoundKernel], load: Load
    ) -> None:
        self._direction, self._recurrence = direction, recurrence
        self._inputs = load(direction.inputs).bind(**direction.constants["inputs"])
        self._product = _Call(load(direction.product).bind(**direction.constants["product"]))
        self._updates = [_Call(bound) for bound in updates]
        self._gates = aligned_empty(direction.product.output.shape, "float32")

    def __call__(self, x: np.ndarray, first: np.ndarray, *cells: np.ndarray):
        """Return all states [S, N, H], the last state and for LSTM the last cell state [N, H]."""
        recurrence, kind = self._recurrence, self._recurrence.operator.kind
        steps, size = len(x), (recurrence.samples, recurrence.hidden)
        parts = self._inputs(x.reshape(self._direction.inputs.operands["x"].shape))
        every = aligned_empty((steps, *size), "float32")
        cell = aligned_empty(size, "float32")
        part, row = address_of(parts), parts.nbytes // steps
        out, state_bytes = address_of(every), every.nbytes // steps
        product, gates = self._product, address_of(self._gates)
        before = address_of(first)
        if kind == "LSTM":
            cell[...] = cells[0]
            update, finish = self._updates
            update.place(gates=gates, cell=address_of(cell), out=address_of(cell))
            finish.place(gates=gates, cell=address_of(cell))
            product.place(out=gates)
        elif kind == "GRU":
            (finish,) = self._updates
            finish.place(r=gates)
            product.place(out=gates)
        for step in range(steps)[:: -1 if self._direction.backwards else 1]:
            given, made = part + step * row, out + step * state_bytes
            if kind == "LSTM":
                product.run(x=before, residual=given)
                update.run()
                finish.run(out=made)
            elif kind == "GRU":
                product.run(x=before)
                finish.run(x=given, state=before, out=made)
            else:
                product.run(x=before, residual=given, out=made)
            before = made
        final = every[0 if self._direction.backwards else -1]
        return (every, final, cell) if kind == "LSTM" else (every, final)


class _Call:
    """A bound kernel that takes the addresses of its operands by name."""

    def __init__(self, bound: BoundKernel) -> None:
        frame, places = bound.frame()
        self._frame: Any = frame
        self._places = {**places, "out": len(frame) - 1}
        self._bound = bound  # keeps the constants alive that the frame points to

    def place(self, **addresses: int) -> None:
        """Set the addresses of operands for the following calls."""
        for name, address in addresses.items():
            self._frame[self._places[name]] = address

    def run(self, **addresses: int) -> None:
        """Run the kernel with these addresses of operands."""
        self.place(**addresses)
        self._bound.kernel.call(self._frame)
