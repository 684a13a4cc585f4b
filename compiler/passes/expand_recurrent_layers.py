"""Write recurrent layers of few steps as dense layers and elementwise functions, step by step.

The product of the inputs is one dense layer for all steps, and each step has one for its state. The
states stay in float. A network that a caller steps through time has one step.
"""

import numpy as np

from ..graph import Builder, Graph, Node, drop_unused, evaluate_operator
from ..graph import operators as ops
from ..graph.functions import UNARY
from ..graph.operators import Recurrent
from ..graph.operators.recurrent import as_unary, real_weights

MAX_CELLS = 16
"""Maximum number of steps, times directions, of a layer; the host runs longer ones in one loop."""


def expand_recurrent_layers(graph: Graph) -> Graph:
    """Replace recurrent layers with constant weights and at most `MAX_CELLS` steps by their cells.

    Layers with peepholes, clipping, coupled gates or sequences of different lengths stay.
    """
    chosen = {node.outputs[0].name for node in graph.nodes if _is_expanded(graph, node)}
    if not chosen:
        return graph
    builder = Builder.from_graph(graph)
    for node in graph.nodes:
        if node.outputs[0].name in chosen:
            _Cells(builder, node).expand()
        else:
            builder.append(node)
    return drop_unused(builder.graph(graph.outputs))


def _is_expanded(graph: Graph, node: Node) -> bool:
    operator = node.attributes
    if not isinstance(operator, Recurrent) or graph.types[node.inputs[0]].dtype != "float32":
        return False
    steps, directions = node.outputs[0].type.shape[:2]
    fixed = (*node.inputs[1:5], *node.inputs[operator.states.stop :])
    if not all(graph.is_constant(name) for name in fixed) or steps * directions > MAX_CELLS:
        return False
    usual = not operator.clip and not operator.input_forget
    usual = usual and all(name in UNARY for name, _, _ in operator.activations)
    peepholes = node.inputs[operator.states.stop : operator.scales.start]
    usual = usual and bool((graph.data(node.inputs[4]) == steps).all())
    return usual and not any(graph.data(name).any() for name in peepholes)


