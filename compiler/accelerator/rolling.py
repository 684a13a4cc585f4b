"""An activation between two steps that stays in ACT: a window of rows that rolls over the image.

Rows lie in a ring of `ring` places, each row with its padding columns. A consumer reads windows of
rows as one contiguous block, also where the ring ends: the first `overhang` places lie there a
second time, behind the end, so that no instruction has to be cut. `ring` is a multiple of the rows
by which the consumer's tiles advance, so that no window reaches further than that.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...isa.expressions import Read
from .steps import Step, box_of


@dataclass(frozen=True, slots=True)
class Rolling:
    """Geometry of the ring.

    Parameters
    ----------
    height, width, channels
        Of the activation, without padding.
    top, bottom, left, right
        Padding that the consumer reads, in rows and columns.
    pad
        Value of the padding.
    advance, span
        Rows by which the consumer's tiles advance, and rows that one of them reads.
    ring, overhang
        Places for rows, and how many of them lie a second time behind the end.
    """

    height: int
    width: int
    channels: int
    top: int
    bottom: int
    left: int
    right: int
    pad: int
    advance: int
    span: int
    ring: int
    overhang: int

    @property
    def pitch(self) -> int:
        """Bytes from row to row."""
        return (self.left + self.width + self.right) * self.channels

    @property
    def size(self) -> int:
        """Bytes of the whole buffer."""
        return (self.ring + self.overhang) * self.pitch

    @property
    def whole(self) -> bool:
        """Whether every row keeps its place, so that no row is ever computed again."""
        return self.ring >= self.top + self.height + self.bottom

    def places(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Where the rows `first` up to `last` are written: `(first, last, place)` per piece."""
        while first < last:
            index = first + self.top
            place = index % self.ring
            until = min(last, first + self.ring - place)
            yield first, until, place
            if index >= self.ring and place < self.overhang:
                again = min(until, first + self.overhang - place)
                yield first, again, self.ring + place
            first = until

    def place(self, row: int) -> int:
        """Where the consumer finds the window that begins with a row."""
        return (row + self.top) % self.ring


def rolling(read: Read, consumer: Step, tile: Mapping[str, int], shape, pad: int) -> Rolling:
    """The ring that a consumer with such tiles needs, deep enough to fill while it is read.

    Parameters
    ----------
    read
        How the consumer reads the activation int8[N, H, W, C] of `shape`.
    tile
        The consumer's, of full width.
    """
    _, height, width, channels = shape
    y, extents = consumer.pixels[1], consumer.extents
    whole = box_of(read, {}, {**tile, **{axis: extents[axis] for axis in consumer.pixels}})
    (_, (top, bottom), (left, right), _) = whole
    (_, (first, last), _, _) = box_of(read, {}, tile)
    advance = tile[y] * read.index[1].coefficient(y)
    span = last - first
    rows = max(0, -top) + height + max(0, bottom - height)
    ring = advance * -(-(span + advance) // advance)
    overhang = max(0, span - advance)
    if ring + overhang >= rows:
        ring, overhang = rows, 0
    return Rolling(
        height=height,
        width=width,
        channels=channels,
        top=max(0, -top),
        bottom=max(0, bottom - height),
        left=max(0, -left),
        right=max(0, right - width),
        pad=pad,
        advance=advance,
        span=span,
        ring=ring,
        overhang=overhang,
    )
