"""Recurrent layers on the host: one product for the inputs of all steps, then a loop of kernels.

Float32 layers with constant weights become kernels; NumPy computes all others. Weights of bytes
stay bytes. The cell of a layer is a list of calls, which name the arrays that they work on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from ..cpu import Description, Elementwise, MatrixProduct, per_row_epilogue, real_epilogue
from ..cpu.kernels.matrix_product import limit_of
from ..cpu.kernels.recurrent import RecurrentUpdate
from ..formulas import Formula, substituted
from ..graph import Graph, Node
from ..graph.operators import Recurrent
from ..graph.operators.recurrent import FUNCTIONS, GATE_FUNCTIONS, formula_of
from .formulas import NoFormulaError, float_formula, number
from .kernel import HostStep

Parts = dict[str, tuple[str, int]]
"""Operands of an update: the array of each one, and its number of gates."""


@dataclass(frozen=True, slots=True)
class CellCall:
    """A call of a kernel in every step.

    Parameters
    ----------
    kernel : Description
        The kernel.
    operands : mapping
        The array of each operand that is not constant. `given` is the inputs' part of this step,
        `before` the state of the step before, `live` 1 for samples that have not ended, else 0.
    out : str
        The array that it computes: `made`, the new state, `cell`, `shown`, the state that the layer
        gives for this step, or any other.
    constants : mapping
        The kernel's constants.
    """

    kernel: Description
    operands: Mapping[str, str]
    out: str
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a recurrent layer.

    Parameters
    ----------
    backwards : bool
        Whether the last time step comes first.
    inputs : CellCall
        The product of all steps' inputs `x` with their weights: [steps * samples, gates * hidden].
    cell : tuple of CellCall
        The calls of a step.
    """

    backwards: bool
    inputs: CellCall
    cell: tuple[CellCall, ...]


@dataclass(frozen=True, slots=True)
class Recurrence(HostStep):
    """A recurrent layer as kernels.

    Parameters
    ----------
    nodes : tuple of Node
        The graph's node, alone.
    directions : tuple of Direction
        One direction or two.
    steps : int
        Number of time steps that are computed. All samples end with the last one or before; their
        states in later ones are zeros.
    live : CellCall, optional
        Computes, for sequences of different lengths, which samples have not ended in each step:
        float32[steps, samples].
    exact : bool
        As in `HostKernel`.
    """

    nodes: tuple[Node, ...]
    directions: tuple[Direction, ...]
    steps: int
    live: CellCall | None = None
    exact: bool = False

    @property
    def operator(self) -> Recurrent:
        """The node's attributes."""
        assert isinstance(self.node.attributes, Recurrent)
        return self.node.attributes

    @property
    def node(self) -> Node:
        return self.nodes[0]

    @property
    def x(self) -> str:
        """The inputs of all steps."""
        return self.node.inputs[0]

    @property
    def states(self) -> tuple[str, ...]:
        """The first state, and for LSTM the first cell state."""
        return self.node.inputs[self.operator.states]

    @property
    @override
    def reads(self) -> tuple[str, ...]:
        """Values that it reads in a run: x, the first states, and lengths if steps are masked."""
        return (self.x, *self.states, *(self.live.operands.values() if self.live else ()))

    @property
    def samples(self) -> int:
        """Number of samples computed together."""
        return self.node.outputs[0].type.shape[2]

    @property
    def hidden(self) -> int:
        """Size of a sample's state."""
        return self.node.outputs[0].type.shape[3]

    @override
    def descriptions(self) -> tuple[Description, ...]:
        calls = [call for d in self.directions for call in (d.inputs, *d.cell)]
        return tuple(call.kernel for call in (*calls, *([self.live] if self.live else ())))


def find_recurrences(graph: Graph, nodes: Iterable[Node]) -> tuple[Recurrence, ...]:
    """Return the host's recurrent layers that become kernels."""
    return tuple(found for node in nodes if (found := _recurrence(graph, node)) is not None)


