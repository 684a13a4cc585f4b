"""Recurrent layers on the host: one product for the inputs of all steps, then a loop of kernels.

Float32 layers of whole sequences with constant weights and ONNX's default activations become
kernels. A GRU must apply its reset gate after the product, as exporters write it. NumPy computes
all other layers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..cpu import Convolution, Description, matrix_product
from ..cpu.kernels.recurrent import RecurrentUpdate
from ..graph import Graph, Node
from ..graph.operators import Recurrent

USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
"""Activations of gates that have kernels."""

ALONE = {"Tanh": "tanh", "Relu": "relu"}
"""Activations of a plain recurrent layer."""


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a recurrent layer.

    Parameters
    ----------
    backwards : bool
        Whether the last time step comes first.
    inputs : Convolution
        The product of all steps' inputs with their weights: [steps * samples, gates * hidden].
    product : Convolution
        The product of the state with the recurrent weights; with `residual`, plus the inputs' part.
    constants : mapping
        Constants of both products, by name.
    """

    backwards: bool
    inputs: Convolution
    product: Convolution
    constants: Mapping[str, Mapping[str, np.ndarray]]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrent layer as kernels.

    Parameters
    ----------
    node : Node
        The graph's node.
    directions : tuple of Direction
        One direction or two.
    """

    node: Node
    directions: tuple[Direction, ...]
    exact: bool = False

    @property
    def operator(self) -> Recurrent:
        """The node's attributes."""
        assert isinstance(self.node.attributes, Recurrent)
        return self.node.attributes

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that it computes."""
        return (self.node,)

    @property
    def reads(self) -> tuple[str, ...]:
        """Values that it reads in a run: x, the first state, and for LSTM the first cell state."""
        return (self.node.inputs[0], *self.node.inputs[5:7])

    @property
    def output(self) -> str:
        """The value that names the host's step: all states."""
        return self.node.outputs[0].name

    @property
    def outputs(self) -> tuple[str, ...]:
        """All states, the last ones, and for LSTM the last cell states."""
        return tuple(value.name for value in self.node.outputs)

    @property
    def macs(self) -> int:
        """Multiplications of its products."""
        return sum(d.inputs.macs + self.steps * d.product.macs for d in self.directions)

    @property
    def steps(self) -> int:
        """Number of time steps."""
        return self.node.outputs[0].type.shape[0]

    @property
    def samples(self) -> int:
        """Number of samples computed together."""
        return self.node.outputs[0].type.shape[2]

    @property
    def hidden(self) -> int:
        """Size of a sample's state."""
        return self.node.outputs[0].type.shape[3]

    def updates(self) -> tuple[Description, ...]:
        """Kernels that follow the product in a time step, in order."""
        kinds = {"LSTM": ("lstm_cell", "lstm_state"), "GRU": ("gru_state",)}
        return tuple(
            RecurrentUpdate(kind, self.samples, self.hidden)
            for kind in kinds.get(self.operator.kind, ())
        )

    def descriptions(self) -> tuple[Description, ...]:
        """Return the descriptions of all its kernels."""
        products = [kernel for d in self.directions for kernel in (d.inputs, d.product)]
        return (*products, *self.updates())


def find_recurrences(graph: Graph, nodes: Iterable[Node]) -> tuple[Recurrence, ...]:
    """Return the host's recurrent layers that become kernels."""
    return tuple(found for node in nodes if (found := _recurrence(graph, node)) is not None)


def _recurrence(graph: Graph, node: Node) -> Recurrence | None:
    operator = node.attributes
    if not isinstance(operator, Recurrent) or not _is_usual(graph, node, operator):
        return None
    steps, samples, features = graph.types[node.inputs[0]].shape
    w, r, bias = (graph.data(name) for name in node.inputs[1:4])
    gates, hidden = w.shape[1] // r.shape[2], r.shape[2]
    directions = []
    for index in range(len(w)):
        own, recurrent = np.split(bias[index], 2)
        activation = ALONE[operator.activations[index][0]] if operator.kind == "RNN" else ""
        product = matrix_product(
            samples,
            hidden,
            gates * hidden,
            activation=activation,
            residual=operator.kind != "GRU",
        )
        behind = np.zeros_like(recurrent)
        if operator.kind == "GRU":  # the reset gate multiplies this part of the bias too
            behind[2 * hidden :] = recurrent[2 * hidden :]
        constants = {
            "inputs": {"w": w[index].T[None, None], "bias": own + (recurrent - behind)},
            "product": {"w": r[index].T[None, None], "bias": behind},
        }
        contiguous = {
            key: {name: np.ascontiguousarray(array) for name, array in held.items()}
            for key, held in constants.items()
        }
        inputs = matrix_product(steps * samples, features, gates * hidden)
        backwards = operator.direction == "reverse" or index == 1
        directions.append(Direction(backwards, inputs, product, contiguous))
    return Recurrence(node, tuple(directions))


def _is_usual(graph: Graph, node: Node, operator: Recurrent) -> bool:
    x = graph.types[node.inputs[0]]
    steps = x.shape[0]
    if x.dtype != "float32" or not x.elements or not node.outputs[0].type.elements:
        return False
    if not all(graph.is_constant(name) for name in node.inputs[1:5]):
        return False
    if not (graph.data(node.inputs[4]) == steps).all() or operator.clip or operator.input_forget:
        return False
    names = tuple(name for name, _, _ in operator.activations)
    if operator.kind == "RNN":
        return all(name in ALONE for name in names)
    if names != USUAL[operator.kind] * (len(names) // len(USUAL[operator.kind])):
        return False
    if operator.kind == "GRU":
        return operator.linear_before_reset
    return graph.is_constant(node.inputs[7]) and not graph.data(node.inputs[7]).any()
