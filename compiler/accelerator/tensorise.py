"""Tensorisation: replace a compute over a tile by instructions.

The compute's expression must match a law in `isa.patterns`. The lanes take the innermost part of an
axis. Every other part of every axis becomes a loop, whose strides follow from the layout of the
operands. Loops are fused and assigned to the instruction's nests; loops that do not fit are
unrolled into several instructions. Nothing here knows an instruction by name.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ...errors import CompileError, UnfitError
from ...isa.configuration import Configuration, Memory
from ...isa.expressions import Match, Read, Slot
from ...isa.instructions import Instruction, Loop, Role
from ...isa.patterns import Pattern
from ..tensor import Compute
from .matching import MatchedInstruction
from .nests import LoopPart, sort_into_nests
from .phases import own_index
from .sliding import Slide, Window
from .tile_layout import Buffer, TileLayout


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
    firsts
        The instructions of the first tile with some tables; those of all other tiles are copies.
    """

    family: type[Instruction]
    settings: Mapping[str, Any]
    nests: Mapping[str, tuple[Loop, ...]]
    operands: Mapping[str, tuple[str, int, int]]
    tables: Mapping[str, str]
    variants: tuple[Mapping[str, int], ...]
    firsts: dict[tuple[int, ...], list[Instruction]] = field(default_factory=dict)

    def at(self, buffers: Mapping[str, Buffer]) -> list[Instruction]:
        """The instructions for operands in these buffers."""
        key = tuple([buffers[tensor].base for tensor in self.tables.values()])
        firsts = self.firsts.get(key)
        if firsts is None:
            fixed = dict.fromkeys((operand.name for operand in self.family.operands), 0)
            fixed |= {**self.settings, **self.nests, **dict(zip(self.tables, key, strict=True))}
            firsts = [self.family(**{**fixed, **variant}) for variant in self.variants]
            self.firsts[key] = firsts
        bases = {
            name: _divide(buffers[tensor].base, granule, tensor) + steps
            for name, (tensor, granule, steps) in self.operands.items()
        }
        return [
            first.moved({name: base + getattr(first, name) for name, base in bases.items()})
            for first in firsts
        ]


