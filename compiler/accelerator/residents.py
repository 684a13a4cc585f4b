"""Activations that stay in ACT from the kernel that computes them to the kernels that read them.

A result that is stored and loaded again takes two transfers and twice the latency of main memory,
which nothing hides in small networks. So the tiles of a result take places in one buffer for all of
it, with the border that its readers see around them. A reader whose region of ACT contains that
buffer takes its tiles from there.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType

from ...aligned import round_down, round_up
from ...isa.configuration import Configuration, Memory
from ...isa.instructions import Instruction
from ..te.box import Box, extents_of, lows_of, whole_box
from ..te.nodes import TransferNest, nodes
from ..te.program import Program
from ..tensor import Tensor
from .arena import Piece
from .strided_copy import fill_bytes
from .tile_layout import TileLayout, dense_layout, distance


@dataclass(frozen=True)
class ResidentFrame:
    """A whole activation with its border.

    Parameters
    ----------
    shape
        int8[N, H, W, C] as it is stored.
    box
        All elements that readers see; those outside the shape hold `pad`.
    """

    shape: tuple[int, ...]
    box: Box
    pad: int

    @cached_property
    def size(self) -> int:
        """Bytes of the box."""
        return prod(extents_of(self.box))

    @cached_property
    def dimensions(self) -> tuple[TileLayout, ...]:
        return dense_layout(extents_of(self.box))

    def offset(self, lows: Iterable[int]) -> int:
        """Place of an element in the box."""
        return distance(lows_of(self.box), lows, self.dimensions)

    def contains(self, box: Box) -> bool:
        """Whether the frame has all elements of a box."""
        return _within(box, self.box)

    def serves(self, box: Box, pad: int) -> bool:
        """Whether a reader of a box that sees `pad` around the activation finds all of it."""
        return self.contains(box) and (pad == self.pad or _within(box, whole_box(self.shape)))

    def joined(self, box: Box, pad: int) -> "ResidentFrame":
        """The frame for one more reader; the same one if that sees other values around it."""
        whole = whole_box(self.shape)
        if _within(box, whole) or (self.box != whole and pad != self.pad):
            return self
        pairs = zip(self.box, box, strict=True)
        wider = tuple((min(one[0], two[0]), max(one[1], two[1])) for one, two in pairs)
        return ResidentFrame(self.shape, wider, pad)


NO_FRAMES: Mapping[str, ResidentFrame] = MappingProxyType({})
"""Every activation goes through main memory."""


def _within(box: Box, other: Box) -> bool:
    pairs = zip(box, other, strict=True)
    return all(first <= low and high <= last for (low, high), (first, last) in pairs)


@dataclass(slots=True)
class ResidentActivation:
    """A frame in ACT, and whether its border is filled."""

    frame: ResidentFrame
    piece: Piece
    bordered: bool = False

    def fill_border(self, configuration: Configuration) -> Iterator[Instruction]:
        """LOADs that write the border, once, before anything is written inside it."""
        if self.bordered:
            return
        self.bordered, frame = True, self.frame
        rest = list(frame.box)
        for axis, extent in enumerate(frame.shape):
            low, high = rest[axis]
            for first, last in ((low, 0), (extent, high)):
                if first >= last:
                    continue
                strip = (*rest[:axis], (first, last), *rest[axis + 1 :])
                sizes = zip(extents_of(strip), frame.dimensions, strict=True)
                base = self.piece.base + frame.offset(begin for begin, _ in strip)
                dims = [(size, place.inner) for size, place in sizes]
                yield from fill_bytes(dims, Memory.ACT, base, frame.pad, configuration)
            rest[axis] = 0, extent


def value_of(tensor: Tensor) -> str:
    """The graph value of a tensor."""
    return tensor.value or tensor.name


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is an activation as it is: no view of it and no gathered windows."""
    return tensor.view is None and tensor.patches is None and tensor.dtype == "int8"


