"""Lower bound for the cycles of a kernel: no tiling and no order of instructions is faster.

The bound holds for every program of this machine that computes each product of the kernel on GEMM
and each finish on VECTOR, that starts with empty scratchpads, and whose values lie in main memory
as int8[N, H, W, C] with their borders and, if they are gathered, in ACT in the order of the image.
No LOAD brings a wrong byte that a later one corrects. The bound assumes main memory without
latency, as fast as the port; `scheduling.program_bound` adds that of a program's memory, and what
layers wait for. `demand_of` explains each unit's share. Costs that it ignores make the bound
smaller, never larger.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from ...isa.configuration import Configuration, Memory
from ...isa.durations import VECTOR_RESULT_CYCLES, gemm_tail_cycles, tile_cycles
from ...isa.expressions import Affine, Read
from ..tensor import Kernel, Patches, Tensor, View
from .phases import Phase, phases_of
from .residents import is_plain, value_of
from .tile_plan import tiles_of
from .weights import fits_four_bits, four_bits_load

UNITS = ("gemm", "vector", "load", "store")
"""The units that share a kernel's work, in the order of the numbers of a `Demand`."""

Indices = tuple[frozenset[int], ...]
"""For each dimension of a tensor, the needed indices."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The least work of each unit, in cycles, in the order of `UNITS`.

    Parameters
    ----------
    before, busy, after
        Cycles before the unit can start, cycles of its own work, and cycles between its last work
        and the end of the run.
    traffic
        Bytes that LOAD reads from main memory, and bytes that STORE writes there.
    bursts
        Bursts in which LOAD reads them, and those in which STORE writes them.
    """

    before: tuple[int, ...]
    busy: tuple[int, ...]
    after: tuple[int, ...]
    traffic: tuple[int, ...] = (0, 0)
    bursts: tuple[int, ...] = (0, 0)

    @property
    def cycles(self) -> int:
        """The lower bound: the cycles of the slowest unit."""
        return max(self._totals())

    @property
    def unit(self) -> str:
        """The slowest unit; the first of equals."""
        totals = self._totals()
        return UNITS[totals.index(max(totals))]

    def then(self, later: "Demand") -> "Demand":
        """The demand of two kernels in one program, whose work may overlap."""
        return Demand(
            tuple(first if busy else 0 for first, busy in zip(self.before, self.busy, strict=True)),
            tuple(map(sum, zip(self.busy, later.busy, strict=True))),
            tuple(last if busy else 0 for last, busy in zip(later.after, later.busy, strict=True)),
            tuple(map(sum, zip(self.traffic, later.traffic, strict=True))),
            tuple(map(sum, zip(self.bursts, later.bursts, strict=True))),
        )

    def cycles_before(self, later: "Demand") -> int:
        """The lower bound of this kernel and then another one, which is not fused with it.

        VECTOR works in program order: first it finishes every product of this kernel, which takes
        at least as long as GEMM, and only then begins the later one.
        """
        in_turn = 0
        if self.busy[0] and later.busy[1]:
            in_turn = self.before[0] + self.busy[0] + later.busy[1] + later.after[1]
        return max(in_turn, self.then(later).cycles)

    def _totals(self) -> list[int]:
        parts = zip(self.before, self.busy, self.after, strict=True)
        return [before + busy + after if busy else 0 for before, busy, after in parts]


NOTHING = Demand(*[(0,) * len(UNITS)] * 3)
"""The demand of no kernel."""


def chained(demands: Sequence[Demand]) -> Demand:
    """The demand of kernels that run one after the other as one program."""
    return reduce(Demand.then, demands) if demands else NOTHING


