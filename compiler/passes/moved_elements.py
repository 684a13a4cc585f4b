"""The source of each element after any chain of movements, found by moving the numbers of elements.

Exporters write one movement in many ways: as slices and a concatenation, a Gather, reshapes around
a Transpose, or an Expand. All of them move the same elements.
"""

import numpy as np

from ..graph import Node, evaluate_operator
from ..graph import operators as ops
from ..rewriting import GraphView

MOVES = (ops.Reshape, ops.Transpose, ops.Slice, ops.QSlice, ops.Gather, ops.Expand)
"""Movements of the first operand."""


def moving_node(view: GraphView, name: str) -> Node | None:
    """Return the node of a value if it moves the elements of its first operand, in a known way."""
    node = view.producer(name)
    if node is None or not isinstance(node.attributes, MOVES):
        return None
    return node if all(map(view.is_constant, node.inputs[1:])) else None


def moved_elements(view: GraphView, name: str) -> tuple[str, np.ndarray]:
    """Return the value from which movements alone make another, and each element's place in it."""
    chain = []
    while (node := moving_node(view, name)) is not None:
        chain.append(node)
        name = node.inputs[0]
    kind = view.types[name]
    places = np.arange(kind.elements).reshape(kind.shape)
    for node in reversed(chain):
        rest = map(view.data, node.inputs[1:])
        places = evaluate_operator(node.attributes, [places, *rest])
    return name, places
