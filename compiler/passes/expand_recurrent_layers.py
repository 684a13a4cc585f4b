"""Write recurrent layers as dense layers and elementwise functions, step by step.

Products of the inputs are dense layers for all steps, and each step has one for its state. Narrow
layers that do not read each other, and the two directions of a layer, are computed side by side as
one cell, whose weights have blocks of zeros: what a step costs is the length of its chain, not its
width. The states stay in float. A network that a caller steps through time has one step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..graph import Builder, Graph, Node, drop_unused, evaluate_operator
from ..graph import operators as ops
from ..graph.functions import UNARY
from ..graph.operators import Recurrent
from ..graph.operators.recurrent import as_unary, real_weights
from ..reach import reach

MAX_STEPS = 64
"""Maximum number of steps of a layer that is expanded; a longer one is a loop on the host."""

MAX_WIDTH = 32
"""Maximum state channels of several cells side by side."""


def expand_recurrent_layers(graph: Graph) -> Graph:
    """Replace recurrent layers with constant weights and at most `MAX_STEPS` steps by their cells.

    Layers with peepholes, clipping, coupled gates or sequences of different lengths stay.
    """
    groups = _side_by_side(graph, [node for node in graph.nodes if _is_expanded(graph, node)])
    if not groups:
        return graph
    builder = Builder.from_graph(graph)
    grouped = {node.outputs[0].name: group for group in groups for node in group}
    waiting = [grouped.get(node.outputs[0].name, [node]) for node in graph.nodes]
    while waiting:  # the layers of a group follow all that they read
        later = []
        for group in waiting:
            if group[0].outputs[0].name in builder.types:
                continue
            if not all(name in builder.types for node in group for name in node.inputs if name):
                later.append(group)
            elif group[0].outputs[0].name in grouped:
                _expand(builder, group)
            else:
                builder.append(group[0])
        waiting = later
    return drop_unused(builder.graph(graph.outputs))


def _is_expanded(graph: Graph, node: Node) -> bool:
    operator = node.attributes
    if not isinstance(operator, Recurrent) or graph.types[node.inputs[0]].dtype != "float32":
        return False
    steps = node.outputs[0].type.shape[0]
    fixed = (*node.inputs[1:5], *node.inputs[operator.states.stop :])
    if not all(graph.is_constant(name) for name in fixed) or steps > MAX_STEPS:
        return False
    usual = not operator.clip and not operator.input_forget
    usual = usual and all(name in UNARY for name, _, _ in operator.activations)
    peepholes = node.inputs[operator.states.stop : operator.scales.start]
    usual = usual and bool((graph.data(node.inputs[4]) == steps).all())
    return usual and not any(graph.data(name).any() for name in peepholes)


def _side_by_side(graph: Graph, layers: Sequence[Node]) -> list[list[Node]]:
    """Group layers that are cells of the same kind and do not read each other."""

    def made_of(name: str) -> Iterable[str]:
        node = graph.producer(name)
        return node.inputs if node else ()

    groups: list[list[Node]] = []
    for node in layers:
        read = reach(node.inputs, made_of)
        for group in groups:
            strands = [strand for one in (*group, node) for strand in _strands(one)]
            steps = node.outputs[0].type.shape[0], group[0].outputs[0].type.shape[0]
            apart = not any(value.name in read for one in group for value in one.outputs)
            if apart and min(steps) == max(steps) > 1 and _fit_together(strands):
                group.append(node)
                break
        else:
            groups.append([node])
    return groups


@dataclass(frozen=True, slots=True)
class _Strand:
    """One direction of a layer."""

    node: Node
    operator: Recurrent
    index: int

    @property
    def functions(self) -> tuple[tuple[str, float, float], ...]:
        count = len(self.operator.activations) // self.node.outputs[0].type.shape[1]
        return self.operator.activations[self.index * count : (self.index + 1) * count]

    @property
    def backwards(self) -> bool:
        return self.operator.direction == "reverse" or self.index == 1

    @property
    def hidden(self) -> int:
        return self.node.outputs[0].type.shape[3]


def _strands(node: Node) -> list[_Strand]:
    operator = node.attributes
    assert isinstance(operator, Recurrent)
    return [_Strand(node, operator, i) for i in range(node.outputs[0].type.shape[1])]


def _fit_together(strands: Sequence[_Strand]) -> bool:
    """Tell whether one cell can compute all strands."""
    kinds = {
        (one.operator.kind, one.operator.linear_before_reset, one.functions,
         one.node.outputs[0].type.shape[2])
        for one in strands
    }  # fmt: skip
    return len(kinds) == 1 and sum(one.hidden for one in strands) <= MAX_WIDTH


def _expand(builder: Builder, group: Sequence[Node]) -> None:
    """Emit the cells of layers, and the outputs under their names."""
    strands = [strand for node in group for strand in _strands(node)]
    cells = [strands] if _fit_together(strands) else [[strand] for strand in strands]
    found = {
        (strand.node.outputs[0].name, strand.index): parts
        for cell in cells
        for strand, parts in zip(cell, _LayerCell(builder, cell).expand(), strict=True)
    }
    for node in group:
        steps, directions, samples, hidden = node.outputs[0].type.shape
        rows = [found[node.outputs[0].name, index] for index in range(directions)]
        every, *last = zip(*rows, strict=True)
        for value, parts in zip(node.outputs[1:], last, strict=False):
            builder.append(Node(node.name, ops.Concat(0), tuple(parts), (value,)))
        if samples == 1:  # channels side by side
            joined = builder.emit(ops.Concat(2), every, node.name) if directions > 1 else every[0]
            parts, make = (joined,), ops.Reshape((steps, directions, samples, hidden))
        else:
            shape, make = ops.Reshape((steps, 1, samples, hidden)), ops.Concat(1)
            parts = tuple(builder.emit(shape, [part], node.name) for part in every)
        builder.append(Node(node.name, make, parts, (node.outputs[0],)))


_Given = tuple[str, np.ndarray, np.ndarray]
"""Part of the inputs' product, weights and bias of some gates, in a step."""


