"""Products whose channels are read in parts, such as q, k and v -> one product for each part.

Exporters of attention join its projections in one product. Slices, Gather or Split and transposes
take it apart again. Products of their own need none of these movements, so that heads are read
where they lie, and each one has its own scale.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from ..graph import Graph, Node
from ..graph import operators as ops
from ..reach import reach
from ..rewriting import GraphView, Site, first_match, op, rewrite, rule
from .fold_batch_normalisation import is_matrix
from .moved_elements import moved_elements, turned_elements
from .patterns import is_per_tensor, known, reshaped

MAX_PARTS = 16
"""Number of parts beyond which a product stays whole, since each one is a layer."""

MAX_ELEMENTS = 1 << 22
"""Of a product; larger ones stay whole."""

TAKES = (ops.Reshape, ops.Transpose, ops.Slice, ops.Gather)

KNOWN = known("")
SUMS = (ops.Binary("Add"), ops.Binary("Sub"))
LINEAR = (*TAKES, ops.Concat, ops.Quantize, ops.Dequantize)
FACTORS = (ops.Binary("Mul"), ops.Binary("Div"), ops.Unary("Neg"))

MAX_STEPS = 8
"""Number of linear operators within which the channels of a rotary embedding meet again."""


class Part(NamedTuple):
    """A value that is all rows of some channels of a product.

    Attributes
    ----------
    product : str
        The result of the product.
    index : int
        Number of the part.
    channels : int64[C]
        Their numbers, ascending.
    shape, turn : tuple of int and Transpose
        The movements that make the value from the rows of these channels; see `turned_elements`.
    """

    product: str
    index: int
    channels: np.ndarray
    shape: tuple[int, ...]
    turn: ops.Transpose


def _takes(graph: Graph, name: str) -> Sequence[str]:
    """Return the values that movements make of one."""
    return [
        user.output.name
        for user in graph.users(name)
        if isinstance(user.attributes, TAKES) and all(map(graph.is_constant, user.inputs[1:]))
    ]


def _ends(graph: Graph, product: str) -> tuple[Sequence[str], bool]:
    """Return the values that only movements derive from a product, and that another operator reads.

    Also tell whether a Transpose is among the movements.
    """
    derived = reach([product], lambda name: _takes(graph, name))
    ends = [
        name
        for name in derived
        if graph.is_output(name) or len(_takes(graph, name)) < len(graph.users(name))
    ]
    readers = (user.attributes for name in derived for user in graph.users(name))
    return ends, any(isinstance(operator, ops.Transpose) for operator in readers)


def _sums(graph: Graph, end: str) -> set[str]:
    """Return the sums and concatenations near a value that are linear functions of it."""
    found: set[str] = set()
    latest = {end}
    for _ in range(MAX_STEPS):
        users = [user for name in latest for user in graph.users(name) if _is_linear(user)]
        latest = {user.outputs[0].name for user in users}
        found |= {user.outputs[0].name for user in users if _adds(user)}
    return found


def _is_linear(node: Node) -> bool:
    operator = node.attributes
    return isinstance(operator, LINEAR) or operator in FACTORS or _adds(node)


def _adds(node: Node) -> bool:
    return isinstance(node.attributes, ops.Concat) or node.attributes in SUMS


def _groups(graph: Graph, ends: Mapping[str, frozenset[int]]) -> Sequence[frozenset[int]]:
    """Return the channels of each part: those of values that share some, or that meet in a sum.

    Rotary embedding adds channels to others.
    """
    groups: list[tuple[frozenset[int], set[str]]] = []
    for end, channels in ends.items():
        sums, apart = _sums(graph, end), []
        for other, others in groups:
            if channels & other or sums & others:
                channels, sums = channels | other, sums | others
            else:
                apart.append((other, others))
        groups = [*apart, (channels, sums)]
    return sorted((channels for channels, _ in groups), key=min)


def _parts(graph: Graph, product: str) -> dict[str, Part]:
    """Return the parts in which a product is read, by value; none if it is not read in parts."""
    *outer, whole = graph.types[product].shape
    rows, (ends, turns) = prod(outer), _ends(graph, product)
    if not 0 < rows * whole <= MAX_ELEMENTS or product in ends or not turns:
        return {}  # layers read slices of channels in place
    read = {
        end: frozenset(np.unique(moved_elements(graph, end)[1] % whole).tolist()) for end in ends
    }
    groups = _groups(graph, read)
    if not groups or len(groups) > MAX_PARTS or len(groups[0]) == whole:
        return {}
    parts: dict[str, Part] = {}
    waiting = [product]
    while waiting:
        name = waiting.pop()
        _, places = moved_elements(graph, name)
        channels, column = np.unique(places % whole, return_inverse=True)
        if frozenset(channels.tolist()) in groups and places.size == rows * len(channels):
            moved = places // whole * len(channels) + column.reshape(places.shape)
            turned = turned_elements(moved)
            if turned is None:
                return {}
            index = groups.index(frozenset(channels.tolist()))
            parts[name] = Part(product, index, channels, *turned)
        elif name in ends:
            return {}
        else:
            waiting += _takes(graph, name)
    return parts


def _channelwise(view: GraphView, name: str) -> Sequence[Node]:
    """Return the nodes that compute a value channel by channel, a product with weights first.

    Empty if the value is computed in another way.
    """
    chain: list[Node] = []
    while (node := view.producer(name)) is not None:
        chain.append(node)
        variable = [each for each in node.inputs if not _is_known(view, each)]
        if len(variable) != 1 or len(node.outputs) > 1:
            return ()
        operator = node.attributes
        if isinstance(operator, ops.MatMul):
            weights = node.inputs[1]
            return chain[::-1] if variable != [weights] and is_matrix(view.types[weights]) else ()
        scaling = isinstance(operator, ops.Quantize | ops.Dequantize) and is_per_tensor(operator)
        if not scaling and not isinstance(operator, ops.Unary | ops.Binary):
            return ()
        if chain[1:] and not view.is_private(node.output.name):
            return ()
        (name,) = variable
        if view.types[name].shape != node.output.type.shape:
            return ()
    return ()


def _is_known(view: GraphView, name: str) -> bool:
    return first_match(KNOWN, view, name) is not None


def _taken(site: Site, name: str, channels: np.ndarray, label: str) -> str:
    """Emit some channels of a known value."""
    scaling = site.view.producer(name)
    held = name if scaling is None else scaling.inputs[0]
    data = site.data(held)
    if data.ndim and data.shape[-1] > 1:
        held = site.constant(np.ascontiguousarray(data[..., channels]), f"{held}.{label}")
    if scaling is None:
        return held
    dequantize = scaling.attributes
    assert isinstance(dequantize, ops.Dequantize), "the pattern allows no other operator"
    if dequantize.axis == data.ndim - 1 and len(dequantize.scales) > 1:
        scales, points = (
            tuple(given[channel] for channel in channels)
            for given in (dequantize.scales, dequantize.zero_points)
        )
        dequantize = replace(dequantize, scales=scales, zero_points=points)
    return site.emit(dequantize, held)


def split_products(graph: Graph) -> Graph:
    """Split products with weights that are read in parts."""
    parts: dict[str, Part] = {}
    for node in graph.nodes:
        name = node.outputs[0].name
        if _takes(graph, name) and _channelwise(graph, name):
            parts |= _parts(graph, name)

    @rule(op(TAKES, ...))
    def take(site: Site) -> str | None:
        """A part of move(f(MatMul(x, w))) -> move(part of f(MatMul(x, part of w)))."""
        part = parts.get(site.root.output.name)
        if part is None:
            return None
        chain = _channelwise(site.view, part.product)
        label, y = f"{chain[0].name}[{part.index}]", ""
        for step in chain:
            operands = [
                _taken(site, each, part.channels, str(part.index))
                if _is_known(site.view, each)
                else y or each
                for each in step.inputs
            ]
            y = site.emit(step.attributes, *operands, label=label)
        turned = site.emit(part.turn, reshaped(site, y, part.shape))
        return reshaped(site, turned, site.shape)

    return rewrite(graph, take)
