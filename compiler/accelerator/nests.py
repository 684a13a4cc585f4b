"""Assign the loops of a tile to the loop nests of an instruction."""

from typing import NamedTuple

from ...errors import UnfitError
from ...isa.configuration import Configuration
from ...isa.instructions import Loop


class LoopPart(NamedTuple):
    """A loop over a part of an axis: `extent` steps of `step` indices; a stride per operand.

    One that is `alone` is not merged with its neighbours.
    """

    axis: str
    extent: int
    step: int
    strides: tuple[int, ...]
    reduced: bool
    alone: bool = False


def sort_into_nests(
    family, parts: list[LoopPart], operands: list[str], configuration: Configuration
):
    """Assign loops to the instruction's nests; unroll the loops that fit none.

    The inner nest takes loops that move only operands for which it has strides. If the outer nest
    carries the reduction, the inner nest takes only data loops. If a family has a nest for
    reductions, that nest takes them. Within a nest, reductions run inside data loops.

    Raises
    ------
    UnfitError
        When the machine has too few loops for a reduction, or too short ones.
    """
    (outer_name, outer_moved), (inner_name, inner_moved) = family.nests.items()
    limit = 1 << configuration.extent_bits
    reduces_inside = family.reduction_nest == inner_name

    def movable(part: LoopPart, moved: tuple[str, ...]) -> bool:
        return all(
            stride == 0 or name in moved
            for name, stride in zip(operands, part.strides, strict=True)
        )

    inner, outer = [], []
    for part in parts:
        inside = part.reduced if reduces_inside else not part.reduced
        (inner if inside and movable(part, inner_moved) else outer).append(part)
    inner, outer = _fuse(inner, limit), _fuse(outer, limit)
    inner_levels = family.levels(inner_name, configuration)
    outer_levels = family.levels(outer_name, configuration)
    if len(inner) > inner_levels:
        if reduces_inside:
            raise UnfitError(_too_many(family, inner_name, inner, configuration))
        outer = inner[:-inner_levels] + outer
        inner = inner[-inner_levels:]
    spare = len(outer) - outer_levels
    loops = outer[:spare] if spare > 0 else []
    if any(part.reduced for part in loops):
        reduced = [part for part in outer if part.reduced]
        raise UnfitError(_too_many(family, outer_name, reduced, configuration))
    outer = outer[len(loops) :]
    offsets = [(0,) * len(operands)]
    for part in loops:
        offsets = [
            tuple(o + i * s for o, s in zip(offset, part.strides, strict=True))
            for offset in offsets
            for i in range(part.extent)
        ]
    nests = {}
    for name, moved, chosen in ((outer_name, outer_moved, outer), (inner_name, inner_moved, inner)):
        nests[name] = tuple(
            Loop(part.extent, tuple(part.strides[operands.index(operand)] for operand in moved))
            for part in chosen
        )
    return nests, offsets


def _too_many(family, nest: str, parts: list[LoopPart], configuration: Configuration) -> str:
    axes = ", ".join(dict.fromkeys(part.axis for part in parts))
    return (
        f"{family.mnemonic}: a reduction takes {len(parts)} loops of `{nest}` (axes {axes}), but "
        f"configuration `{configuration.name}` has {family.levels(nest, configuration)}; raise "
        f"`{nest}`"
    )


def _fuse(parts: list[LoopPart], limit: int) -> list[LoopPart]:
    """Merge neighbouring loops that form one regular loop; split loops that are too long."""
    fused: list[LoopPart] = []
    for part in parts:
        if fused and fused[-1].reduced == part.reduced and not (fused[-1].alone or part.alone):
            last = fused[-1]
            contiguous = all(
                a == part.extent * b for a, b in zip(last.strides, part.strides, strict=True)
            )
            if contiguous and last.extent * part.extent <= limit:
                fused[-1] = LoopPart(
                    part.axis, last.extent * part.extent, part.step, part.strides, part.reduced
                )
                continue
        fused.append(part)
    return [piece for part in fused for piece in _split(part, limit)]


def _split(part: LoopPart, limit: int) -> list[LoopPart]:
    if part.extent <= limit:
        return [part]
    for inner in range(limit, 1, -1):
        if part.extent % inner == 0 and part.extent // inner <= limit:
            strides = tuple(stride * inner for stride in part.strides)
            return [
                LoopPart(part.axis, part.extent // inner, part.step * inner, strides, part.reduced),
                LoopPart(part.axis, inner, part.step, part.strides, part.reduced),
            ]
    raise UnfitError(f"a loop of {part.extent} steps does not fit {limit}; choose smaller tiles")