class _LayerCell:
    """The steps of strands side by side, being written into a builder."""

    def __init__(self, builder: Builder, strands: Sequence[_Strand]) -> None:
        self.builder, self.strands = builder, strands
        self.node, self.operator = strands[0].node, strands[0].operator
        self.steps, _, self.samples, _ = self.node.outputs[0].type.shape
        self.widths = [strand.hidden for strand in strands]
        self.hidden = sum(self.widths)

    @cached_property
    def _turned(self) -> Sequence[bool]:
        """Tell which strands run against the others."""
        ways = [strand.backwards for strand in self.strands]
        return [way != ways[0] for way in ways] if self.steps > 1 else [False] * len(ways)

    def expand(self) -> Sequence[tuple[str, ...]]:
        """Emit each strand: all states [S, N, H], the last one and the last cell [1, N, H]."""
        kind = self.operator.kind
        sources, w = self._inputs()
        r = [self._weights(strand, 2) for strand in self.strands]
        r = np.concatenate([_diagonal(parts) for parts in zip(*r, strict=True)])
        biases = [
            self.builder.data(one.node.inputs[3])[one.index].reshape(2, -1, one.hidden)
            for one in self.strands
        ]
        own, recurrent = np.concatenate(biases, axis=2).reshape(2, -1)
        apart = np.zeros_like(recurrent)
        if kind == "GRU" and self.operator.linear_before_reset:
            apart[2 * self.hidden :] = recurrent[2 * self.hidden :]
        parts = [
            (self._dense(sources, w[rows], (own + recurrent - apart)[rows]), r[rows], apart[rows])
            for rows in self._gates()
        ]
        states = [self._state(place) for place in range(*self.operator.states.indices(8))]
        every: dict[int, str] = {}
        for step in range(self.steps)[:: -1 if self.strands[0].backwards else 1]:
            given = [
                (self._emit(ops.Reshape((self.samples, len(r))), self._cut(part, 0, step)), r, b)
                for part, r, b in parts
            ]
            states = getattr(self, f"_{kind.lower()}")(given, states)
            every[step] = self._emit(ops.Reshape((1, self.samples, self.hidden)), states[0])
        listed = self._emit(ops.Concat(0), *(every[step] for step in range(self.steps)))
        return [self._outputs(place, listed, states) for place in range(len(self.strands))]

    def _inputs(self) -> tuple[str, np.ndarray]:
        """Emit the inputs [S, N, I] of all strands side by side, and return their weights."""
        given = [
            (one.node.inputs[0], turned)
            for one, turned in zip(self.strands, self._turned, strict=True)
        ]
        sources = list(dict.fromkeys(given))
        starts = np.cumsum([0, *(self.builder.types[name].shape[2] for name, _ in sources)])
        gates = []
        for parts in zip(*(self._weights(one, 1) for one in self.strands), strict=True):
            for source, part in zip(given, parts, strict=True):
                place = sources.index(source)
                row = np.zeros((len(part), starts[-1]), part.dtype)
                row[:, starts[place] : starts[place + 1]] = part
                gates.append(row)
        names = [self._turn(name) if turned else name for name, turned in sources]
        return self._joined(names, 2), np.concatenate(gates)

    def _weights(self, strand: _Strand, place: int) -> np.ndarray:
        """Return the weights [G, H, I] or [G, H, H] of a strand."""
        inputs, data = strand.node.inputs, self.builder.data
        scales = [data(name) for name in inputs[strand.operator.scales]]
        w, r = map(data, inputs[1:3])
        held = real_weights(w, r, scales)[place - 1][strand.index]
        return held.reshape(-1, strand.hidden, held.shape[-1])

    def _state(self, place: int) -> str:
        """Emit the initial states of all strands as one value [N, H]."""
        parts = []
        for one in self.strands:
            name = one.node.inputs[place]
            row = self._emit(ops.Reshape((self.samples, one.hidden)), self._cut(name, 0, one.index))
            parts.append(row)
        return self._joined(parts, 1)

    def _outputs(self, place: int, listed: str, states: Sequence[str]) -> tuple[str, ...]:
        """Emit the outputs of a strand."""
        start, width = sum(self.widths[:place]), self.widths[place]
        shape = ops.Reshape((1, self.samples, width))
        every = self._cut(listed, -1, start, width)
        if self._turned[place]:
            every = self._turn(every)
        last = (self._emit(shape, self._cut(state, -1, start, width)) for state in states)
        return (every, *last)

    def _gates(self) -> Sequence[slice]:
        """Return the rows of the weights that have sums, and scales, of their own."""
        ends = {"RNN": (0, 1), "LSTM": (0, 1, 2, 3, 4), "GRU": (0, 2, 3)}[self.operator.kind]
        return [slice(a * self.hidden, b * self.hidden) for a, b in pairwise(ends)]

    def _rnn(self, given: Sequence[_Given], states: Sequence[str]) -> list[str]:
        return [self._function(0, self._total(given[0], states[0]))]

    def _lstm(self, given: Sequence[_Given], states: Sequence[str]) -> list[str]:
        state, cell = states
        i, o, f, c = (self._total(gate, state) for gate in given)
        i, o, f = (self._function(0, gate) for gate in (i, o, f))
        kept = self._emit(ops.Binary("Mul"), f, cell)
        new = self._emit(ops.Binary("Mul"), i, self._function(1, c))
        cell = self._emit(ops.Binary("Add"), kept, new)
        return [self._emit(ops.Binary("Mul"), o, self._function(2, cell)), cell]

    def _gru(self, given: Sequence[_Given], states: Sequence[str]) -> list[str]:
        (state,), (both, (candidate, r, bias)) = states, given
        gates = self._function(0, self._total(both, state))
        update, reset = (self._cut(gates, -1, n * self.hidden, self.hidden) for n in range(2))
        if not self.operator.linear_before_reset:
            inner = self._dense(self._emit(ops.Binary("Mul"), reset, state), r, bias)
        elif self.builder.is_constant(state):  # a product with weights, as layers are
            row = self.builder.data(self._dense(state, r, bias))[0]
            inner = self._dense(reset, np.diag(row), np.zeros_like(row))
        else:
            inner = self._emit(ops.Binary("Mul"), reset, self._dense(state, r, bias))
        new = self._function(1, self._sum(candidate, inner))
        one = self.builder.constant(np.array(1, np.float32))
        other = self._emit(ops.Binary("Sub"), one, update)
        kept = self._emit(ops.Binary("Mul"), update, state)
        return [self._emit(ops.Binary("Add"), kept, self._emit(ops.Binary("Mul"), other, new))]

    def _total(self, given: _Given, state: str) -> str:
        """Emit the argument of a gate."""
        row, r, bias = given
        return self._sum(row, self._dense(state, r, bias))

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

    def _cut(self, x: str, axis: int, start: int, count: int = 1) -> str:
        """Emit neighbouring elements of an axis, which stays."""
        starts, stops = [0] * len(self.builder.types[x].shape), [*self.builder.types[x].shape]
        if stops[axis] == count:
            return x
        starts[axis], stops[axis] = start, start + count
        return self._emit(ops.Slice(tuple(starts), tuple(stops), (1,) * len(stops)), x)

    def _turn(self, x: str) -> str:
        """Emit the elements of the first axis in reverse."""
        order = self.builder.constant(np.arange(self.steps)[::-1].copy())
        return self._emit(ops.Gather(0), x, order)

    def _joined(self, parts: Sequence[str], axis: int) -> str:
        return parts[0] if len(parts) == 1 else self._emit(ops.Concat(axis), *parts)

    def _function(self, place: int, x: str) -> str:
        """Emit an activation."""
        return self._emit(as_unary(*self.strands[0].functions[place]), x)


def _diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Return the block-diagonal matrix of these blocks."""
    height, width = np.sum([block.shape for block in blocks], axis=0)
    made, row, column = np.zeros((height, width), blocks[0].dtype), 0, 0
    for block in blocks:
        made[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return made
