"""The quantiser's layers: float nodes that the accelerator computes as one layer."""

from dataclasses import dataclass

from ..graph import Graph, Node
from ..graph import operators as ops
from ..passes.sink_dequantize import MOVES
from ..rewriting import constant, either, first_match, op, repeated, value


@dataclass(frozen=True, slots=True)
class FloatLayer:
    """Float nodes that the accelerator computes as one layer.

    Attributes
    ----------
    name : str
        Name of the main node.
    kind : str
        `conv`, `dense`, `matmul` (of two activations, or with a constant matrix for each head),
        `add`, `bias` (a constant that is added), `mul`, `pool`, `norm` or `softmax` of rows,
        `table`, `state` of 16 bits and `rounded`, its int8 form, or `own`, a kernel that the
        user registered.
    inputs : tuple of str
        The activations that it reads.
    output : str
        The value that it produces.
    inside : frozenset of str
        The values of all its nodes, `output` included.
    head : str
        Output of the node with the weights (`conv`, `dense`), or of the first node.
    linear : str
        The value before the activation, bias included.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    output: str
    inside: frozenset[str]
    head: str
    linear: str

    @property
    def weighted(self) -> bool:
        return self.kind in ("conv", "dense")


def maker(graph: Graph, name: str) -> Node:
    """Return the node that produces a value of a layer."""
    node = graph.producer(name)
    assert node is not None, "a layer's values are made by nodes"
    return node


MOVE = either(
    op(ops.Pad, value(), where=lambda pad: pad.value == 0),
    *(op(MOVES, value()), op(MOVES, value(), constant())),
)
"""A node that only moves elements of its first operand."""

ORIGIN = repeated(MOVE, value("origin"))


def origin(graph: Graph, name: str) -> str:
    """Return the value that `name` becomes when moves that compute nothing are undone."""
    match = first_match(ORIGIN, graph, name)
    assert match is not None, "a value has an origin, itself if no other"
    return match["origin"]


def is_move(graph: Graph, node: Node) -> bool:
    """Tell whether a node only moves elements of its first operand."""
    return first_match(MOVE, graph, node.outputs[0].name) is not None
