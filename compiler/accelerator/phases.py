"""Phases of a kernel: a compute that defines an activation, and the sums in ACC that it reads.

A phase computes a tile of activations from tiles of activations. In a fused kernel, the data
between phases stay on chip.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from ...errors import CompileError
from ...isa.configuration import Memory
from ...isa.expressions import Affine, Read, reads_of
from ...isa.instructions import Role
from ..te.box import Box
from ..tensor import Compute, Kernel
from .dma import PIXEL_AXES
from .matching import find_pattern, lane_axes, memories_of
from .sliding import Window, window_of
from .wide_weights import Excess, excess_of

Tile = Mapping[str, int]
"""Extent of every axis in a tile."""

Places = Mapping[str, Collection[Memory]]
"""The memories where each tensor may lie."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A compute whose result only later computes of its phase read.

    Parameters
    ----------
    compute
        The stage.
    operands
        Its reads of activations; a product reads those of the phase's product.
    parameters, weights
        Its reads of PARAM and of constant weights.
    source
        The sums in ACC that it reads; empty if there are none.
    early
        Whether it is the same for all channels, and computed once for them.
    """

    compute: Compute
    operands: tuple[Read, ...]
    parameters: tuple[Read, ...]
    weights: Read | None
    source: str
    early: bool

    @property
    def name(self) -> str:
        """The result tensor."""
        return self.compute.output.name

    def sizes(self, tile: Tile) -> list[int]:
        """Its extents for a tile of its phase."""
        return [tile.get(axis.name, axis.extent) for axis in self.compute.axes]

    @property
    def in_place(self) -> bool:
        """Whether it takes the place of the sums that it reads, element by element."""
        read = next((r for r in reads_of(self.compute.body) if r.tensor == self.source), None)
        sums = self.compute.output.dtype == "int32"
        return sums and read is not None and read.index == own_index(self.compute)


@dataclass(frozen=True)
class Phase:
    """Stages that work on the same tile.

    A product whose sums leave as they are is its own `finish`.

    Parameters
    ----------
    product
        The compute that accumulates, if any.
    finish
        The compute that defines the phase's activation.
    partials
        Other computes before it, in order.
    reduced
        The reduction axis in the lanes; None without a matrix product.
    streams, operands
        Reads of activations by the product and by the finishing compute. The activations come from
        main memory or from earlier phases, as those that `partials` read.
    window
        The sliding window of a depthwise product.
    weights, bias, scale, table, epsilon, factor
        Reads by operand. All of them are constants, but weights may also be an activation in main
        memory. The last two are for statistics of rows.
    passes
        Instructions over each element of the finish.
    excess
        Where constant weights exceed int8.
    """

    product: Compute | None
    finish: Compute
    reduced: str | None
    streams: tuple[Read, ...]
    operands: tuple[Read, ...]
    window: Window | None = None
    weights: Read | None = None
    bias: Read | None = None
    scale: Read | None = None
    table: Read | None = None
    epsilon: Read | None = None
    factor: Read | None = None
    passes: int = 1
    partials: tuple[Partial, ...] = ()
    excess: Excess | None = field(default=None, compare=False)

    @property
    def has_rows(self) -> bool:
        """Whether each element depends on all channels of its pixel."""
        return self.epsilon is not None

    @property
    def constants(self) -> Iterator[tuple[Read, Memory]]:
        """The reads of constants by the finish, with their scratchpads."""
        pairs = self.bias, self.scale, self.epsilon, self.factor
        places = (self.table, Memory.LUT), *((read, Memory.PARAM) for read in pairs)
        return ((read, memory) for read, memory in places if read is not None)

    @property
    def is_bare(self) -> bool:
        """Whether the sums of a product are the result."""
        return self.product is self.finish

    @cached_property
    def name(self) -> str:
        """The result tensor."""
        return self.finish.output.name

    @cached_property
    def pixels(self) -> tuple[str, ...]:
        """Batch, row and column axis."""
        return tuple(axis.name for axis in self.finish.axes[:PIXEL_AXES])

    @cached_property
    def channels(self) -> tuple[str, ...]:
        """Channel axes; more than one where channels are cut into independent blocks."""
        return tuple(axis.name for axis in self.finish.axes[PIXEL_AXES:])

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extent of every axis, reductions included."""
        return {**(self.product.extents if self.product else {}), **self.finish.extents}

    @cached_property
    def reductions(self) -> dict[str, int]:
        """Extent of every reduction axis of the product, or of the compute without a product."""
        compute = self.product or self.finish
        return {axis.name: axis.extent for axis in compute.reductions}

    def streamed(self, tile: Tile) -> Tile:
        """The tile of the product, which may have a row more, behind the last one.

        Partial products read all inputs of a pixel, which therefore stay where the product is cut.
        """
        whole = self.reductions if self.shares_inputs else {}
        return {
            axis: whole.get(axis, size + (1 if axis in self.bordered else 0))
            for axis, size in tile.items()
        }

    @cached_property
    def shares_inputs(self) -> bool:
        """Whether partial products read the inputs of the product."""
        return any(one.weights for one in self.partials)

    @cached_property
    def bordered(self) -> tuple[str, ...]:
        """The axes along which the product has a row more than the result."""
        found, own = self.product.extents if self.product else {}, self.finish.extents
        return tuple(axis for axis, size in own.items() if found.get(axis, 0) > size)

    @cached_property
    def vector_reads(self) -> tuple[Read, ...]:
        """The reads of activations by VECTOR, one for each tensor."""
        partial = (read for one in self.partials if not one.weights for read in one.operands)
        return tuple({read.tensor: read for read in (*partial, *self.operands)}.values())

    @cached_property
    def activations(self) -> tuple[Read, ...]:
        """All reads of activations, the product's first."""
        return (*self.streams, *self.vector_reads)

    @cached_property
    def weight_axes(self) -> tuple[str, ...]:
        """The axes that index its weights."""
        index = self.weights.index if self.weights else ()
        return tuple(axis for affine in index for axis, _ in affine.terms)

    @cached_property
    def weight_tiles(self) -> dict[tuple[int, ...], Any]:
        """Cache of `tile_plan.tiles_of`: weight tiles by machine and tile."""
        return {}

    @cached_property
    def parameters(self) -> tuple[Read, ...]:
        """For each stage with parameters, the read whose index selects the rows of PARAM."""
        own = self.bias or self.scale
        return (
            *(read for one in self.partials for read in one.parameters),
            *((own,) if own else ()),
        )


