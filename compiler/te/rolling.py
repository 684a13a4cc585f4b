"""Rolling stages: a stage computes rows into a ring while its reader advances.

The ring has `ring` places for rows. A reader needs each window of rows as one contiguous block,
even at the end of the ring. So a copy of the first `overhang` places follows the last place. `ring`
is a multiple of the rows by which the reader advances, so no window exceeds the overhang.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import CompileError
from ...isa.expressions import Affine
from .affine import total, value_of
from .box import extents_of
from .stages import Division, Stage
from .target import ScheduleError


@dataclass(frozen=True, slots=True)
class Rolling:
    """The progress of a stage through a ring of rows while its reader advances.

    Parameters
    ----------
    dimension
        The dimension whose indices are the rows.
    tile
        Rows that one iteration of the stage's outermost loop computes.
    ahead
        Rows by which the stage runs ahead of its reader.
    first, until
        Half-open range of rows that the reader needs now, padding included.
    others
        Starts of the dimensions before it, and of those in `narrow`; the ring restarts when one of
        them changes.
    limit
        The end of the rows that the reader ever needs.
    advance, span
        Rows by which the reader advances, and rows that it needs at a time.
    extents
        Extents of the stage's tensor, per dimension; of those in `narrow`, of the part in the ring.
    narrow
        Dimensions behind the rows of which the ring holds a part at a time, aligned to its extent.
    borders
        Elements of padding that the reader needs before and after each dimension.
    ring, overhang
        Number of places for rows, and number of places that are repeated after the end, so that
        the rows for a reader are always contiguous.
    """

    dimension: int
    tile: int
    ahead: int
    first: Affine
    until: Affine
    limit: int
    others: tuple[Affine, ...]
    advance: int
    span: int
    extents: tuple[int, ...]
    narrow: tuple[int, ...]
    borders: tuple[tuple[int, int], ...]
    ring: int
    overhang: int

    @property
    def height(self) -> int:
        """Rows that exist."""
        return self.extents[self.dimension]

    @property
    def rows(self) -> int:
        """Rows that exist, and those of padding."""
        return self.height + sum(self.borders[self.dimension])

    @property
    def whole(self) -> bool:
        """Whether every row has its own place, so that no row is computed twice."""
        return self.ring >= self.rows

    @property
    def row_elements(self) -> int:
        """Number of elements in a row, padding included."""
        inner = zip(self.extents, self.borders, strict=True)
        sizes = [before + extent + behind for extent, (before, behind) in inner]
        return math.prod(sizes[self.dimension + 1 :])

    @property
    def elements(self) -> int:
        """Number of elements in the whole buffer."""
        return (self.ring + self.overhang) * self.row_elements

    def tiles(self, first: int, last: int) -> range:
        """The tiles that compute the rows `first` up to `last`, as far as they exist."""
        # Rows are done by whole tiles, but for the last one.
        return range(-(-max(first, 0) // self.tile), -(-min(last, self.height) // self.tile))

    def due(self, done: int, until: int) -> int:
        """The row up to which tiles are computed, or padding is filled, for a reader.

        Parameters
        ----------
        done
            The row up to which this was done before.
        until
            The row up to which the reader needs rows.
        """
        until = min(until, self.limit)
        more = max(self.ahead, self.tile - 1)
        end = self.height + self.borders[self.dimension][1]
        return max(done, min((until + more) // self.tile * self.tile, max(until, end)))

    def places(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """The places for the rows `first` up to `last`, as `(first, last, place)` per piece."""
        top = self.borders[self.dimension][0]
        while first < last:
            index = first + top
            place = index % self.ring
            until = min(last, first + self.ring - place)
            yield first, until, place
            if index >= self.ring and place < self.overhang:
                again = min(until, first + self.overhang - place)
                yield first, again, self.ring + place
            first = until

    def place(self, row: int) -> int:
        """The place at which the reader finds the rows from a row on."""
        return (row + self.borders[self.dimension][0]) % self.ring


class Rows:
    """The progress of every rolling stage during a walk or a run of a program."""

    def __init__(self) -> None:
        self._done: dict[str, tuple[tuple[int, ...], int]] = {}

    def advance(self, stage: str, rolling: Rolling, values: Mapping[str, int]) -> tuple[int, int]:
        """The half-open range of rows that a rolling stage adds now, padding included.

        Raises
        ------
        CompileError
            When the reader needs rows that the ring has dropped.
        """
        others = tuple(value_of(affine, values) for affine in rolling.others)
        before, done = self._done.get(stage, (None, 0))
        if before != others:
            done = -rolling.borders[rolling.dimension][0]
        last = rolling.due(done, value_of(rolling.until, values))
        first = max(value_of(rolling.first, values), -rolling.borders[rolling.dimension][0])
        if first < last - rolling.ring:
            raise CompileError(
                f"`{stage}` rolls forward only: row {first} is needed again and its ring of "
                f"{rolling.ring} rows holds those from {last - rolling.ring} on; make rows the "
                "outer loop of the reader"
            )
        self._done[stage] = others, last
        return done, last


class Interval(NamedTuple):
    """A range of `extent` whole numbers from `low`."""

    low: Affine
    extent: int


def rolled_axis(stage: Stage) -> tuple[str, int]:
    """The axis along which a stage rolls, and the rows per iteration.

    Raises
    ------
    ScheduleError
        When its outermost loop is not over tiles of one data axis.
    """
    loop = stage.loops[0]
    for axis in stage.axes:
        if loop == axis:
            return axis, 1
        for relation in stage.relations:
            if (
                isinstance(relation, Division)
                and relation.parent == axis
                and loop == relation.outer
                and not relation.lead
            ):
                return axis, relation.factor
    raise ScheduleError(
        f"roll({stage.name}): its outermost loop is `{loop}`; it must be a data axis, or the outer "
        "loop of one that is split once, into equal blocks"
    )


def ring_rows(advance: int, span: int, ahead: int, rows: int) -> tuple[int, int]:
    """Places of a ring that can be filled while it is read, and places of its overhang.

    Parameters
    ----------
    advance, span
        Rows by which the reader advances, and rows that it needs at a time.
    ahead
        Rows that are computed before they are needed.
    rows
        Total number of rows, which limits the ring.
    """
    ring = advance * -(-(span + ahead) // advance)
    overhang = max(0, span - advance)
    return (rows, 0) if ring + overhang >= rows else (ring, overhang)


def ring_of(
    stage: Stage,
    needed: Sequence[Interval],
    ever: Sequence[Interval],
    is_slower: Callable[[Affine, Affine], bool],
) -> Rolling:
    """The ring of a rolling stage.

    Parameters
    ----------
    needed
        The box that its reader needs in one iteration of the loop around the stage.
    ever
        The box that its reader needs in all iterations.
    is_slower
        Tell whether an index moves with loops outside of all those that move another one.

    Raises
    ------
    ScheduleError
        When the rows that the reader needs do not advance evenly.
    """
    assert stage.ahead is not None
    axis, tile = rolled_axis(stage)
    dimension = stage.axes.index(axis)
    extents = extents_of(stage.domain)
    rows = needed[dimension]
    if len(rows.low.terms) > 1 or any(factor < 1 for _, factor in rows.low.terms):
        moving = ", ".join(f"`{name}`" for name, _ in rows.low.terms)
        raise ScheduleError(
            f"roll({stage.name}): its rows must advance with one loop of the reader, not with "
            f"{moving}"
        )
    rates = tile, stage.ahead
    rolling = rolling_through(dimension, rates, needed, ever, extents)
    narrow = tuple(
        place
        for place in range(dimension + 1, len(needed))
        if _is_aligned(needed[place], extents[place]) and is_slower(needed[place].low, rows.low)
    )
    if rolling.whole or not narrow:
        return rolling
    return rolling_through(dimension, rates, needed, ever, extents, narrow)


def _is_aligned(part: Interval, extent: int) -> bool:
    """Whether an interval moves in steps that are multiples of its own extent."""
    moves = [extent, part.low.constant, *(factor for _, factor in part.low.terms)]
    return len(moves) > 2 and part.extent < extent and not any(one % part.extent for one in moves)


def rolling_through(
    dimension: int,
    rates: tuple[int, int],
    needed: Sequence[Interval],
    ever: Sequence[Interval],
    extents: tuple[int, ...],
    narrow: tuple[int, ...] = (),
) -> Rolling:
    """The progress of a stage through the smallest ring.

    Parameters
    ----------
    dimension
        The dimension whose indices are the rows.
    rates
        Rows computed at a time, and rows computed before they are needed.
    needed, ever
        As for `ring_of`; the rows advance with one loop at most.
    extents
        Extents of the stage's tensor.
    narrow
        As for `Rolling`.
    """
    tile, ahead = rates
    rows, all_rows = needed[dimension], ever[dimension]
    borders = tuple(
        (0, 0)
        if place in narrow
        else (max(0, -part.low.constant), max(0, part.low.constant + part.extent - extent))
        for place, (part, extent) in enumerate(zip(ever, extents, strict=True))
    )
    held = tuple(
        needed[place].extent if place in narrow else extent for place, extent in enumerate(extents)
    )
    before, behind = borders[dimension]
    span = rows.extent
    advance = rows.low.terms[0][1] if rows.low.terms else max(span, tile)
    first = rows.low.constant + before
    # Without rows ahead, and if tiles end where the reader's rows end, no further places are used.
    just_in_time = not (ahead or advance % tile or (rows.low.constant + span) % tile)
    ring, overhang = ring_rows(
        advance,
        span + first % advance,
        0 if just_in_time else max(advance, ahead, tile - 1),
        before + extents[dimension] + behind,
    )
    return Rolling(
        dimension=dimension,
        tile=tile,
        ahead=ahead,
        first=rows.low,
        until=total(rows.low, span),
        limit=all_rows.low.constant + all_rows.extent,
        others=tuple(needed[place].low for place in (*range(dimension), *narrow)),
        advance=advance,
        span=span,
        extents=held,
        narrow=narrow,
        borders=borders,
        ring=ring,
        overhang=overhang,
    )