class _Cells:
    """One layer, being written into a builder."""

    def __init__(self, builder: Builder, node: Node) -> None:
        assert isinstance(node.attributes, Recurrent)
        self.builder, self.node, self.operator = builder, node, node.attributes
        self.steps, _, self.samples, self.hidden = node.outputs[0].type.shape

    def expand(self) -> None:
        """Emit all directions, and the outputs under their names."""
        builder, directions = self.builder, self.node.outputs[0].type.shape[1]
        rows = [self._direction(index) for index in range(directions)]
        every, *last = zip(*rows, strict=True)
        for value, parts, axis in zip(self.node.outputs, (every, *last), (1, 0, 0), strict=False):
            builder.append(Node(self.node.name, ops.Concat(axis), tuple(parts), (value,)))

    def _direction(self, index: int) -> tuple[str, ...]:
        """Emit one direction: all states [S, 1, N, H], the last one and the last cell [1, N, H]."""
        kind, data = self.operator.kind, self.builder.data
        scales = [data(name) for name in self.node.inputs[self.operator.scales]]
        w, r = map(data, self.node.inputs[1:3])
        w, r = (one[index] for one in real_weights(w, r, scales))
        bias = data(self.node.inputs[3])[index]
        own, recurrent = np.split(bias, 2)
        apart = np.zeros_like(recurrent)
        if kind == "GRU" and self.operator.linear_before_reset:
            apart[2 * self.hidden :] = recurrent[2 * self.hidden :]
        parts = self._dense(self.node.inputs[0], w, own + recurrent - apart)
        states = [
            self._emit(ops.Reshape((self.samples, self.hidden)), self._row(name, index))
            for name in self.node.inputs[self.operator.states]
        ]
        every: dict[int, str] = {}
        backwards = self.operator.direction == "reverse" or index == 1
        for step in range(self.steps)[:: -1 if backwards else 1]:
            gates = len(w)
            given = self._emit(ops.Reshape((self.samples, gates)), self._row(parts, step))
            states = getattr(self, f"_{kind.lower()}")(index, given, states, r, apart)
            every[step] = self._emit(ops.Reshape((1, 1, self.samples, self.hidden)), states[0])
        listed = self._emit(ops.Concat(0), *(every[step] for step in range(self.steps)))
        shape = ops.Reshape((1, self.samples, self.hidden))
        return (listed, *(self._emit(shape, state) for state in states))

    def _rnn(self, index: int, given: str, states: list[str], r: np.ndarray, bias) -> list[str]:
        total = self._sum(given, self._dense(states[0], r, bias))
        return [self._function(index, 0, total)]

    def _lstm(self, index: int, given: str, states: list[str], r: np.ndarray, bias) -> list[str]:
        state, cell = states
        gates = self._sum(given, self._dense(state, r, bias))
        i, o, f, c = (self._gate(gates, place) for place in range(4))
        i, o, f = (self._function(index, 0, gate) for gate in (i, o, f))
        kept = self._emit(ops.Binary("Mul"), f, cell)
        new = self._emit(ops.Binary("Mul"), i, self._function(index, 1, c))
        cell = self._emit(ops.Binary("Add"), kept, new)
        return [self._emit(ops.Binary("Mul"), o, self._function(index, 2, cell)), cell]

    def _gru(self, index: int, given: str, states: list[str], r: np.ndarray, bias) -> list[str]:
        (state,), hidden = states, self.hidden
        late = not self.operator.linear_before_reset
        rows = slice(None, 2 * hidden) if late else slice(None)
        product = self._dense(state, r[rows], bias[rows])
        gates = self._sum(self._gate(given, 0, 2), self._gate(product, 0, 2))
        both = self._function(index, 0, gates)
        update, reset = (self._gate(both, place) for place in range(2))
        if late:
            inner = self._emit(ops.Binary("Mul"), reset, state)
            inner = self._dense(inner, r[2 * hidden :], bias[2 * hidden :])
        else:
            inner = self._emit(ops.Binary("Mul"), reset, self._gate(product, 2))
        total = self._emit(ops.Binary("Add"), self._gate(given, 2), inner)
        new = self._function(index, 1, total)
        one = self.builder.constant(np.array(1, np.float32))
        other = self._emit(ops.Binary("Sub"), one, update)
        kept = self._emit(ops.Binary("Mul"), update, state)
        return [self._emit(ops.Binary("Add"), kept, self._emit(ops.Binary("Mul"), other, new))]

    def _emit(self, operator: ops.Operator, *inputs: str) -> str:
        """Emit a node, or a constant if all its inputs are constant."""
        if all(map(self.builder.is_constant, inputs)):
            arrays = [self.builder.data(name) for name in inputs]
            return self.builder.constant(evaluate_operator(operator, arrays), self.node.name)
        return self.builder.emit(operator, inputs, self.node.name)

    def _dense(self, x: str, weights: np.ndarray, bias: np.ndarray) -> str:
        """Emit `x @ weights.T + bias`."""
        held = self.builder.constant(np.ascontiguousarray(weights.T), f"{self.node.name}.weights")
        product = self._emit(ops.MatMul(), x, held)
        return self._emit(ops.Binary("Add"), product, self.builder.constant(bias))

    def _sum(self, a: str, b: str) -> str:
        """Emit `a + b`, unless b is zero."""
        if self.builder.is_constant(b) and not self.builder.data(b).any():
            return a
        return self._emit(ops.Binary("Add"), a, b)

    def _row(self, x: str, index: int) -> str:
        """Emit one element of the first axis, which stays."""
        shape = self.builder.types[x].shape
        if shape[0] == 1:
            return x
        starts = (index, *(0,) * (len(shape) - 1))
        return self._emit(ops.Slice(starts, (index + 1, *shape[1:]), (1,) * len(shape)), x)

    def _gate(self, gates: str, place: int, count: int = 1) -> str:
        """Emit the columns of one gate, or of neighbouring ones."""
        start = place * self.hidden
        stop = start + count * self.hidden
        return self._emit(ops.Slice((0, start), (self.samples, stop), (1, 1)), gates)

    def _function(self, index: int, place: int, x: str) -> str:
        """Emit an activation of a direction."""
        functions = self.operator.activations
        count = len(functions) // self.node.outputs[0].type.shape[1]
        name, alpha, beta = functions[index * count + place]
        return self._emit(as_unary(name, alpha, beta), x)