_KNOWN: WeakKeyDictionary[Kernel, tuple[Phase, ...]] = WeakKeyDictionary()


def phases_of(kernel: Kernel) -> tuple[Phase, ...]:
    """The phases of a kernel, in order.

    Raises
    ------
    CompileError
        When a stage matches no instruction, or no compute finishes a product.
    """
    found = _KNOWN.get(kernel)
    if found is None:
        found = _KNOWN[kernel] = _phases(kernel)
    return found


def _phases(kernel: Kernel) -> tuple[Phase, ...]:
    places = memories_of(kernel.tensors.values()) | memories_of(one.output for one in kernel.stages)
    phases, before = [], []
    for stage in kernel.stages:
        before.append(stage)
        bare = stage is kernel.stages[-1] and _is_product(stage, places)
        if bare or (stage.output.dtype == "int8" and not _is_digit(stage, kernel)):
            early = sum(_is_early(one, stage) for one in before)
            if sum(_is_product(one, places) for one in before) > 1 + early:
                raise CompileError(f"kernel `{kernel.name}`: two products without a finish between")
            phase = _phase(tuple(before), places)
            given = kernel.constants.get(phase.weights.tensor) if phase.weights else None
            phases.append(phase if given is None else replace(phase, excess=excess_of(given)))
            before = []
    if before:
        raise CompileError(f"kernel `{kernel.name}`: a product needs a stage that finishes it")
    return tuple(phases)