class Tensoriser:
    """Makes the instructions of a compute whose operands lie in given memories.

    Parameters
    ----------
    matched
        The compute's instruction.
    compute
        The whole compute.
    memories
        The memory of every tensor that it reads or writes.
    configuration
        The machine.

    Raises
    ------
    CompileError
        When two operands cannot be one.
    """

    def __init__(
        self,
        matched: MatchedInstruction,
        compute: Compute,
        memories: Mapping[str, Memory],
        configuration: Configuration,
    ) -> None:
        self.compute, self.configuration = compute, configuration
        pattern, found = matched.pattern, matched.found
        self.family = family = pattern.family
        self.reads, slots = _bind(pattern, compute, found)
        self.names = [operand.name for operand in family.operands]
        settings: dict[str, Any] = {**pattern.fields, **dict(found.fields)}
        self.tables = {}
        for slot, read in zip(slots, self.reads.values(), strict=True):
            memory = memories[read.tensor]
            settings.update(pattern.places[slot.operand][memory])
            if memory is Memory.LUT:
                self.tables[slot.operand] = read.tensor
        known = {field.name for field in fields(family)}
        self.settings = {name: value for name, value in settings.items() if name in known}
        origin: dict[str, Any] = dict.fromkeys(self.names, 0)
        plain = family(**self.settings, **origin)
        self.granules = {
            name: _granule(plain, name, configuration) for name in self.names if name in self.reads
        }
        self.window = matched.window
        self.lanes = {
            axis: getattr(configuration, parameters[0])
            for axis, parameters in matched.lanes.items()
        }

    def forms(
        self, tile: Mapping[str, int], buffers: Mapping[str, Buffer], accumulate: bool = False
    ) -> tuple[Form, ...]:
        """The instructions that compute one tile, without addresses, in order.

        Parameters
        ----------
        tile
            Extent of every axis inside the tile, reductions included.
        buffers
            The layout of every tensor's tile, including the output's. Their addresses are ignored.
        accumulate
            Add to the output instead of overwriting it, for later chunks of a split reduction.

        Raises
        ------
        UnfitError
            When the machine has too few loops, or too short ones.
        CompileError
            When the instruction cannot reach an operand.
        """
        window = self.window
        if window is None:
            parts = self._parts(tile, buffers)
            return (self._form(parts, {}, [{}], accumulate),)
        slides, across = window.slides(self.configuration), window.columns.axis
        if not window.has_lines(tile[across], self.configuration):
            raise UnfitError(f"a line of one pixel is too short; cut `{across}` less")
        inside = {name: 1 for slide, _ in slides for name in (slide.axis, slide.tap)}
        outside = self._parts({**tile, **inside}, buffers)
        channel_parts = self._channel_parts(buffers)
        found = []
        for phases in itertools.product(*(range(slide.phases) for slide, _ in slides)):
            sliding, first = self._sliding_parts(window, phases, tile, buffers)
            parts = [*outside, *sliding]
            found.append(self._form(parts, first, channel_parts, accumulate or bool(found)))
        return tuple(found)

    def _form(
        self,
        parts: list[LoopPart],
        first: Mapping[str, int],
        channel_parts: list[dict[str, int]],
        accumulate: bool,
    ) -> Form:
        """Return the instructions with these loops; `first` has address steps to the operands."""
        family = self.family
        nests, unrolled = sort_into_nests(family, parts, self.names, self.configuration)
        variants = tuple(
            {
                **part,
                **{
                    name: moved + part.get(name, 0)
                    for name, moved in zip(self.names, offsets, strict=True)
                },
            }
            for offsets, part in itertools.product(unrolled, channel_parts)
        )
        operands = {
            name: (self.reads[name].tensor, granule, first.get(name, 0))
            for name, granule in self.granules.items()
        }
        settings = {**self.settings, family.continue_field: 1} if accumulate else self.settings
        return Form(family, settings, nests, operands, self.tables, variants)

    def _sliding_parts(
        self,
        window: Window,
        phases: Sequence[int],
        tile: Mapping[str, int],
        buffers: Mapping[str, Buffer],
    ) -> tuple[list[LoopPart], dict[str, int]]:
        """The innermost loops, which stream pixels of some phases, the loops over groups of taps,
        and the address steps to the first of each operand: sums begin before the complete ones."""
        roles = (Role.STREAM, Role.WEIGHTS, Role.ACCUMULATOR)
        stream, weights, sums = map(self.family.operand_of, roles)

        def place(operand: str, slide: Slide) -> TileLayout:
            return buffers[self.reads[operand].tensor].axes[slide.axis]

        def output(operand: str, slide: Slide) -> int:
            """Address steps from one output to the next."""
            return place(operand, slide).inner // self.granules[operand]

        def strides(moved: Mapping[str, int]) -> tuple[int, ...]:
            return tuple(moved.get(name, 0) for name in self.names)

        streamed, groups = [], []
        first, tiles = dict.fromkeys((stream, weights, sums), 0), 1
        slides, columns = window.slides(self.configuration), window.columns
        size = window.block(tile[columns.axis], self.configuration)
        lines = tile[columns.axis] // size
        sizes = {**tile, columns.axis: size}
        for (slide, taps), phase in zip(reversed(slides), reversed(phases), strict=True):
            count, step = slide.groups(taps)
            steps = slide.steps(sizes[slide.axis], taps, phase)
            if steps > 1 << self.configuration.extent_bits:
                raise UnfitError(
                    f"{steps} pixels along `{slide.axis}` are too many for a loop; cut that axis"
                )
            pixel = output(stream, slide) // slide.stride
            moved = {stream: pixel * slide.phases, sums: output(sums, slide) // slide.advance}
            streamed.append(LoopPart(slide.axis, steps, 1, strides(moved), False, len(slides) > 1))
            first[stream] += phase * pixel
            first[weights] += phase * tiles
            first[sums] -= (slide.used(taps, phase) - 1) * moved[sums]
            if count > 1:
                moved = {stream: step * pixel, weights: tiles}
                groups.append(LoopPart(slide.tap, count, 1, strides(moved), True))
            tiles *= count * slide.phases
        if lines > 1:
            moved = {
                name: place(name, columns).offset(size) // self.granules[name]
                for name in (stream, sums)
            }
            streamed.append(LoopPart(columns.axis, lines, size, strides(moved), False))
        return [*reversed(streamed), *reversed(groups)], first

    def _channel_parts(self, buffers: Mapping[str, Buffer]) -> list[dict[str, int]]:
        """Offsets and field of each `lanes_out`-channel group in a wider stream row."""
        variants = []
        for part in range(self.configuration.depthwise_parts):
            channels = part * self.configuration.lanes_out
            moved = {
                name: self._stride(buffers, name, self.compute.axes[-1].name, channels)
                for name in map(self.family.operand_of, (Role.WEIGHTS, Role.ACCUMULATOR))
                if part
            }
            variants.append({self.family.lane_group_field: part, **moved})
        return variants

    def _parts(self, tile: Mapping[str, int], buffers: Mapping[str, Buffer]) -> list[LoopPart]:
        """All loops of the tile, outermost first: data axes in order, then reductions."""
        parts = []
        for axis in (*self.compute.axes, *self.compute.reductions):
            reduced = axis in self.compute.reductions
            extent, lane = tile[axis.name], self.lanes.get(axis.name, 1)
            layouts = (buffers[read.tensor].axes.get(axis.name) for read in self.reads.values())
            blocks = {layout.block for layout in layouts if layout is not None}
            cuts = [*sorted({lane} | {block for block in blocks if lane < block < extent}), extent]
            levels = []
            for step, limit in itertools.pairwise(cuts):
                if limit % step:
                    raise CompileError(
                        f"compute `{self.compute.output.name}`: axis `{axis.name}` of {extent} "
                        f"cannot be cut into whole blocks of {step}"
                    )
                if limit == step:
                    continue
                strides = tuple(self._stride(buffers, name, axis.name, step) for name in self.names)
                levels.append(LoopPart(axis.name, limit // step, step, strides, reduced))
            parts += reversed(levels)
        return parts

    def _stride(self, buffers: Mapping[str, Buffer], operand: str, axis: str, step: int) -> int:
        if operand not in self.reads:
            return 0
        tensor = self.reads[operand].tensor
        placement = buffers[tensor].axes.get(axis)
        if placement is None:
            return 0
        moved = placement.stride(step)
        if moved is None:
            raise CompileError(f"tensor `{tensor}`: axis `{axis}` cannot move by {step}")
        return _divide(moved, self.granules[operand], tensor)


def _bind(pattern: Pattern, compute: Compute, found: Match) -> tuple[dict[str, Read], list[Slot]]:
    """The read of each operand, and its slot; `param.bias` and `param.scale` share `param`."""
    own = Read(compute.output.name, own_index(compute))
    bound = {pattern.output.operand: (pattern.output, own)}
    for slot, read in found.reads:
        name = slot.operand.split(".")[0]
        if name in bound and bound[name][1].index != read.index:
            raise CompileError(
                f"compute `{compute.output.name}`: `{bound[name][1]}` and `{read}` share the "
                f"operand `{name}` and must have the same index"
            )
        bound[name] = (slot, read)
    return {name: read for name, (_, read) in bound.items()}, [slot for slot, _ in bound.values()]


def _granule(plain: Instruction, operand: str, configuration: Configuration) -> int:
    """Elements that one address step of an operand stands for."""
    size = plain.memory_of(operand).scratchpad.element_bytes
    return plain.granule_bytes(operand, configuration) // size


def _divide(value: int, granule: int, tensor: str) -> int:
    if value % granule:
        raise CompileError(f"tensor `{tensor}`: {value} is not a multiple of {granule} elements")
    return value // granule
