"""Movements: nodes that only move, repeat, join or pad elements, as strided copies.

To find where elements go, the definitions run on element numbers instead of values. So any chain of
movements, of any element type, becomes one copy from its inputs to its output. One routine copies
boxes for all of them; nothing is compiled.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from typing_extensions import override

from ...errors import CompileError
from ..cpu import Box
from ..graph import Graph, Node
from ..graph import operators as ops
from ..graph.evaluate import evaluate_operator
from ..graph.types import DTYPES
from .boxes import PADDING, boxes_of, element_numbers
from .graph_queries import in_order
from .kernel import HostStep

MAX_BOXES = 64
"""Maximum boxes of one movement; an unrolled recurrent layer joins its steps, a box each."""

MAX_NODES = 24
"""Maximum number of nodes of one movement."""

MAX_ELEMENTS = 1 << 23
"""Maximum elements of a value inside a movement: the map takes eight bytes for each."""

FILL_BYTES = 1 << 12
"""Maximum bytes of the array from which padding is copied."""


@dataclass(frozen=True, slots=True)
class Movement(HostStep):
    """Nodes that one copy computes.

    Parameters
    ----------
    nodes : tuple of Node
        The nodes in the graph's order; only the value of the last one is read outside.
    sources : tuple of str
        Values that it copies from.
    fill : ndarray or None
        Elements of padding, all equal, which are the source after the values; None without padding.
    boxes : tuple of Box
        The copies in order.
    """

    nodes: tuple[Node, ...]
    sources: tuple[str, ...]
    fill: np.ndarray | None
    boxes: tuple[Box, ...]
    exact: bool = True

    @property
    @override
    def reads(self) -> tuple[str, ...]:
        return self.sources

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(DTYPES[self.nodes[-1].output.type.dtype]).itemsize


def find_movements(graph: Graph, nodes: Sequence[Node]) -> tuple[Movement, ...]:
    """Return the movements among the host's free nodes, in order.

    Parameters
    ----------
    graph : Graph
        The whole graph.
    nodes : sequence of Node
        Nodes that no kernel computes, in the graph's order.
    """
    free = {node.outputs[0].name: node for node in nodes if _moves(graph, node)}
    found: list[Movement] = []
    for node in reversed(nodes):
        name = node.outputs[0].name
        if name not in free or isinstance(node.attributes, ops.Reshape):
            continue
        chains = (_chain(graph, node, free), (node,))
        made = next((one for chain in chains if (one := _movement(graph, chain))), None)
        if made is not None:
            found.append(made)
            for one in made.nodes:
                del free[one.output.name]
    return tuple(reversed(found))


def _moves(graph: Graph, node: Node) -> bool:
    """Whether a node may be part of a movement."""
    operator = node.attributes
    moved = node.inputs[operator.moved]
    if not moved or getattr(operator, "reduction", "none") != "none":
        return False
    sizes = [graph.types[name].elements for name in (*moved, node.output.name)]
    others = set(node.inputs) - set(moved)
    return 0 < min(sizes) <= max(sizes) <= MAX_ELEMENTS and all(map(graph.is_constant, others))


def _chain(graph: Graph, last: Node, free: Mapping[str, Node]) -> tuple[Node, ...]:
    """Return a node and the free nodes that only it reads, directly or through one another."""
    found = {last.output.name: last}
    waiting = [last]
    while waiting and len(found) < MAX_NODES:
        for name in dict.fromkeys(waiting.pop().inputs):
            node = free.get(name)
            if node is None or name in found or graph.is_output(name):
                continue
            if all(user.outputs[0].name in found for user in graph.users(name)):
                found[name] = node
                waiting.append(node)
    return in_order(graph, found.values())


def _movement(graph: Graph, nodes: tuple[Node, ...]) -> Movement | None:
    """Return the movement of nodes; None if they take too many boxes."""
    sources: dict[str, int] = {}
    numbers: dict[str, np.ndarray] = {}
    fills: set[float] = set()
    for node in nodes:
        operator = node.attributes
        if isinstance(operator, ops.Pad):
            fills.add(operator.value)
            operator = replace(operator, value=PADDING)
        moved = range(len(node.inputs))[operator.moved]
        arrays = []
        for place, name in enumerate(node.inputs):
            if place not in moved:
                arrays.append(graph.data(name))
                continue
            if name not in numbers:
                source = sources.setdefault(name, len(sources))
                numbers[name] = element_numbers(source, graph.types[name].shape)
            arrays.append(numbers[name])
        try:
            numbers[node.output.name] = evaluate_operator(operator, arrays)
        except CompileError:  # an index is out of range: a run says so
            return None
    kind = nodes[-1].output.type
    result = numbers[nodes[-1].output.name].reshape(kind.shape or (1,))
    padded = bool((result == PADDING).any())
    boxes = None if padded and len(fills) > 1 else boxes_of(result, MAX_BOXES)
    if boxes is None:
        return None
    fill = None
    if padded:
        dtype = np.dtype(DTYPES[kind.dtype])
        size = min(kind.elements, FILL_BYTES // dtype.itemsize)
        fill = np.full(size, dtype.type(fills.pop()))
        boxes = (*_filled(kind.elements, size, len(sources)), *boxes)
    return Movement(nodes, tuple(sources), fill, boxes)


def _filled(elements: int, size: int, source: int) -> Iterable[Box]:
    """Yield boxes that fill an output with the elements of an array of another size."""
    whole, rest = divmod(elements, size)
    yield Box(source, 0, 0, (whole, size), (0, 1), (size, 1))
    if rest:
        yield Box(source, 0, whole * size, (rest,), (1,), (1,))