def _is_digit(stage: Compute, kernel: Kernel) -> bool:
    sums = {one.output.name for one in kernel.stages if one.output.dtype == "int32"}
    return corrects_sums(stage.output.name, kernel.stages, sums)


def corrects_sums(name: str, computes: Sequence[Compute], sums: Collection[str]) -> bool:
    """Whether a compute turns sums that others also read into bytes that correct sums."""
    reads = {one.output.name: {r.tensor for r in reads_of(one.body)} for one in computes}
    readers = [names for names in reads.values() if name in names]
    given = [sum(one in names for names in reads.values()) for one in reads[name] if one in sums]
    return max(given, default=0) > 1 and bool(readers) and all(n & {*sums} for n in readers)


def _is_product(stage: Compute, places: Places) -> bool:
    pattern, _ = find_pattern(stage, places)
    return pattern.role(pattern.output) is Role.ACCUMULATOR


def _is_early(stage: Compute, finish: Compute) -> bool:
    """Whether a stage is the same for all channels of the finish."""
    return finish.axes[PIXEL_AXES].name not in {axis.name for axis in stage.axes}


def _phase(computes: tuple[Compute, ...], places: Places) -> Phase:
    inside = {compute.output.name: compute.output.dtype for compute in computes}
    given: dict[str, Any] = {}
    partials = []
    for compute in computes:
        pattern, found = find_pattern(compute, places)
        roles = {read: pattern.role(slot) for slot, read in found.reads}
        streams = tuple(
            {
                read.tensor: read
                for read in reads_of(compute.body)
                if roles[read] is Role.STREAM and read.tensor not in inside
            }.values()
        )
        reads = {role.value: read for read, role in roles.items() if role is not Role.STREAM}
        early = _is_early(compute, computes[-1])
        if pattern.role(pattern.output) is Role.ACCUMULATOR and not early:
            lanes = lane_axes(pattern, compute, found)
            inner = [axis for lane, axis in lanes.items() if lane not in pattern.output.lanes]
            given |= {
                "product": compute,
                "streams": streams,
                "reduced": inner[0] if inner else None,
                "window": window_of(compute, found) if pattern.window else None,
                **reads,
            }
        elif compute is computes[-1]:
            passes = len(pattern.passes) or 1
            given |= {"finish": compute, "operands": streams, "passes": passes, **reads}
        else:
            sums = [r.tensor for r in roles if r.tensor in inside and inside[r.tensor] == "int32"]
            source = next(iter(sums), "")
            weights = reads.pop(Role.WEIGHTS.value, None)
            parameters = tuple(reads.values())
            partials.append(Partial(compute, streams, parameters, weights, source, early))
    none = {"product": None, "reduced": None, "streams": (), "operands": (), "finish": computes[-1]}
    return Phase(**{**none, **given, "partials": tuple(partials)})


def own_index(compute: Compute) -> tuple[Affine, ...]:
    """The index of the element that a compute defines."""
    return tuple(Affine(((axis.name, 1),)) for axis in compute.axes)


def box_of(read: Read, start: Mapping[str, int], tile: Mapping[str, int]) -> Box:
    """The box of a tensor that a read touches over a tile."""
    box = []
    for affine in read.index:
        low = high = affine.constant
        for axis, factor in affine.terms:
            first = factor * start.get(axis, 0)
            reach = factor * (tile[axis] - 1)
            low += first + min(0, reach)
            high += first + max(0, reach)
        box.append((low, high + 1))
    return tuple(box)


def is_pointwise(read: Read, step: Phase) -> bool:
    """Whether a read of an activation takes the element at the same index as the output."""
    return read.index == own_index(step.finish)
