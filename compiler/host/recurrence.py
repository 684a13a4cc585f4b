"""Recurrent layers on the host: one product for the inputs of all steps, then a loop of kernels.

Float32 layers of whole sequences with constant weights and ONNX's default activations become
kernels. A GRU must apply its reset gate after the product, as exporters write it. NumPy computes
all other layers. Weights of bytes stay bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..cpu import Convolution, Description, MixedProduct, matrix_product
from ..cpu.kernels.mixed_product import limit_of
from ..cpu.kernels.recurrent import RecurrentUpdate
from ..graph import Graph, Node
from ..graph.operators import Recurrent

USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
"""Activations of gates that have kernels."""

ALONE = {"Tanh": "tanh", "Relu": "relu"}
"""Activations of a plain recurrent layer."""


Product = Convolution | MixedProduct
"""A product with weights of float32, or of bytes."""


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a recurrent layer.

    Parameters
    ----------
    backwards : bool
        Whether the last time step comes first.
    inputs : Convolution or MixedProduct
        The product of all steps' inputs with their weights: [steps * samples, gates * hidden].
    product : Convolution or MixedProduct
        The product of the state with the recurrent weights; with `residual`, plus the inputs' part.
    constants : mapping
        Constants of both products, by name.
    """

    backwards: bool
    inputs: Product
    product: Product
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
        return (self.node.inputs[0], *self.node.inputs[self.operator.states])

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
    steps, samples, _ = graph.types[node.inputs[0]].shape
    w, r, bias = (graph.data(name) for name in node.inputs[1:4])
    scales = [graph.data(name) for name in node.inputs[operator.scales]]
    hidden = r.shape[2]
    directions = []
    for index in range(len(w)):
        own, recurrent = np.split(bias[index], 2)
        activation = ALONE[operator.activations[index][0]] if operator.kind == "RNN" else ""
        behind = np.zeros_like(recurrent)
        if operator.kind == "GRU":  # the reset gate multiplies this part of the bias too
            behind[2 * hidden :] = recurrent[2 * hidden :]
        first, second = (scale[index] for scale in scales) if scales else (None, None)
        inputs, given = _product(steps * samples, w[index], first, own + (recurrent - behind))
        product, held = _product(
            *(samples, r[index], second, behind),
            activation=activation,
            residual=operator.kind != "GRU",
        )
        backwards = operator.direction == "reverse" or index == 1
        constants = {"inputs": given, "product": held}
        directions.append(Direction(backwards, inputs, product, constants))
    return Recurrence(node, tuple(directions))


def _product(
    rows: int,
    w: np.ndarray,
    scale: np.ndarray | None,
    bias: np.ndarray,
    activation: str = "",
    residual: bool = False,
) -> tuple[Product, Mapping[str, np.ndarray]]:
    """Return a product with weights [columns, inner] and its constants; bytes have a scale."""
    columns, inner = w.shape
    w = np.ascontiguousarray(w.T)
    if scale is None:
        described = matrix_product(rows, inner, columns, activation, residual)
        return described, {"w": w[None, None], "bias": bias}
    mixed = MixedProduct(rows, inner, columns, str(w.dtype), limit_of(w), residual)
    return mixed, {"w": w, "factor": scale, "bias": bias}


def _is_usual(graph: Graph, node: Node, operator: Recurrent) -> bool:
    x = graph.types[node.inputs[0]]
    steps = x.shape[0]
    if x.dtype != "float32" or not x.elements or not node.outputs[0].type.elements:
        return False
    scales = node.inputs[operator.scales]
    if not all(graph.is_constant(name) for name in (*node.inputs[1:5], *scales)):
        return False
    if not (graph.data(node.inputs[4]) == steps).all() or operator.clip or operator.input_forget:
        return False
    names = tuple(name for name, _, _ in operator.activations)
    if operator.kind == "RNN":
        return all(name in ALONE for name in names) and not scales
    if names != USUAL[operator.kind] * (len(names) // len(USUAL[operator.kind])):
        return False
    if operator.kind == "GRU":
        return operator.linear_before_reset
    return graph.is_constant(node.inputs[7]) and not graph.data(node.inputs[7]).any()
