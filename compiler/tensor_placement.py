"""Where activations lie in main memory, some of them as parts of others.

Concatenation and resizing compute nothing: their result is there as soon as what it consists of has
been stored at the right places. So an activation that is made on the accelerator is stored straight
into the result that it becomes a part of, as often as it appears there, and whoever else reads it
reads it there. Only what already is a part of another result, or comes from the host, is copied.
What a slice picks is read where it lies.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .accelerator.constants import align
from .accelerator.dma import DramTensor
from .graph import Graph, Node, QConcat, QResize, QSlice
from .kernels.movement import TensorCopy
from .memory_plan import Lifetime


@dataclass(frozen=True, slots=True)
class TensorPlacement:
    """Where a value lies inside the place of a whole one, which may be itself.

    Parameters
    ----------
    whole
        The value whose place it is.
    shape
        int8[N, H, W, C] with padding channels.
    channels
        Of the value; in a part, what follows belongs to another part.
    first
        First byte in that place.
    strides
        Bytes per step of each dimension; empty for the whole itself, row-major.
    copies
        How often it lies there, and how many bytes apart, along one direction after another.
    """

    whole: str
    shape: tuple[int, ...]
    channels: int
    first: int = 0
    strides: tuple[int, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()

    def resident(self, offset: int) -> DramTensor:
        """The value in main memory, where the whole one begins at byte `offset`."""
        base = offset + self.first
        return DramTensor(base, self.shape, self.strides, self.channels, self.copies)

    @property
    def end(self) -> int:
        """The byte after the last that is read or written, padding channels included."""
        steps = list(zip(self.shape, self.resident(0).strides, strict=True)) + list(self.copies)
        return self.first + 1 + sum((extent - 1) * stride for extent, stride in steps)


@dataclass(frozen=True, slots=True)
class TensorPlacements:
    """TensorPlacements of all activations of a segment, and what must be copied.

    Parameters
    ----------
    of
        By value; a copy has one too, under a name that no value has.
    copies
        What a movement must copy, by its result.
    """

    of: Mapping[str, TensorPlacement]
    copies: Mapping[str, tuple[TensorCopy, ...]]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of every place, by the value that it is the whole of."""
        sizes: dict[str, int] = {}
        for placement in self.of.values():
            sizes[placement.whole] = max(placement.end, sizes.get(placement.whole, 0))
        return sizes

    def lifetimes(self, spans: Mapping[str, tuple[int, int]]) -> list[Lifetime]:
        """How long each place is needed: as long as any value that lies there.

        Parameters
        ----------
        spans
            First and last step of every value that reaches main memory.
        """
        merged: dict[str, tuple[int, int]] = {}
        for name, (first, last) in spans.items():
            whole = self.of[name].whole
            begin, end = merged.get(whole, (first, last))
            merged[whole] = min(begin, first), max(end, last)
        sizes = self.sizes
        return [Lifetime(name, sizes[name], *span) for name, span in merged.items()]

    def dram(self, offsets: Mapping[str, int]) -> dict[str, DramTensor]:
        """All that have a place in main memory, by the offsets of the places."""
        return {
            name: placement.resident(offsets[placement.whole])
            for name, placement in self.of.items()
            if placement.whole in offsets
        }

    def apart(self) -> tuple[dict[str, DramTensor], int]:
        """All of them, every place for itself, and the bytes that these take together."""
        offsets, size = {}, 0
        for name, bytes_ in self.sizes.items():
            offsets[name] = size
            size += align(bytes_)
        return self.dram(offsets), size