@dataclass(frozen=True, slots=True)
class OnChip:
    """Values that a program of several kernels may leave in ACT.

    Parameters
    ----------
    made
        Values that a kernel computes; another one need not load them.
    unstored
        Those that need not be stored either.
    """

    made: frozenset[str] = frozenset()
    unstored: frozenset[str] = frozenset()

    @staticmethod
    def between(
        kernels: Iterable[Kernel],
        leaving: Iterable[str],
        wholes: Mapping[str, str],
        configuration: Configuration,
    ) -> "OnChip":
        """Those of kernels in one program.

        A value must be stored if it leaves, if no kernel finds it in ACT as it is made, or if ACT
        cannot hold it; so must all values inside the same whole one.

        Parameters
        ----------
        leaving
            Values that reach main memory in any case.
        wholes
            The whole value that holds each value in main memory.
        """
        every = list(kernels)
        made = {value_of(kernel.output) for kernel in every}
        inputs = [kernel.tensors[name] for kernel in every for name in kernel.inputs]
        room = configuration.size_bytes(Memory.ACT)
        tensors = [*inputs, *(kernel.output for kernel in every)]
        loaded = {value_of(one) for one in inputs if not is_plain(one)}
        large = {value_of(one) for one in tensors if math.prod(one.shape) > room}
        read = {value_of(one) for one in inputs}
        through = {wholes.get(name) for name in (*leaving, *loaded, *large, *(read - made))}
        unstored = {name for name in made if wholes.get(name) not in through}
        return OnChip(frozenset(made), frozenset(unstored))


NOWHERE = OnChip()
"""Every activation goes through main memory."""


