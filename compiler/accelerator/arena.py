"""Allocation of a scratchpad: least recently used first, as the compiler walks the program.

A `ScratchpadArena` remembers when each place was last used. A new piece of data replaces the data
that was not used for longest, whichever layer used it. So its LOAD waits as little as possible. A
piece that is still in the scratchpad is not loaded again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from operator import attrgetter, sub

from ...aligned import round_up

_BASE, _END = attrgetter("base"), attrgetter("end")


@dataclass(slots=True, eq=False)
class Piece:
    """A piece of data at `base` up to `end`; `alive` until another piece replaces it.

    Parameters
    ----------
    key
        The identity of the data. A piece whose key is None is never found again.
    used
        Time of the last use.
    """

    key: Hashable
    base: int
    end: int
    used: int
    alive: bool = True


@dataclass(slots=True)
class ScratchpadArena:
    """A scratchpad of `size` units of any kind. Pieces begin at multiples of `row`.

    `pieces` are ordered by address.
    """

    size: int
    row: int = 1
    pieces: list[Piece] = field(default_factory=list)
    clock: int = 0
    _filled: int = 0
    """Units of all pieces."""
    _ages: dict[int, Piece] = field(default_factory=dict)
    """Pieces by first unit, least recently used first."""
    _held: dict[Hashable, list[Piece]] = field(default_factory=dict)
    """Pieces by key. A key may have several pieces, in different regions."""

    def take(
        self, key: Hashable, size: int, within: tuple[int, int] | None = None
    ) -> tuple[Piece, bool]:
        """A place for a piece of `size` units.

        Parameters
        ----------
        key
            The identity of the data. With None, the piece is always new.
        within
            Half-open range of units that the piece may use; the whole scratchpad if None.

        Returns
        -------
        The piece, and whether its data must be loaded.
        """
        low, high = within or (0, self.size)
        self.clock += 1
        for piece in self._held.get(key, ()):
            if low <= piece.base and piece.end <= high:
                piece.used = self.clock
                self._ages[piece.base] = self._ages.pop(piece.base)
                return piece, False
        base = self._free(size, low, high) if self.size - self._filled >= size else None
        if base is None:
            base = self._oldest(size, low, high)
        piece = Piece(key, base, base + size, self.clock)
        self._put(piece)
        return piece, True

    def copy(self) -> "ScratchpadArena":
        """Return a copy; later changes to either arena leave the other as it is."""
        pieces = {piece.base: replace(piece) for piece in self.pieces}
        return replace(
            self,
            pieces=list(pieces.values()),
            _ages={base: pieces[base] for base in self._ages},
            _held={
                key: [pieces[piece.base] for piece in alike] for key, alike in self._held.items()
            },
        )

    def clear(self, low: int, high: int) -> None:
        """Forget the pieces in `low` up to `high`, because unknown data replaces them."""
        self.clock += 1
        if low < high:
            self._put(Piece(None, low, high, self.clock))

    def _put(self, piece: Piece) -> None:
        """Place a piece and remove the pieces that it overlaps."""
        first = bisect_right(self.pieces, piece.base, key=_END)
        last = bisect_left(self.pieces, piece.end, key=_BASE)
        for gone in self.pieces[first:last]:
            gone.alive = False
            del self._ages[gone.base]
            self._filled -= gone.end - gone.base
            if gone.key is not None:
                alike = self._held[gone.key]
                alike.remove(gone)
                if not alike:
                    del self._held[gone.key]
        self.pieces[first:last] = [piece]
        self._ages[piece.base] = piece
        self._filled += piece.end - piece.base
        if piece.key is not None:
            self._held.setdefault(piece.key, []).append(piece)

    def _free(self, size: int, low: int, high: int) -> int | None:
        """The first free place of this size; None if there is none."""
        first = bisect_right(self.pieces, low, key=_END)
        last = bisect_left(self.pieces, high, key=_BASE)
        between = self.pieces[first:last]
        begins, ends = (low, *map(_END, between)), (*map(_BASE, between), high)
        if max(map(sub, ends, begins)) < size:
            return None
        starts = (round_up(begin, self.row) for begin in begins)
        pairs = zip(starts, ends, strict=True)
        return next((start for start, end in pairs if start + size <= end), None)

    def _oldest(self, size: int, low: int, high: int) -> int:
        """The first of the places whose latest use is longest ago.

        The search visits pieces from the oldest on. It extends each piece to a stretch in which
        nothing was used later. The first stretch that is long enough gives the place, at its start.
        """
        for piece in self._ages.values():
            if piece.end <= low or high <= piece.base:
                continue
            left = bisect_left(self.pieces, piece.base, key=_BASE)
            right = left + 1
            while left and self.pieces[left - 1].used < piece.used:
                left -= 1
            while right < len(self.pieces) and self.pieces[right].used < piece.used:
                right += 1
            start = round_up(max(low, self.pieces[left - 1].end if left else 0), self.row)
            until = self.pieces[right].base if right < len(self.pieces) else self.size
            if start + size <= min(until, high):
                return start
        raise AssertionError(f"{size} units have no place from {low} to {high}")
