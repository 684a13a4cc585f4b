"""Which piece of data lies where in a scratchpad while the compiler walks through the program.

An `Arena` remembers what every byte was last used for. A new piece takes the place that has not
been used for longest, so that its LOAD has to wait for as little as possible, whichever layer used
that place before; a piece that still lies there is not loaded again.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Piece:
    key: Hashable
    base: int
    end: int
    used: int


@dataclass(slots=True)
class Arena:
    """A scratchpad of `size` units, whatever a unit is; pieces begin at multiples of `row`."""

    size: int
    row: int = 1
    pieces: list[_Piece] = field(default_factory=list)
    clock: int = 0

    def take(
        self, key: Hashable, size: int, within: tuple[int, int] | None = None
    ) -> tuple[int, bool]:
        """A place for a piece of `size` units.

        Parameters
        ----------
        key
            What the piece is. None never lies there already.
        within
            The part of the scratchpad that it may take, from and up to; all of it if None.

        Returns
        -------
        Its first unit, and whether the piece must be brought there.
        """
        low, high = within or (0, self.size)
        self.clock += 1
        for piece in self.pieces:
            if key is not None and piece.key == key and low <= piece.base and piece.end <= high:
                piece.used = self.clock
                return piece.base, False
        starts = {low, high - size} | {p.end for p in self.pieces}
        starts |= {p.base - size for p in self.pieces}
        starts = {
            start // self.row * self.row for start in starts | {s + self.row - 1 for s in starts}
        }
        fitting = [start for start in starts if low <= start <= high - size]
        base = min(fitting, key=lambda start: (self._last_use(start, start + size), start))
        self.pieces = [p for p in self.pieces if p.end <= base or base + size <= p.base]
        self.pieces.append(_Piece(key, base, base + size, self.clock))
        return base, True

    def _last_use(self, base: int, end: int) -> int:
        return max((p.used for p in self.pieces if p.base < end and base < p.end), default=0)