def demand_of(kernel: Kernel, configuration: Configuration, on_chip: OnChip = NOWHERE) -> Demand:
    """The work of every program that computes a kernel, and has some values on chip.

    gemm
        GEMM multiplies every weight tile by every needed pixel, one row per cycle. A weight tile
        with fewer rows still occupies GEMM for `tile_cycles`, except the last one. Empty lanes
        cost as much as full ones, because a row has all lanes. A sliding window also streams the
        pixels before its first complete sum.
    vector
        VECTOR computes every needed element of every finish, `vector_lanes` per cycle, once for
        each index of the finish's reduction and each pass over its rows.
    load
        LOAD writes every needed element of inputs, weights, parameters and tables into a scratchpad
        once: per cycle at most one beat of the port and one row of that scratchpad. Every copy of a
        byte in gathered windows counts, because LOAD writes no more than it reads, and each run of
        them takes beats of its own. Padding is free. An activation that is transposed for WGT takes
        a cycle for each byte, since the bytes of a beat belong to different rows.
    store
        STORE writes every element of the output, and of what is kept, once, unless it may stay on
        chip: per cycle at most one beat of the port and one row of ACT.

    A unit cannot start before its inputs arrive: GEMM needs a weight tile in WGT and then in the
    array, VECTOR needs a row of a product, and STORE needs a result of VECTOR. The run does not end
    with a unit's last work either: VECTOR must finish a product, and STORE must store the result.
    So the latencies of GEMM and VECTOR count. Those of main memory, of dispatch and between
    instructions do not.
    """
    every = phases_of(kernel)
    asked = _asked(kernel, every)
    # A window may read only padding; then it needs no element.
    steps = tuple(step for step in every if _count(asked[step.name]))
    products = [step for step in steps if step.product is not None]
    made = {step.name for step in every}
    # VECTOR must wait for a product unless some finish reads only memory.
    first = all(step.product or made & {r.tensor for r in step.activations} for step in steps)
    tile = tile_cycles(configuration) + min(
        (_tile_load_cycles(kernel, step, configuration) for step in products), default=0
    )
    product = tile + 1 + gemm_tail_cycles(configuration) if first else 0
    bare = every[-1].is_bare
    finish = 0 if bare else 1 + VECTOR_RESULT_CYCLES
    loaded = _loads(kernel, steps, made, on_chip.made, asked, configuration)
    results = [kernel.output, *(kernel.tensors[name] for name in kernel.kept)]
    stored = sum(
        math.prod(one.shape) * np.dtype(one.dtype).itemsize
        for one in results
        if value_of(one) not in on_chip.unstored
    )
    return Demand(
        before=(tile, product, 0, product + finish),
        busy=(
            sum(_gemm_cycles(step, asked, configuration) for step in products),
            sum(_vector_cycles(step, asked, configuration) for step in steps),
            sum(one.cycles for one in loaded),
            _pieces(stored, Memory.ACC if bare else Memory.ACT, configuration),
        ),
        after=(gemm_tail_cycles(configuration) + finish + 1, VECTOR_RESULT_CYCLES + 1, finish, 0),
        traffic=(sum(one.size for one in loaded), stored),
        bursts=(sum(one.bursts for one in loaded), stored // configuration.burst_bytes),
    )


@dataclass(frozen=True, slots=True)
class PhaseWork:
    """The least work of one phase.

    Parameters
    ----------
    gemm, vector
        Cycles of its products, and of its finish.
    weights, constants
        Cycles of LOAD for constant weights, and for the other constants of the finish; and their
        bytes in main memory.
    tiles
        Number of weight tiles of a product without a sliding window.
    instructions
        Number of instructions, without those for activations.
    pointwise
        Whether each step of the finish needs all that its element needs.
    """

    gemm: int
    vector: int
    weights: tuple[int, int]
    constants: tuple[int, int]
    tiles: int
    instructions: int
    pointwise: bool


def work_of_phases(kernel: Kernel, configuration: Configuration) -> list[PhaseWork]:
    """The work of each phase, as far as it needs operands of the phase."""
    every = phases_of(kernel)
    asked = _asked(kernel, every)
    found = []
    for step in every:
        elements, product = _count(asked[step.name]), step.product is not None
        if not elements:
            found.append(PhaseWork(0, 0, (0, 0), (0, 0), 0, 0, pointwise=True))
            continue
        window = 1 if product else math.prod(step.reductions.values())
        steps = -(-elements // configuration.vector_lanes) * window * step.passes
        weights, tiles, parts = (0, 0), 0, int(product)
        if step.weights is not None and step.weights.tensor in kernel.constants:
            size = _count(asked[step.weights.tensor])
            # A GEMM has all its weights in WGT when it starts.
            parts = max(1, -(-size // configuration.size_bytes(Memory.WGT)))
            if step.window is None:
                tiles = size // configuration.tile_bytes
            if fits_four_bits(kernel, step.weights.tensor, step.window, configuration):
                held, cycles = four_bits_load(size, configuration)
                weights = cycles, held
            else:
                weights = _pieces(size, Memory.WGT, configuration), size
        row = step.bias or step.scale
        reads = ((row, Memory.PARAM), (step.epsilon, Memory.PARAM), (step.table, Memory.LUT))
        sizes = [
            (_count(asked[read.tensor]) * memory.scratchpad.element_bytes, memory)
            for read, memory in reads
            if read is not None and kernel.tensors[read.tensor].view is None
        ]
        found.append(
            PhaseWork(
                gemm=_gemm_cycles(step, asked, configuration) if product else 0,
                vector=0 if step.is_bare else steps,
                weights=weights,
                constants=(
                    sum(_pieces(size, memory, configuration) for size, memory in sizes),
                    sum(size for size, _ in sizes),
                ),
                tiles=tiles,
                instructions=2 * parts + (0 if step.is_bare else step.passes) + len(sizes),
                pointwise=not step.finish.reductions and step.passes == 1,
            )
        )
    return found


def _asked(kernel: Kernel, steps: tuple[Phase, ...]) -> dict[str, Indices]:
    """The needed indices of every tensor for the whole output; if reads differ, the largest."""
    last = steps[-1].finish
    asked = {last.output.name: tuple(frozenset(range(axis.extent)) for axis in last.axes)}
    for step in reversed(steps):
        wanted = (list(part) for part in asked[step.name])
        indices = {axis: list(range(extent)) for axis, extent in step.extents.items()}
        for one in step.partials:
            indices |= {axis.name: list(range(axis.extent)) for axis in one.compute.axes}
        indices |= dict(zip((axis.name for axis in step.finish.axes), wanted, strict=True))
        for one in step.partials:
            asked[one.name] = tuple(frozenset(indices[axis.name]) for axis in one.compute.axes)
        for read in _reads(step):
            found = _touched(read, kernel.tensors[read.tensor], indices)
            asked[read.tensor] = max(asked.get(read.tensor, found), found, key=_count)
    return asked


def _reads(step: Phase) -> list[Read]:
    early = (one.weights for one in step.partials)
    others = (step.weights, *early, *step.parameters, *(read for read, _ in step.constants))
    return [*step.activations, *(read for read in others if read is not None)]


def _touched(read: Read, tensor: Tensor, indices: Mapping[str, list[int]]) -> Indices:
    """Indices inside a tensor that a read takes."""
    extents = list(tensor.shape)
    if tensor.patches is not None and not tensor.patches.whole_pixels:
        extents[-1] = tensor.patches.rows * tensor.patches.run  # the other lanes are undefined
    if tensor.view is not None and tensor.view.channels:
        extents[-1] = min(extents[-1], tensor.view.channels)  # the others belong to another part
    if not read.index:  # a look-up may read any element
        return tuple(frozenset(range(extent)) for extent in extents)
    return tuple(
        frozenset(range(extent)).intersection(_values(affine, indices))
        for affine, extent in zip(read.index, extents, strict=True)
    )


def _values(affine: Affine, indices: Mapping[str, list[int]]) -> set[int]:
    values = {affine.constant}
    for axis, factor in affine.terms:
        values = {value + factor * index for value in values for index in indices[axis]}
    return values


def _count(indices: Indices) -> int:
    """Number of elements; no axis moves two dimensions."""
    return math.prod(map(len, indices))


def _gemm_cycles(step: Phase, wanted: Mapping[str, Indices], configuration: Configuration) -> int:
    assert step.weights is not None
    asked = wanted[step.name]
    tile = step.streamed({**step.reductions, **_extents(step, asked)})
    moved = {axis for affine in step.weights.index for axis, _ in affine.terms}
    sizes = {axis: tile[axis] for axis in step.pixels if axis not in moved}
    for slide, taps in () if step.window is None else step.window.slides(configuration):
        used = slide.used(taps, slide.phases - 1)
        sizes[slide.axis] = (tile[slide.axis] - 1) * min(slide.advance, used) + used
    rows = math.prod(sizes.values())
    rows *= math.prod(extent for axis, extent in step.reductions.items() if axis not in moved)
    tiles, further = tiles_of(step, tile, configuration)
    work = [(tiles + further.least, rows)]
    for one in step.partials:
        if one.weights is not None:
            depth = math.prod(axis.extent for axis in one.compute.reductions)
            rows = _count(wanted[one.name][:-1])
            work.append((-(-depth // configuration.lanes_in), rows))
    least = tile_cycles(configuration)
    return sum(max(tiles - 1, 0) * max(rows, least) + rows for tiles, rows in work)


def _extents(step: Phase, asked: Indices) -> dict[str, int]:
    """The number of needed indices of each data axis."""
    names = (axis.name for axis in step.finish.axes)
    return dict(zip(names, map(len, asked), strict=True))


def _tile_load_cycles(kernel: Kernel, step: Phase, configuration: Configuration) -> int:
    """Least cycles to load a weight tile; a sliding or padded tile needs only a part."""
    assert step.weights is not None
    partial = step.window is not None or kernel.tensors[step.weights.tensor].view is not None
    if partial:
        return 0
    if fits_four_bits(kernel, step.weights.tensor, None, configuration):
        return four_bits_load(configuration.tile_bytes, configuration)[1]
    return _pieces(configuration.tile_bytes, Memory.WGT, configuration)


def _vector_cycles(step: Phase, asked: Mapping[str, Indices], configuration: Configuration) -> int:
    if step.is_bare:
        return 0
    window = 1 if step.product else math.prod(step.reductions.values())
    partial = (one.name for one in step.partials if one.weights is None)
    return sum(
        -(-_count(asked[name]) // configuration.vector_lanes) * steps
        for name, steps in ((step.name, window * step.passes), *((name, 1) for name in partial))
    )


class Loaded(NamedTuple):
    """Bytes, cycles and bursts that LOAD needs at least, for a tensor and a scratchpad."""

    size: int
    cycles: int
    bursts: int


def _loads(
    kernel: Kernel,
    steps: tuple[Phase, ...],
    made: set[str],
    on_chip: Collection[str],
    asked: Mapping[str, Indices],
    configuration: Configuration,
) -> list[Loaded]:
    """The work of LOAD for each tensor and scratchpad."""
    loads: dict[tuple[str, Memory], Loaded] = {}
    for step in steps:
        for read in step.activations:
            tensor = kernel.tensors[read.tensor]
            stays = is_plain(tensor) and value_of(tensor) in on_chip
            if read.tensor not in made and not stays:
                size = _count(asked[read.tensor])
                if tensor.patches is None:
                    one = _plain(size, Memory.ACT, configuration)
                else:
                    one = gathered_load(size, tensor, tensor.patches, configuration)
                # A value that is read as two operands need be loaded only once.
                key = value_of(tensor), Memory.ACT
                loads[key] = Loaded(*map(max, loads.get(key, one), one))
        for read, memory in (
            *((read, Memory.WGT) for read in (step.weights, *(p.weights for p in step.partials))),
            *((read, Memory.PARAM) for read in step.parameters),
            (step.table, Memory.LUT),
            (step.epsilon, Memory.PARAM),
        ):
            if read is None:
                continue
            indices, view = asked[read.tensor], kernel.tensors[read.tensor].view
            window = step.window if read is step.weights else None
            if view is not None and not view.rows_are_runs:
                one = transposed_load(indices, view, configuration)
            elif view is not None:
                one = _plain(_distinct(indices, view), memory, configuration)
            elif memory is Memory.WGT and fits_four_bits(
                kernel, read.tensor, window, configuration
            ):
                size, cycles = four_bits_load(_count(indices), configuration)
                one = Loaded(size, cycles, size // configuration.burst_bytes)
            else:
                size = memory.scratchpad.element_bytes
                one = _plain(_count(indices) * size, memory, configuration)
            loads[read.tensor, memory] = one
    return [*loads.values()]


def gathered_load(
    size: int, tensor: Tensor, patches: Patches, configuration: Configuration
) -> Loaded:
    """Return what LOAD needs at least to gather windows.

    Rows of a window are a line apart in main memory and a run apart in ACT, so no piece has bytes
    of two; nor of two windows, which are in different rows of ACT. Windows beside each other share
    a burst only if they are as far apart on both sides. Where a line of windows ends, the last one
    may share a burst with the first of the next line.
    """
    run, (images, rows, columns, lanes) = patches.run, tensor.shape
    apart = run // patches.pixels * patches.column_step
    if columns == 1 or patches.whole_pixels or (patches.rows == 1 and apart == lanes):
        return _plain(size, Memory.ACT, configuration)
    runs = size // run
    bursts = max(runs - images * rows, size // configuration.burst_bytes)
    return Loaded(size, runs * _pieces(run, Memory.ACT, configuration), bursts)


def transposed_load(asked: Indices, view: View, configuration: Configuration) -> Loaded:
    """Return what LOAD needs at least for weights whose rows in WGT are columns in main memory.

    Bytes behind each other in main memory are rows apart in WGT, so each is a piece. It is a burst,
    too, unless LOAD writes columns; the last row of a tile may share one with the next tile.
    """
    size = _distinct(asked, view)
    bursts = size // configuration.burst_bytes
    if configuration.transposed_weights == "none" and view.moves[-2] == (3, 1):
        depth = len(asked[-2])
        bursts = max(bursts, size - size // depth * -(-depth // configuration.lanes_in))
    return Loaded(size, size, bursts)


def _plain(size: int, memory: Memory, configuration: Configuration) -> Loaded:
    return Loaded(size, _pieces(size, memory, configuration), size // configuration.burst_bytes)


def _distinct(asked: Indices, view: View) -> int:
    """Number of elements in memory; a dimension with a stride of 0 adds none."""
    pairs = zip(asked, view.moves, strict=True)
    return math.prod(len(indices) if step else min(len(indices), 1) for indices, (_, step) in pairs)


def _pieces(size: int, memory: Memory, configuration: Configuration) -> int:
    """Least cycles to move bytes: one piece per cycle, within one row and one beat."""
    return -(-size // min(configuration.bus_bytes, configuration.row_bytes(memory)))
