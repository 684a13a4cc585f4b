"""Axes and index arithmetic: `y * 2 + ky - 1` as a user writes it becomes an `Affine`."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import CompileError
from ...isa.expressions import Affine
from .affine import scaled, total, variable


@dataclass(frozen=True, slots=True)
class AxisUse:
    """A use of an axis in an index or a value: its extent, and whether it is a reduction axis."""

    extent: int
    reduced: bool


@dataclass(frozen=True, slots=True)
class Index:
    """An affine index over declared axes; `axes` and `reduce_axes` create axes.

    An index may be added to an index or a whole number, and multiplied by a whole number.

    Raises
    ------
    CompileError
        When the result of an operation is not affine.
    """

    affine: Affine
    uses: Mapping[str, AxisUse]

    def __add__(self, other: "Index | int") -> "Index":
        if isinstance(other, Index):
            uses = merge_uses(self.uses, other.uses)
            return Index(total(self.affine, other.affine), uses)
        return Index(total(self.affine, self._whole(other, "+")), self.uses)

    __radd__ = __add__

    def __neg__(self) -> "Index":
        return Index(scaled(self.affine, -1), self.uses)

    def __sub__(self, other: "Index | int") -> "Index":
        return self + (-other if isinstance(other, Index) else -self._whole(other, "-"))

    def __rsub__(self, other: int) -> "Index":
        return -self + other

    def __mul__(self, other: int) -> "Index":
        return Index(scaled(self.affine, self._whole(other, "*")), self.uses)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> "Index":
        raise self._not_affine("/", other)

    def __floordiv__(self, other: object) -> "Index":
        raise self._not_affine("//", other)

    def __mod__(self, other: object) -> "Index":
        raise self._not_affine("%", other)

    def __str__(self) -> str:
        return str(self.affine)

    def _whole(self, other: object, operator: str) -> int:
        if isinstance(other, bool) or not isinstance(other, int):
            raise self._not_affine(operator, other)
        return other

    def _not_affine(self, operator: str, other: object) -> CompileError:
        return CompileError(
            f"index `{self} {operator} {other}` is not affine; an index is a sum of axes times "
            "whole numbers, plus a whole number"
        )


def merge_uses(*parts: Mapping[str, AxisUse]) -> dict[str, AxisUse]:
    """The axes of several parts together.

    Raises
    ------
    CompileError
        When one name stands for two different axes.
    """
    merged: dict[str, AxisUse] = {}
    for part in parts:
        for name, use in part.items():
            known = merged.setdefault(name, use)
            if known.reduced != use.reduced:
                raise CompileError(
                    f"axis `{name}` is used as a data axis and as a reduction axis; give one of "
                    "them another name"
                )
            if known.extent != use.extent:
                raise CompileError(
                    f"axis `{name}` has extents {known.extent} and {use.extent} in one expression; "
                    "give one of them another name"
                )
    return merged


def axes(**extents: int) -> tuple[Index, ...]:
    """Data axes, in the order given: `n, y, x = axes(n=1, y=14, x=14)`."""
    return tuple(_axis(name, extent, reduced=False) for name, extent in extents.items())


def reduce_axes(**extents: int) -> tuple[Index, ...]:
    """Reduction axes, in the order given; `(k,) = reduce_axes(k=64)` for a single one."""
    return tuple(_axis(name, extent, reduced=True) for name, extent in extents.items())


def _axis(name: str, extent: int, reduced: bool) -> Index:
    if isinstance(extent, bool) or not isinstance(extent, int) or extent < 0:
        raise CompileError(f"axis `{name}` must have a whole extent, 0 or more, not {extent!r}")
    return Index(variable(name), {name: AxisUse(extent, reduced)})
