"""The source of each element after any chain of movements, found by moving element numbers.

Exporters write one movement in many ways: as slices and a concatenation, a Gather, reshapes around
a Transpose, or an Expand. All of them move the same elements.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ..graph import Node, evaluate_operator
from ..graph import operators as ops
from ..rewriting import GraphView

MOVES = (ops.Reshape, ops.Transpose, ops.Slice, ops.QSlice, ops.Gather, ops.Expand)
"""Movements of the first operand."""


TURNS = (ops.Reshape, ops.Transpose)
"""Those that keep all elements, each once."""


def moving_node(
    view: GraphView, name: str, moves: tuple[type[ops.Operator], ...] = MOVES
) -> Node | None:
    """Return the node of a value if it moves the elements of its first operand, in a known way."""
    node = view.producer(name)
    if node is None or not isinstance(node.attributes, moves):
        return None
    return node if all(map(view.is_constant, node.inputs[1:])) else None


def moving_nodes(
    view: GraphView, name: str, moves: tuple[type[ops.Operator], ...] = MOVES
) -> Sequence[Node]:
    """Return the consecutive movements that make a value, the first one first."""
    chain: list[Node] = []
    while (node := moving_node(view, name, moves)) is not None:
        chain.append(node)
        name = node.inputs[0]
    return chain[::-1]


def moved_elements(
    view: GraphView, name: str, moves: tuple[type[ops.Operator], ...] = MOVES
) -> tuple[str, np.ndarray]:
    """Return the value from which movements alone make another, and each element's place in it.

    With Pad among the movements, the place of padding is -1.
    """
    chain = moving_nodes(view, name, moves)
    source = chain[0].inputs[0] if chain else name
    kind = view.types[source]
    places = np.arange(kind.elements).reshape(kind.shape)
    for node in chain:
        rest, move = map(view.data, node.inputs[1:]), node.attributes
        move = replace(move, value=-1) if isinstance(move, ops.Pad) else move
        places = evaluate_operator(move, [places, *rest])
    return source, places


def turned_elements(places: np.ndarray) -> tuple[tuple[int, ...], ops.Transpose] | None:
    """Return the shape and the Transpose that move the elements of an array to these places.

    The result is to be reshaped if the shape of `places` joins some of its axes. None if no
    Transpose moves elements so.
    """
    axes: list[tuple[int, float]] = []
    for axis, size in enumerate(places.shape):
        line = places.transpose(axis, *(i for i in range(places.ndim) if i != axis))
        if size > 1:
            axes += _sizes_and_strides(line.reshape(size, -1)[:, 0])
        else:  # beside the axis before, so that the others keep the order of usual forms
            axes.append((1, axes[-1][1] if axes else np.inf))
    order = sorted(range(len(axes)), key=lambda index: -axes[index][1])
    shape = tuple(axes[index][0] for index in order)
    turn = ops.Transpose(tuple(order.index(index) for index in range(len(axes))))
    if prod(shape) != places.size:
        return None
    given = np.arange(places.size).reshape(shape).transpose(turn.permutation)
    return (shape, turn) if np.array_equal(given.reshape(places.shape), places) else None


def _sizes_and_strides(line: np.ndarray) -> Sequence[tuple[int, float]]:
    """Return the extents and distances of the loops, outermost first, that visit some places."""
    if len(line) == 1:
        return ()
    step = int(line[1] - line[0])
    run = np.flatnonzero(np.diff(line) != step)
    length = int(run[0]) + 1 if run.size else len(line)
    return (*_sizes_and_strides(line[::length]), (length, step))