def _recurrence(graph: Graph, node: Node) -> Recurrence | None:
    operator = node.attributes
    if not isinstance(operator, Recurrent):
        return None
    x, (steps, count, samples, _) = graph.types[node.inputs[0]], node.outputs[0].type.shape
    fixed = (*node.inputs[1:4], *node.inputs[operator.states.stop :])
    if x.dtype != "float32" or not (x.elements and node.outputs[0].type.elements):
        return None
    if not all(map(graph.is_constant, fixed)):
        return None
    lengths = node.inputs[4]
    known = graph.data(lengths) if graph.is_constant(lengths) else None
    if known is not None:
        steps = min(steps, int(known.max()))
    if steps < 1:
        return None
    live = None
    if known is None or (known < steps).any():
        live = _live(steps, samples, lengths)
    try:
        cells = [_Cell(graph, node, index, steps, live is not None) for index in range(count)]
        directions = tuple(cell.direction() for cell in cells)
    except NoFormulaError:
        return None
    return Recurrence((node,), directions, steps, live)


def _live(steps: int, samples: int, lengths: str) -> CellCall:
    """Return the call that compares each step with the lengths."""
    kernel = Elementwise(
        (steps, samples),
        (("step", "int32"), ("lengths", "int32")),
        ("real", ("less", "step", "lengths")),
        broadcast=(("step", (steps, 1)), ("lengths", (1, samples))),
        bound=("step",),
    )
    step = np.arange(steps, dtype=np.int32)[:, None]
    return CellCall(kernel, {"lengths": lengths}, "live", {"step": step})