def plain_copies(program: Program) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The buffers of ACT that are stored to, or loaded from, a whole activation; by buffer.

    Views, gathered windows and rings of rows are other arrangements of an activation.
    """
    stored: dict[str, Tensor] = {}
    loaded: dict[str, Tensor] = {}
    buffers = program.buffers
    for name, nest in program.nests.items():
        if nest.compute is not None:
            continue
        for node in nodes(nest.body):
            if not isinstance(node, TransferNest):
                continue
            source, into = buffers.get(node.source), buffers.get(name)
            memory, inside = program.tensors[name if source else node.source], source or into
            if (
                not is_plain(memory)
                or inside is None
                or inside.scope != Memory.ACT.name
                or inside.rolling
            ):
                continue
            if source is None:
                loaded[name] = memory
            elif into is None or into.scope == Memory.DRAM.name:
                stored[node.source] = memory
    return stored, loaded


def frames_of(programs: Iterable[Program]) -> dict[str, ResidentFrame]:
    """The frames of activations that one kernel computes and another one reads, by value."""
    frames: dict[str, ResidentFrame] = {}
    read: set[str] = set()
    for program in programs:
        stored, loaded = plain_copies(program)
        for buffer, tensor in loaded.items():
            value = value_of(tensor)
            frame = frames.get(value)
            if frame is not None and frame.shape == tensor.shape:
                frames[value] = frame.joined(program.domains[buffer], tensor.pad)
                read.add(value)
        for tensor in stored.values():
            frames[value_of(tensor)] = ResidentFrame(tensor.shape, whole_box(tensor.shape), 0)
    return {value: frame for value, frame in frames.items() if value in read}


def mirrored(
    regions: Mapping[str, tuple[int, int]], inputs: Iterable[tuple[str, Piece]], size: int
) -> dict[str, tuple[int, int]]:
    """The regions of a kernel, or their mirror image if that contains more of its inputs.

    Results lie in the last banks. In turn, they lie in the last and in the first ones, so that the
    next kernel has its inputs where it looks for them.
    """
    other = {name: (size - high, size - low) for name, (low, high) in regions.items()}
    given = list(inputs)
    found = [sum(_holds(each[name], piece) for name, piece in given) for each in (regions, other)]
    return other if found[1] > found[0] else dict(regions)


def exchanged(
    regions: Mapping[str, tuple[int, int]],
    inputs: Iterable[tuple[str, Piece]],
    wanted: Mapping[str, int],
    bank: int,
) -> dict[str, tuple[int, int]]:
    """The regions after banks changed places so that more inputs lie in their regions.

    Buffers with separate banks keep separate ones, since VECTOR reads two operands in one cycle.

    Parameters
    ----------
    inputs
        Those that lie in their regions stay there.
    wanted
        Bytes that a buffer keeps at least, if it has as many.
    bank
        Bytes of a bank.
    """
    found, held = dict(regions), list[tuple[str, Piece]]()
    for name, piece in sorted(inputs, key=lambda one: not _holds(regions[one[0]], one[1])):
        trial = found if _holds(found[name], piece) else _exchange(found, name, piece, wanted, bank)
        if trial and all(_holds(trial[each], one) for each, one in (*held, (name, piece))):
            found = trial
            held.append((name, piece))
    return found


def _exchange(
    regions: Mapping[str, tuple[int, int]],
    name: str,
    piece: Piece,
    wanted: Mapping[str, int],
    bank: int,
) -> dict[str, tuple[int, int]]:
    """Let a buffer exchange its first banks for those of a piece.

    Returns
    -------
    The regions; none if the two sets of banks overlap, or if another buffer shares the first ones
    or would lose bytes that it wants.
    """
    low, high = round_down(piece.base, bank), round_up(piece.end, bank)
    own = round_down(regions[name][0], bank)
    end = own + high - low
    if end > round_up(regions[name][1], bank) or (low < end and own < high):
        return {}
    found = dict(regions)
    for other, (first, last) in regions.items():
        if other == name:
            continue
        if first < end and own < last:
            return {}  # it shares a bank with the buffer
        if low <= first and last <= high:
            found[other] = first - low + own, last - low + own
        elif first < high and low < last:
            most = max((first, low), (high, last), key=lambda part: part[1] - part[0])
            if most[1] - most[0] < min(last - first, wanted[other]):
                return {}
            found[other] = most
    found[name] = low, high
    return found


def _holds(region: tuple[int, int], piece: Piece) -> bool:
    return piece.alive and region[0] <= piece.base and piece.end <= region[1]
