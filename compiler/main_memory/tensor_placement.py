"""Placement of activations in main memory, some of them as parts of others.

Concatenation, interleaving and resizing compute nothing: their result is complete once its parts
are stored in the right places. So the accelerator stores an activation directly into the result
that contains it, as many times as it appears there. Its other readers read it from that result. An
activation is copied only if it already is a part of another result, or comes from the host. A slice
is read from its source in place, and so are the elements of a value as an image of another shape.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...aligned import align
from ..accelerator.dma import DramTensor
from ..accelerator.kernels.movement import TensorCopy
from ..graph import Graph, Node, QConcat, QInterleave, QReshape, QResize, QSlice, QSwap
from .memory_plan import Lifetime


@dataclass(frozen=True, slots=True)
class TensorPlacement:
    """The place of a value inside a whole value, which may be itself.

    Parameters
    ----------
    whole
        The whole value.
    shape
        Shape int8[N, H, W, C] with padding channels.
    channels
        Number of channels of the value. In a part, the channels after these belong to other parts.
    first
        First byte, relative to the whole.
    strides
        Bytes per step of each dimension; empty for the whole itself, which is row-major.
    copies
        The number of copies and the bytes between them, for each direction.
    """

    whole: str
    shape: tuple[int, ...]
    channels: int
    first: int = 0
    strides: tuple[int, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()

    def resident(self, offset: int) -> DramTensor:
        """The value as a `DramTensor`, if the whole begins at byte `offset`."""
        base = offset + self.first
        return DramTensor(base, self.shape, self.strides, self.channels, self.copies)

    def bytes_at(self) -> tuple[object, ...]:
        """Return the bytes that a value covers, in a form to compare: strides of long axes only."""
        steps = zip(self.shape, self.resident(0).strides, strict=True)
        strides = tuple(stride for extent, stride in steps if extent > 1)
        return self.whole, self.first, self.shape, self.channels, strides, self.copies

    @property
    def end(self) -> int:
        """The end of the bytes that are read or written, padding channels included."""
        steps = list(zip(self.shape, self.resident(0).strides, strict=True)) + list(self.copies)
        return self.first + 1 + sum((extent - 1) * stride for extent, stride in steps)


@dataclass(frozen=True, slots=True)
class TensorPlacements:
    """TensorPlacements of all activations of a segment, and what must be copied.

    Parameters
    ----------
    of
        Placements by value. A copy also has one, with a name that no value has.
    copies
        The copies that each movement needs, by its result.
    """

    of: Mapping[str, TensorPlacement]
    copies: Mapping[str, tuple[TensorCopy, ...]]

    @property
    def sizes(self) -> dict[str, int]:
        """Size in bytes of every whole value."""
        sizes: dict[str, int] = {}
        for placement in self.of.values():
            sizes[placement.whole] = max(placement.end, sizes.get(placement.whole, 0))
        return sizes

    def lifetimes(self, spans: Mapping[str, tuple[int, int]]) -> list[Lifetime]:
        """The lifetime of each whole value: that of all values inside it.

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
        """All values in main memory, given the offsets of the whole values."""
        return {
            name: placement.resident(offsets[placement.whole])
            for name, placement in self.of.items()
            if placement.whole in offsets
        }

    def apart(self) -> tuple[dict[str, DramTensor], int]:
        """All values, with a separate place for every whole value, and the total bytes."""
        offsets, size = {}, 0
        for name, bytes_ in self.sizes.items():
            offsets[name] = size
            size += align(bytes_)
        return self.dram(offsets), size


PICKED = (QSlice, QReshape, QSwap)
"""Results that are read where their source lies."""


def place_tensors(
    graph: Graph, nodes: Sequence[Node], stored: Mapping[str, tuple[int, ...]]
) -> TensorPlacements:
    """Place the activations of a segment.

    Parameters
    ----------
    nodes
        Its nodes, in order.
    stored
        Shape of every activation with padding, as a separate tensor.
    """
    return _Placer(graph, nodes, stored).place()


