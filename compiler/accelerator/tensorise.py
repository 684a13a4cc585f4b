"""Tensorisation: replace a compute over a tile by instructions.

The compute's expression must match a law in `isa.patterns`. The lanes take the innermost part of an
axis. Every other part of every axis becomes a loop, whose strides follow from the layout of the
operands. Loops are fused and assigned to the instruction's nests; loops that do not fit are
unrolled into several instructions. Nothing here knows an instruction by name.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ...errors import CompileError
from ...isa.configuration import Configuration, Memory
from ...isa.expressions import Affine, Match, Read, Slot
from ...isa.instructions import Instruction, Loop, Role
from ...isa.patterns import Pattern
from ..tensor import Compute
from .layout import Buffer
from .matching import lane_axes
from .nests import Part, sort_into_nests
from .sliding import Window, window_of


@dataclass(frozen=True, slots=True)
class Form:
    """Instructions for a tile without the addresses of its operands.

    Parameters
    ----------
    family, settings, nests
        The instruction family, its fields and its loops.
    operands
        For each operand in use: its tensor, the elements per address step, and the steps from the
        tensor's first element to the instruction's first element.
    tables
        Operands that are table numbers, with their tensors.
    variants
        For each instruction, the address steps and fields in which it differs.
    """

    family: type[Instruction]
    settings: Mapping[str, Any]
    nests: Mapping[str, tuple[Loop, ...]]
    operands: Mapping[str, tuple[str, int, int]]
    tables: Mapping[str, str]
    variants: tuple[Mapping[str, int], ...]

    def at(self, buffers: Mapping[str, Buffer]) -> list[Instruction]:
        """The instructions for operands in these buffers."""
        bases = {operand.name: 0 for operand in self.family.operands}
        for name, (tensor, granule, steps) in self.operands.items():
            bases[name] = _divide(buffers[tensor].base, granule, tensor) + steps
        tables = {name: buffers[tensor].base for name, tensor in self.tables.items()}
        instructions = []
        for variant in self.variants:
            arguments: dict[str, Any] = {**self.settings, **self.nests, **tables, **variant}
            arguments |= {name: base + variant.get(name, 0) for name, base in bases.items()}
            instructions.append(self.family(**arguments))
        return instructions


def form_of(
    pattern: Pattern,
    found: Match,
    compute: Compute,
    tile: Mapping[str, int],
    buffers: Mapping[str, Buffer],
    configuration: Configuration,
    accumulate: bool = False,
) -> Form:
    """The instructions that compute one tile, without addresses.

    Parameters
    ----------
    pattern, found
        The instruction's law, and its match with the compute; see `find_pattern`.
    compute
        The whole compute.
    tile
        Extent of every axis inside the tile, reductions included.
    buffers
        The layout of every tensor's tile, including the output's. Their addresses are ignored.
    accumulate
        Add to the output instead of overwriting it, for later chunks of a split reduction.

    Raises
    ------
    CompileError
        When the instruction cannot reach an operand.
    """
    family = pattern.family
    settings: dict[str, Any] = {**pattern.fields, **dict(found.fields)}
    if accumulate:
        settings[family.continue_field] = 1
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
        parts += _sliding_parts(window, tile, family, bound, buffers, granules, configuration)
        steps[family.operand_of(Role.ACCUMULATOR)] = 1 - window.taps(configuration)
        channel_parts = _channel_parts(compute, family, bound, buffers, granules, configuration)
    nests, unrolled = sort_into_nests(family, parts, names, configuration)
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


def _sliding_parts(
    window: Window, tile, family, bound, buffers, granules, configuration
) -> list[Part]:
    """The innermost loop that streams a row, and the loop over groups of taps."""
    stream, weights, sums = map(family.operand_of, (Role.STREAM, Role.WEIGHTS, Role.ACCUMULATOR))

    def pixel(operand: str) -> int:
        """Address steps from one pixel of a row to the next."""
        placement = buffers[bound[operand][1].tensor].axes[window.column]
        return placement.inner // window.stride // granules[operand]

    def strides(moved: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(moved.get(operand.name, 0) for operand in family.operands)

    count, step = window.groups(configuration)
    steps = window.steps(tile[window.column], configuration)
    if steps > 1 << configuration.extent_bits:
        raise CompileError(f"a row of {steps} pixels is too long for one loop; cut the columns")
    along = strides({stream: pixel(stream), sums: pixel(sums)})
    row = Part(window.column, steps, 1, along, False)
    groups = Part(window.tap, count, 1, strides({stream: step * pixel(stream), weights: 1}), True)
    return [row, groups] if count > 1 else [row]


def _channel_parts(
    compute, family, bound, buffers, granules, configuration
) -> list[dict[str, int]]:
    """Offsets and field of each group of `lanes_out` channels in a wider row of the stream."""
    variants = []
    for part in range(configuration.depthwise_parts):
        channels = part * configuration.lanes_out
        moved = {
            name: _stride(bound, buffers, granules, name, compute.axes[-1].name, channels)
            for name in map(family.operand_of, (Role.WEIGHTS, Role.ACCUMULATOR))
            if part
        }
        variants.append({family.lane_group_field: part, **moved})
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