def place_tensors(
    graph: Graph, nodes: Sequence[Node], stored: Mapping[str, tuple[int, ...]]
) -> TensorPlacements:
    """Decide where the activations of a segment lie.

    Parameters
    ----------
    nodes
        Its nodes, in order.
    stored
        Shape of every activation with padding, where it lies alone.
    """
    placements: dict[str, TensorPlacement] = {}
    copies: dict[str, tuple[TensorCopy, ...]] = {}
    made = {node.output.name for node in nodes}
    # What a result is a part of is known before what its own parts are.
    for node in reversed(nodes):
        if isinstance(node.attributes, (QConcat, QResize)):
            copies[node.output.name] = _store_parts(node, graph, stored, made, placements)
    picked = {node.output.name for node in nodes if isinstance(node.attributes, QSlice)}
    for name in stored:
        if name not in picked:
            placements.setdefault(name, _alone(name, graph, stored))
    for node in nodes:
        if isinstance(node.attributes, QSlice):
            copies[node.output.name] = _pick(node, graph, stored, placements)
    return TensorPlacements(placements, copies)


def _store_parts(
    node: Node,
    graph: Graph,
    stored: Mapping[str, tuple[int, ...]],
    made: Collection[str],
    placements: dict[str, TensorPlacement],
) -> tuple[TensorCopy, ...]:
    """Give what a result consists of a placement there; what cannot live there is copied."""
    name = node.output.name
    whole = placements.setdefault(name, _alone(name, graph, stored))
    copied: list[TensorCopy] = []
    for index, (value, part) in enumerate(_parts(node, graph, whole, stored)):
        if value in made and value not in placements:
            placements[value] = part
        else:
            target = _fresh(f"{name} part {index}", stored)
            placements[target] = part
            copied.append(TensorCopy(value, value, target))
    return tuple(copied)


def _pick(
    node: Node,
    graph: Graph,
    stored: Mapping[str, tuple[int, ...]],
    placements: dict[str, TensorPlacement],
) -> tuple[TensorCopy, ...]:
    """Leave what a slice picks where it lies, unless it has a placement elsewhere."""
    name, piece = node.output.name, _piece(node, graph, placements[node.inputs[0]], stored)
    if name not in placements:
        placements[name] = piece
        return ()
    source = _fresh(f"{name} there", stored)
    placements[source] = piece
    return (TensorCopy(name, source, name),)


def _alone(name: str, graph: Graph, stored: Mapping[str, tuple[int, ...]]) -> TensorPlacement:
    return TensorPlacement(name, stored[name], graph.types[name].shape[-1])


def _parts(
    node: Node, graph: Graph, whole: TensorPlacement, stored: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, TensorPlacement]]:
    """What a result consists of, each value with its placement in the result's."""
    strides = whole.resident(0).strides
    operator, first = node.attributes, whole.first
    for value in node.inputs:
        *pixels, channels = graph.types[value].shape
        shape = (*pixels, stored[value][-1])
        part = replace(whole, shape=shape, channels=channels, first=first, strides=strides)
        if isinstance(operator, QConcat):
            yield value, part
            first += (*pixels, channels)[operator.axis] * strides[operator.axis]
        else:
            assert isinstance(operator, QResize)
            n, row, column, c = strides
            rows, columns = operator.factors
            apart = (n, row * rows, column * columns, c)
            copies = (*whole.copies, (rows, row), (columns, column))
            yield value, replace(part, strides=apart, copies=copies)


def _piece(
    node: Node, graph: Graph, whole: TensorPlacement, stored: Mapping[str, tuple[int, ...]]
) -> TensorPlacement:
    """Where what a slice picks lies in the value that it is picked from."""
    operator, name = node.attributes, node.output.name
    assert isinstance(operator, QSlice)
    *pixels, channels = graph.types[name].shape
    strides = whole.resident(0).strides
    first = sum(start * stride for start, stride in zip(operator.starts, strides, strict=True))
    return TensorPlacement(
        whole.whole,
        (*pixels, stored[name][-1]),
        channels,
        whole.first + first,
        tuple(step * stride for step, stride in zip(operator.steps, strides, strict=True)),
    )


def _fresh(name: str, taken: Mapping[str, object]) -> str:
    while name in taken:
        name += "'"
    return name