class _Placer:
    def __init__(
        self, graph: Graph, nodes: Sequence[Node], stored: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.graph, self.nodes, self.stored = graph, nodes, stored
        self.made = {node.output.name for node in nodes}
        self.placements: dict[str, TensorPlacement] = {}

    def place(self) -> TensorPlacements:
        """Place all values; a result gets its own placement before its parts get theirs."""
        copies: dict[str, tuple[TensorCopy, ...]] = {}
        for node in reversed(self.nodes):
            name = node.output.name
            if isinstance(node.attributes, (QConcat, QInterleave, QResize)):
                copies[name] = self.store_parts(node)
            elif isinstance(node.attributes, QReshape):
                (given,) = node.inputs
                maker = self.graph.producer(given)
                if given in self.made and maker and isinstance(maker.attributes, PICKED):
                    continue  # its own place is known only then
                if self.channels(name) != self.channels(given):
                    self.placements.setdefault(name, self.dense(name))
                if name in self.placements:
                    self.store_as(given, self.placements[name])
        picked = {n.output.name: n for n in self.nodes if isinstance(n.attributes, PICKED)}
        for name in self.stored:
            if name not in picked:
                self.placements.setdefault(name, self.alone(name))
        copies |= {name: self.pick(node) for name, node in picked.items()}
        return TensorPlacements(self.placements, copies)

    def channels(self, name: str) -> int:
        """Number of channels of a value."""
        return self.graph.types[name].shape[-1]

    def fresh(self, name: str) -> str:
        """A name that no value has."""
        while name in self.stored:
            name += "'"
        return name

    def store_parts(self, node: Node) -> tuple[TensorCopy, ...]:
        """Place the parts of a result inside it; parts that cannot be stored there are copied."""
        name = node.output.name
        whole = self.placements.setdefault(name, self.alone(name))
        copied: list[TensorCopy] = []
        for index, (value, part) in enumerate(self.parts(node, whole)):
            if value in self.made and value not in self.placements:
                self.placements[value] = part
            else:
                target = self.fresh(f"{name} part {index}")
                self.placements[target] = part
                copied.append(TensorCopy(value, value, target))
        return tuple(copied)

    def pick(self, node: Node) -> tuple[TensorCopy, ...]:
        """Place a value inside its source; return the copies to make if it lies elsewhere."""
        (given,), name = node.inputs, node.output.name
        before: tuple[TensorCopy, ...] = ()
        if isinstance(node.attributes, QReshape):
            piece = self.reshaped(self.placements[given], name)
            if piece is None:
                together = self.fresh(f"{given} together")
                self.placements[together] = replace(self.dense(given), whole=together)
                before = (TensorCopy(given, given, together),)
                piece = self.reshaped(self.placements[together], name)
                assert piece is not None, "its elements lie in order"
        else:
            piece = self.piece(node, self.placements[given])
        if self.placements.setdefault(name, piece).bytes_at() == piece.bytes_at():
            return before
        source = self.fresh(f"{name} there")
        self.placements[source] = piece
        return (*before, TensorCopy(name, source, name))

    def store_as(self, name: str, result: TensorPlacement) -> None:
        """Place a value where a result with the same elements lies, if it has no place yet."""
        place = self.reshaped(result, name)
        if name in self.made and name not in self.placements and place is not None:
            self.placements[name] = place

    def reshaped(self, placement: TensorPlacement, name: str) -> TensorPlacement | None:
        """Return the placement of the same elements as `name`; None if they lie unevenly."""
        shape, channels = self.stored[name], self.channels(name)
        *outer, channel = placement.resident(0).strides
        given, wanted = [*placement.shape[:3]], [*shape[:3]]
        if channels != placement.channels:
            given.append(placement.channels)
            wanted.append(channels)
            outer.append(channel)
        steps = _steps(list(zip(given, outer, strict=True)), wanted)
        if steps is None or (len(steps) == 4 and steps[3] != channel and channels > 1):
            return None
        strides = (*steps[:3], channel)
        return replace(placement, shape=shape, channels=channels, strides=strides)

    def dense(self, name: str) -> TensorPlacement:
        """Return a place of its own without padding between pixels."""
        _, height, width, channels = self.graph.types[name].shape
        strides = (height * width * channels, width * channels, channels, 1)
        return replace(self.alone(name), strides=strides)

    def alone(self, name: str) -> TensorPlacement:
        """Return a place of its own."""
        return TensorPlacement(name, self.stored[name], self.channels(name))

    def parts(self, node: Node, whole: TensorPlacement) -> Iterator[tuple[str, TensorPlacement]]:
        """The parts of a result, each with its placement in the result."""
        strides = whole.resident(0).strides
        operator, first = node.attributes, whole.first
        for index, value in enumerate(node.inputs):
            *pixels, channels = self.graph.types[value].shape
            shape = (*pixels, self.stored[value][-1])
            part = replace(whole, shape=shape, channels=channels, first=first, strides=strides)
            if isinstance(operator, QConcat):
                yield value, part
                first += (*pixels, channels)[operator.axis] * strides[operator.axis]
            else:
                assert isinstance(operator, (QInterleave, QResize))
                n, row, column, c = strides
                rows, columns = operator.factors
                apart = (n, row * rows, column * columns, c)
                if isinstance(operator, QInterleave):
                    place = first + index // columns * row + index % columns * column
                    yield value, replace(part, first=place, strides=apart)
                    continue
                copies = (*whole.copies, (rows, row), (columns, column))
                yield value, replace(part, strides=apart, copies=copies)

    def piece(self, node: Node, whole: TensorPlacement) -> TensorPlacement:
        """The place of a slice in its source."""
        operator, name = node.attributes, node.output.name
        *pixels, channels = self.graph.types[name].shape
        strides = whole.resident(0).strides
        if isinstance(operator, QSwap):
            n, row, column, channel = strides
            shape = (*pixels, self.stored[name][-1])
            return replace(whole, shape=shape, strides=(n, column, row, channel))
        assert isinstance(operator, QSlice)
        first = sum(start * stride for start, stride in zip(operator.starts, strides, strict=True))
        return TensorPlacement(
            whole.whole,
            (*pixels, self.stored[name][-1]),
            channels,
            whole.first + first,
            tuple(step * stride for step, stride in zip(operator.steps, strides, strict=True)),
        )


def _steps(given: list[tuple[int, int]], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides with which other extents visit the elements of strided ones, in order."""
    spans: list[tuple[int, int]] = []
    for extent, step in given:
        if extent == 1:
            continue
        if spans and spans[-1][1] == extent * step:
            spans[-1] = spans[-1][0] * extent, step
        else:
            spans.append((extent, step))
    found: list[int] = []
    left, step = 1, 1
    for extent in reversed(wanted):
        if left == 1 and extent > 1:
            if not spans:
                return None
            left, step = spans.pop()
        found.append(step)
        if left % extent:
            return None
        left, step = left // extent, step * extent
    return tuple(reversed(found)) if left == 1 and not spans else None