class _Cell:
    """Writes the calls of one direction."""

    def __init__(self, graph: Graph, node: Node, index: int, steps: int, masked: bool) -> None:
        assert isinstance(node.attributes, Recurrent)
        self.operator, self.index, self.masked = node.attributes, index, masked
        self.steps, (self.samples, self.hidden) = steps, node.outputs[0].type.shape[2:]
        self.w, self.r, bias = (graph.data(name)[index] for name in node.inputs[1:4])
        scales = [graph.data(name)[index] for name in node.inputs[self.operator.scales]]
        self.w_scale, self.r_scale = scales or (None, None)
        own, recurrent = np.split(bias, 2)
        self.late = np.zeros_like(recurrent)
        """Bias that is added to the product of the state, not to that of the inputs."""
        if self.operator.kind == "GRU" and self.operator.linear_before_reset:
            # the reset gate multiplies this part too
            self.late[2 * self.hidden :] = recurrent[2 * self.hidden :]
        self.bias = own + (recurrent - self.late)
        self.constants: dict[str, np.ndarray] = {}
        """Constants of the updates, arrays that have these names."""
        for name in node.inputs[self.operator.states.stop : self.operator.scales.start]:
            if (peepholes := graph.data(name)[index]).any():
                self.constants["peepholes"] = peepholes[None]
        self.calls: list[CellCall] = []

    def direction(self) -> Direction:
        """Write the calls of the inputs and of a step."""
        getattr(self, f"_{self.operator.kind.lower()}")()
        if self.masked:
            state = ("select", ("truth", "live"), "state.0", 0.0)
            self._update("shown", state, {"state": ("made", 1), "live": ("live", 0)})
        rows = self.steps * self.samples
        inputs, constants = _product(rows, self.w, self.w_scale, self.bias)
        backwards = self.operator.direction == "reverse" or self.index == 1
        call = CellCall(inputs, {"x": "x"}, "parts", constants)
        return Direction(backwards, call, tuple(self.calls))

    def _rnn(self) -> None:
        self._multiply("before", "gates", residual=True)
        self._update_state(self._function(0, "gates.0"), {"gates": ("gates", 1)})

    def _lstm(self) -> None:
        parts: Parts = {"gates": ("gates", 4), "cell": ("cell", 1)}
        parts |= {name: (name, 3) for name in self.constants}
        self._multiply("before", "gates", residual=True)
        kept = self._function(0, self._peeping(0, 0))
        forgotten: Formula = ("sub", 1.0, kept)
        if not self.operator.input_forget:
            forgotten = self._function(0, self._peeping(2, 2))
        added = ("mul", kept, self._function(1, "gates.3"))
        self._update_live("cell", ("add", ("mul", forgotten, "cell.0"), added), "cell.0", parts)
        shown = self._function(0, self._peeping(1, 1))
        self._update_state(("mul", shown, self._function(2, "cell.0")), parts)

    def _peeping(self, gate: int, peephole: int) -> Formula:
        """Return a gate of LSTM, with its part of the cell state if there are peepholes."""
        name = f"gates.{gate}"
        if not self.constants:
            return name
        return ("add", name, ("mul", f"peepholes.{peephole}", "cell.0"))

    def _gru(self) -> None:
        early = self.operator.linear_before_reset
        self._multiply("before", "gates", slice(None, None if early else 2 * self.hidden))
        parts: Parts = {
            "x": ("given", 3),
            "r": ("gates", 3 if early else 2),
            "state": ("before", 1),
        }
        update, reset = (self._function(0, ("add", f"x.{gate}", f"r.{gate}")) for gate in range(2))
        inner: Formula = ("mul", reset, "r.2")
        if not early:
            self._update("kept", ("mul", reset, "state.0"), parts)
            self._multiply("kept", "inner", slice(2 * self.hidden, None))
            parts, inner = {**parts, "inner": ("inner", 1)}, "inner.0"
        new = self._function(1, ("add", "x.2", inner))
        rest = ("mul", ("sub", 1.0, update), new)
        self._update_state(("add", rest, ("mul", update, "state.0")), parts)

    def _multiply(
        self, x: str, out: str, rows: slice = slice(None), residual: bool = False
    ) -> None:
        """Call the product of an array with rows of the recurrent weights."""
        scale = None if self.r_scale is None else self.r_scale[rows]
        kernel, constants = _product(self.samples, self.r[rows], scale, self.late[rows], residual)
        operands = {"x": x, "residual": "given"} if residual else {"x": x}
        self.calls.append(CellCall(kernel, operands, out, constants))

    def _update_state(self, formula: Formula, parts: Parts) -> None:
        """Call the update that makes the new state."""
        if self.masked:
            parts = {**parts, "state": ("before", 1)}
        self._update_live("made", formula, "state.0", parts)

    def _update_live(self, out: str, formula: Formula, old: Formula, parts: Parts) -> None:
        """Call an update that keeps the old values of samples that have ended."""
        if self.masked:
            formula = ("select", ("truth", "live"), formula, old)
            parts = {**parts, "live": ("live", 0)}
        self._update(out, formula, parts)

    def _update(self, out: str, formula: Formula, parts: Parts) -> None:
        """Call an update."""
        bound = {name: self.constants[name] for name in parts if name in self.constants}
        gates = tuple((name, count) for name, (_, count) in parts.items())
        kernel = RecurrentUpdate(self.samples, self.hidden, gates, formula, tuple(bound))
        operands = {name: array for name, (array, _) in parts.items() if name not in bound}
        self.calls.append(CellCall(kernel, operands, out, bound))

    def _function(self, place: int, x: Formula) -> Formula:
        """Return an activation of the direction."""
        first = self.index * FUNCTIONS[self.operator.kind]
        if (clip := self.operator.clip) and place < GATE_FUNCTIONS:
            x = ("clip", x, number(-clip), number(clip))
        formula = formula_of(self.operator.activations[first + place])
        return substituted(float_formula(formula), {"x": x})


def _product(
    rows: int,
    w: np.ndarray,
    scale: np.ndarray | None,
    bias: np.ndarray,
    residual: bool = False,
) -> tuple[Description, Mapping[str, np.ndarray]]:
    """Return a product with weights [columns, inner] and its constants; bytes have a scale."""
    columns, inner = w.shape
    w = np.ascontiguousarray(w.T)
    extents = rows, inner, columns
    if scale is None:
        described = MatrixProduct(*extents, epilogue=real_epilogue(residual=residual))
        return described, {"w": w, "bias": bias}
    mixed = MatrixProduct(
        *extents,
        epilogue=per_row_epilogue(residual),
        weights=str(w.dtype),
        limit=limit_of(w),
    )
    return mixed, {"w": w, "factor": scale, "bias": bias}
