"""Tensorisation: a compute over a tile becomes instructions whose loop nests it matches.

The compute's expression is matched against the laws that `isa.patterns` declares. Lanes take the
innermost part of an axis; every other part of every axis becomes a loop whose strides follow from
where the operands lie; loops are fused, sorted into the instruction's nests, and those that are too
many are unrolled into several instructions. Nothing here knows an instruction by name.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ...errors import CompileError
from ...isa.configuration import Configuration, Memory
from ...isa.expressions import Affine, Match, Read, Slot, matches
from ...isa.instructions import Instruction, Loop
from ...isa.patterns import PATTERNS, Pattern
from ..tensor import Compute
from .layout import Buffer
from .sliding import Window, window_of


@dataclass(frozen=True, slots=True)
class Part:
    """A loop over a part of an axis: `extent` steps of `step` indices; strides per operand."""

    axis: str
    extent: int
    step: int
    strides: tuple[int, ...]
    reduced: bool


def find_pattern(
    compute: Compute, places: Mapping[str, Memory] | None = None
) -> tuple[Pattern, Match]:
    """The first declared instruction whose law the compute's expression matches.

    Parameters
    ----------
    compute
        What is to be computed.
    places
        Where each tensor lies; None asks for any instruction, wherever the operands may lie.

    Raises
    ------
    CompileError
        When no instruction computes it, or none takes the operands from where they lie.
    """
    misplaced = ""
    for pattern in PATTERNS:
        for found in matches(pattern.body, compute.body):
            if not _lanes_fit(pattern, compute, found):
                continue
            complaint = _misplaced(pattern, compute, found, places) if places else ""
            if not complaint:
                return pattern, found
            misplaced = misplaced or complaint
    raise CompileError(
        misplaced
        or f"compute `{compute.output.name}`: no instruction matches `{compute.body}`; "
        "split it into stages that one instruction each can do"
    )


def _misplaced(
    pattern: Pattern, compute: Compute, found: Match, places: Mapping[str, Memory]
) -> str:
    """What is wrong with where the operands lie; empty if nothing."""
    named = [(pattern.output.operand, compute.output.name)]
    named += [(slot.operand, read.tensor) for slot, read in found.reads]
    for operand, tensor in named:
        if places[tensor] not in pattern.places[operand]:
            return (
                f"compute `{compute.output.name}`: tensor `{tensor}` lies in "
                f"{places[tensor].name}; {pattern.family.mnemonic} takes `{operand}` from "
                f"{' or '.join(memory.name for memory in pattern.places[operand])}"
            )
    return ""


def _lanes_fit(pattern: Pattern, compute: Compute, found: Match) -> bool:
    if pattern.window:
        return window_of(compute, found) is not None
    return all(axis is not None for axis in lane_axes(pattern, compute, found).values())


def lane_axes(pattern: Pattern, compute: Compute, found: Match) -> dict[str, str | None]:
    """Which axis of the compute each lane of the instruction takes.

    A lane of the output is the output's last axis; a reduced lane is the reduction axis that moves
    the last dimension of an operand by one.
    """
    reductions = {axis.name for axis in compute.reductions}
    chosen: dict[str, str | None] = {}
    for lane in pattern.lanes:
        if lane == pattern.window:
            continue
        if lane in pattern.output.lanes:
            chosen[lane] = compute.axes[-1].name
            continue
        candidates = [
            {axis for axis, factor in read.index[-1].terms if axis in reductions and factor == 1}
            for slot, read in found.reads
            if slot.lanes and slot.lanes[-1] == lane and read.index
        ]
        common = set.intersection(*candidates) if candidates else set()
        chosen[lane] = min(common) if common else None
    return chosen


@dataclass(frozen=True, slots=True)
class Form:
    """Instructions for a tile wherever its operands lie: all but their addresses.

    Parameters
    ----------
    family, settings, nests
        The instruction, its fields and its loops.
    operands
        Per operand that is used: its tensor, the elements of one address step, and steps from
        where the tensor lies to where the instruction begins.
    tables
        Operands that are the number of a table, with the tensor.
    variants
        Address steps and fields by which each instruction differs.
    """

    family: type[Instruction]
    settings: Mapping[str, Any]
    nests: Mapping[str, tuple[Loop, ...]]
    operands: Mapping[str, tuple[str, int, int]]
    tables: Mapping[str, str]
    variants: tuple[Mapping[str, int], ...]

    def at(self, buffers: Mapping[str, Buffer]) -> list[Instruction]:
        """The instructions for operands that lie in these buffers."""
        bases = {operand.name: 0 for operand in self.family.operands}
        for name, (tensor, granule, steps) in self.operands.items():
            bases[name] = _divide(buffers[tensor].base, granule, tensor) + steps
        tables = {name: buffers[tensor].base for name, tensor in self.tables.items()}
        instructions = []
        for variant in self.variants:
            moved = {name: base + variant.get(name, 0) for name, base in bases.items()}
            arguments: dict[str, Any] = {**variant, **self.settings, **tables, **moved}
            instructions.append(self.family(**arguments, **self.nests))
        return instructions


def tensorise(
    compute: Compute,
    tile: Mapping[str, int],
    buffers: Mapping[str, Buffer],
    configuration: Configuration,
    accumulate: bool = False,
) -> list[Instruction]:
    """Instructions that compute one tile; see `form_of`."""
    return form_of(compute, tile, buffers, configuration, accumulate).at(buffers)


def form_of(
    compute: Compute,
    tile: Mapping[str, int],
    buffers: Mapping[str, Buffer],
    configuration: Configuration,
    accumulate: bool = False,
) -> Form:
    """What computes one tile.

    Parameters
    ----------
    compute
        The whole compute.
    tile
        Extent of every axis inside the tile, reductions included.
    buffers
        How every tensor's tile lies, the output's included; where does not matter.
    accumulate
        Add to the output instead of overwriting it (the later chunks of a split reduction).

    Raises
    ------
    CompileError
        When no instruction matches, or an operand lies where the instruction cannot reach it.
    """
    pattern, found = find_pattern(
        compute, {name: buffer.memory for name, buffer in buffers.items()}
    )
    family = pattern.family
    settings: dict[str, Any] = {**pattern.fields, **dict(found.fields)}
    if accumulate:
        settings["accumulate"] = 1
    bound = _bind(pattern, compute, found)
    names = [operand.name for operand in family.operands]
    tables = {}
    for slot, read in bound.values():
        memory = buffers[read.tensor].memory
        settings.update(pattern.places[slot.operand][memory])
        if memory is Memory.LUT:
            tables[slot.operand] = read.tensor
    known = {field.name for field in fields(family)}
    settings = {name: value for name, value in settings.items() if name in known}
    origin: dict[str, Any] = dict.fromkeys(names, 0)
    plain = family(**settings, **origin)
    granules = {name: _granule(plain, name, configuration) for name in names if name in bound}
    steps = dict.fromkeys(granules, 0)
    lanes = {
        axis: getattr(configuration, pattern.lanes[lane])
        for lane, axis in lane_axes(pattern, compute, found).items()
        if axis is not None
    }
    channel_parts: list[dict[str, int]] = [{}]
    window = window_of(compute, found) if pattern.window else None
    if window is None:
        parts = _parts(compute, tile, lanes, bound, buffers, names, granules)
    else:
        lanes = {compute.axes[-1].name: configuration.lanes_in}
        still = {**tile, window.column: 1, window.tap: 1}
        parts = _parts(compute, still, lanes, bound, buffers, names, granules)
        parts += _sliding_parts(window, tile, bound, buffers, granules, configuration)
        steps["acc"] = 1 - window.taps(configuration)
        channel_parts = _channel_parts(compute, bound, buffers, granules, configuration)
    nests, unrolled = _nests(family, parts, names, configuration)
    variants = tuple(
        {
            **part,
            **{name: moved + part.get(name, 0) for name, moved in zip(names, offsets, strict=True)},
        }
        for offsets, part in itertools.product(unrolled, channel_parts)
    )
    operands = {
        name: (bound[name][1].tensor, granule, steps[name]) for name, granule in granules.items()
    }
    return Form(family, settings, nests, operands, tables, variants)


def _sliding_parts(window: Window, tile, bound, buffers, granules, configuration) -> list[Part]:
    """The stream along a row, innermost, and the groups of taps."""
    (_, act), (_, acc) = bound["act"], bound["acc"]
    pixel = buffers[act.tensor].axes[window.column].inner // window.stride // granules["act"]
    row = buffers[acc.tensor].axes[window.column].inner // window.stride // granules["acc"]
    count, step = window.groups(configuration)
    steps = window.steps(tile[window.column], configuration)
    if steps > 1 << configuration.extent_bits:
        raise CompileError(f"a row of {steps} pixels is too long for one loop; cut the columns")
    stream = Part(window.column, steps, 1, (pixel, 0, row), False)
    groups = Part(window.tap, count, 1, (step * pixel, 1, 0), True)
    return [stream, groups] if count > 1 else [stream]


def _channel_parts(compute, bound, buffers, granules, configuration) -> list[dict[str, int]]:
    """Offsets and field of each group of `lanes_out` channels in a wider row of ACT."""
    variants = []
    for part in range(configuration.depthwise_parts):
        channels = part * configuration.lanes_out
        moved = {
            name: _stride(bound, buffers, granules, name, compute.axes[-1].name, channels)
            for name in ("wgt", "acc")
            if part
        }
        variants.append({"part": part, **moved})
    return variants


def _bind(pattern: Pattern, compute: Compute, found: Match) -> dict[str, tuple[Slot, Read]]:
    """Reads by operand; `param.bias` and `param.scale` share the operand `param`."""
    own = Read(compute.output.name, tuple(Affine.of(**{axis.name: 1}) for axis in compute.axes))
    bound = {pattern.output.operand: (pattern.output, own)}
    for slot, read in found.reads:
        name = slot.operand.split(".")[0]
        if name in bound and bound[name][1].index != read.index:
            raise CompileError(
                f"compute `{compute.output.name}`: `{bound[name][1]}` and `{read}` share the "
                f"operand `{name}` and must have the same index"
            )
        bound[name] = (slot, read)
    return bound


def _granule(plain: Instruction, operand: str, configuration: Configuration) -> int:
    """Elements that one address step of an operand stands for."""
    memory = plain.memory_of(operand)
    element = {Memory.ACC: 4, Memory.PARAM: 8}.get(memory, 1)
    return plain.granule_bytes(operand, configuration) // element


def _divide(value: int, granule: int, tensor: str) -> int:
    if value % granule:
        raise CompileError(f"tensor `{tensor}`: {value} is not a multiple of {granule} elements")
    return value // granule


def _parts(compute, tile, lanes, bound, buffers, operands, granules) -> list[Part]:
    """All loops of the tile, outermost first: data axes in order, then reductions."""
    parts = []
    for axis in (*compute.axes, *compute.reductions):
        reduced = axis in compute.reductions
        extent, lane = tile[axis.name], lanes.get(axis.name, 1)
        blocks = {
            buffers[read.tensor].axes[axis.name].block
            for _, read in bound.values()
            if axis.name in buffers[read.tensor].axes
        }
        cuts = [*sorted({lane} | {block for block in blocks if lane < block < extent}), extent]
        levels = []
        for step, limit in itertools.pairwise(cuts):
            if limit % step:
                raise CompileError(
                    f"compute `{compute.output.name}`: axis `{axis.name}` of {extent} cannot "
                    f"be cut into whole blocks of {step}"
                )
            if limit == step:
                continue
            strides = tuple(
                _stride(bound, buffers, granules, name, axis.name, step) for name in operands
            )
            levels.append(Part(axis.name, limit // step, step, strides, reduced))
        parts += reversed(levels)
    return parts


def _stride(bound, buffers, granules, operand: str, axis: str, step: int) -> int:
    if operand not in bound:
        return 0
    read = bound[operand][1]
    placement = buffers[read.tensor].axes.get(axis)
    if placement is None:
        return 0
    moved = placement.stride(step)
    if moved is None:
        raise CompileError(f"tensor `{read.tensor}`: axis `{axis}` cannot move by {step}")
    return _divide(moved, granules[operand], read.tensor)


def _nests(family, parts: list[Part], operands: list[str], configuration: Configuration):
    """Sort loops into the instruction's nests; unroll those that find no place.

    The inner nest takes loops that move only operands it has strides for and, where the outer nest
    carries the reduction, only data loops; in a family with a nest for reductions, that nest takes
    those. Reductions run inside data loops of the same nest.
    """
    (outer_name, outer_moved), (inner_name, inner_moved) = family.nests.items()
    limit = 1 << configuration.extent_bits
    reduces_inside = inner_name.startswith("reduce")

    def movable(part: Part, moved: tuple[str, ...]) -> bool:
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
            raise CompileError(_too_many(family, inner_name, inner, configuration))
        outer = inner[:-inner_levels] + outer
        inner = inner[-inner_levels:]
    spare = len(outer) - outer_levels
    loops = outer[:spare] if spare > 0 else []
    if any(part.reduced for part in loops):
        raise CompileError(_too_many(family, outer_name, outer, configuration))
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


def _too_many(family, nest: str, parts: list[Part], configuration: Configuration) -> str:
    axes = ", ".join(dict.fromkeys(part.axis for part in parts))
    return (
        f"{family.mnemonic}: a reduction takes {len(parts)} loops of `{nest}` (axes {axes}), but "
        f"configuration `{configuration.name}` has {family.levels(nest, configuration)}; raise "
        f"`{nest}`"
    )


def _fuse(parts: list[Part], limit: int) -> list[Part]:
    """Merge neighbouring loops that walk on where the inner one ends; split too long ones."""
    fused: list[Part] = []
    for part in parts:
        if fused and fused[-1].reduced == part.reduced:
            last = fused[-1]
            contiguous = all(
                a == part.extent * b for a, b in zip(last.strides, part.strides, strict=True)
            )
            if contiguous and last.extent * part.extent <= limit:
                fused[-1] = Part(
                    part.axis, last.extent * part.extent, part.step, part.strides, part.reduced
                )
                continue
        fused.append(part)
    return [piece for part in fused for piece in _split(part, limit)]


def _split(part: Part, limit: int) -> list[Part]:
    if part.extent <= limit:
        return [part]
    for inner in range(limit, 1, -1):
        if part.extent % inner == 0 and part.extent // inner <= limit:
            strides = tuple(stride * inner for stride in part.strides)
            return [
                Part(part.axis, part.extent // inner, part.step * inner, strides, part.reduced),
                Part(part.axis, inner, part.step, part.strides, part.reduced),
            ]
    raise CompileError(f"a loop of {part.extent} steps does not fit {limit}; choose smaller tiles")
