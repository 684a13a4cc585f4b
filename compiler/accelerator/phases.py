"""Phases of a kernel: a product with the compute that finishes it, or a single compute.

A phase computes a tile of activations from tiles of activations. In a fused kernel, the data
between phases stay on chip.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

from ...errors import CompileError
from ...isa.expressions import Read, reads_of
from ...isa.instructions import Role
from ..te.box import Box
from ..tensor import Compute, Kernel
from .dma import PIXEL_AXES
from .matching import find_pattern, lane_axes
from .sliding import Window, window_of

Tile = Mapping[str, int]
"""Extent of every axis in a tile."""


@dataclass(frozen=True)
class Phase:
    """One or two stages that work on the same tile.

    A product whose sums leave as they are is its own `finish`.

    Parameters
    ----------
    product
        The compute that accumulates, if any.
    finish
        The compute that defines the phase's activation.
    reduced
        The reduction axis in the lanes; None without a matrix product.
    streams, operands
        Reads of activations by the product and by the finishing compute. The activations come from
        main memory or from earlier phases.
    window
        The sliding window of a depthwise product.
    weights, bias, scale, table
        Reads by operand. All of them are constants, but weights may also be an activation in main
        memory.
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

    @cached_property
    def activations(self) -> tuple[Read, ...]:
        """All reads of activations, the product's first."""
        return (*self.streams, *self.operands)

    @cached_property
    def weight_axes(self) -> tuple[str, ...]:
        """The axes that index its weights."""
        index = self.weights.index if self.weights else ()
        return tuple(axis for affine in index for axis, _ in affine.terms)

    @cached_property
    def weight_tiles(self) -> dict[tuple[int, ...], int]:
        """Cache of `plan.weight_tiles`: weight tiles by machine and tile."""
        return {}

    @property
    def parameters(self) -> Read | None:
        """The read whose index selects the rows of PARAM."""
        return self.bias or self.scale


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
    phases, product = [], None
    for stage in kernel.stages:
        pattern, _ = find_pattern(stage)
        if pattern.role(pattern.output) is Role.ACCUMULATOR:
            if product is not None:
                raise CompileError(f"kernel `{kernel.name}`: two products without a finish between")
            product = stage
        else:
            phases.append(_phase(product, stage))
            product = None
    if product is not None:
        phases.append(_phase(product, product))
    return tuple(phases)


def _phase(product: Compute | None, finish: Compute) -> Phase:
    computes = (product, finish) if product and product is not finish else (finish,)
    streams: dict[str, Read] = {}
    operands: dict[str, Read] = {}
    reads: dict[str, Read] = {}
    reduced = window = None
    for compute in computes:
        pattern, found = find_pattern(compute)
        roles = {read: pattern.role(slot) for slot, read in found.reads}
        for read in reads_of(compute.body):
            role = roles[read]
            if role is not Role.STREAM:
                reads[role.value] = read
            elif product is None or read.tensor != product.output.name:
                (streams if compute is product else operands)[read.tensor] = read
        if product is not None and compute is product:
            lanes = lane_axes(pattern, product, found)
            inner = [axis for lane, axis in lanes.items() if lane not in pattern.output.lanes]
            reduced = inner[0] if inner else None
            window = window_of(product, found) if pattern.window else None
    return Phase(
        product=product,
        finish=finish,
        reduced=reduced,
        streams=tuple(streams.values()),
        operands=tuple(operands.values()),
        window=window,
        **reads,
    )


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
    axes = step.finish.axes
    return len(read.index) == len(axes) and all(
        affine.constant == 0 and affine.terms == ((axis.name, 1),)
        for affine, axis in zip(read.index, axes, strict=True)
    )
