"""Lower bound for the cycles of a program: layers overlap only as far as their data allow.

The busiest unit alone is a loose bound where layers wait for each other: a global pooling needs the
whole image, so all work before it and all work behind it take their time one after the other. A
*cut* is the end of the last element of a phase. Work is *behind* a cut if each of its steps needs
the whole result, and *ahead* of a cut if the whole result needs it. Between two cuts, each unit
needs at least the time of the work that is behind one and ahead of the other, and LOAD that of the
weights which WGT could not hold already at the first one. These are differences of times, so the
longest path from start to end is the least time that satisfies all of them.

Elements count when they are computed first, so the bound holds if some are computed again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...isa.configuration import Configuration, Memory
from ...isa.durations import gemm_tail_cycles, tile_cycles
from ...isa.encoding import word_bytes
from ...isa.expressions import Affine, Read
from ...isa.memory_model import MemoryModel
from ...isa.pipeline import PACKING_CYCLES, VECTOR_RESULT_CYCLES
from ..accelerator.dma import PIXEL_AXES
from ..accelerator.lower_bound import UNITS, Demand, PhaseWork, work_of_phases
from ..accelerator.phases import Phase, phases_of
from ..accelerator.residents import value_of
from ..graph import QConcat, QInterleave, QReshape, QSwap
from ..tensor import Kernel
from .fusion import Group, MovementGroup

READ_BURST_CYCLES, WRITE_BURST_CYCLES = 3, PACKING_CYCLES + 5
"""Cycles beside main memory's latency from a burst to the next one in its place."""

MAX_CUTS = 128
"""Cuts that are compared; more would take long."""

ROUNDING = 1e-6
"""Cycles that sums of shares may be too large by."""

MAX_PARTS = 64
"""Producers of a phase of which only a part is needed that are followed; more would take long."""


MAX_PLACES = 1 << 22
"""Pairs of results and taps along one axis that are compared; more would take much memory."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The least cycles of a program.

    Parameters
    ----------
    unit
        The unit that is busy for longest, one of `lower_bound.UNITS`; empty if there is no work.
    """

    cycles: int
    unit: str


class _Span(NamedTuple):
    """The indices of one dimension that an element needs: from `low` to `high`, both included.

    Parameters
    ----------
    axis
        The dimension of the element that they depend on; -1 if they are always the same.
    joined
        Whether neighbours' indices have none between them.
    """

    axis: int
    low: np.ndarray
    high: np.ndarray
    joined: bool = True


_Box = tuple[_Span, ...]
"""For each dimension of a result, the indices that an element certainly needs."""


@dataclass(frozen=True, slots=True)
class _Edge:
    """A read of a phase's result.

    Parameters
    ----------
    maker
        The phase.
    box
        What each element of the reader needs; None if it needs something unknown.
    whole
        Whether the whole reader needs the whole result.
    """

    maker: int
    box: _Box | None
    whole: bool


@dataclass(slots=True)
class _Stage:
    """A phase, or a movement, with what it reads.

    Parameters
    ----------
    shape
        Of its result; empty if unknown.
    work
        None for a movement.
    streams
        For each operand of which every step needs an element, the phase; -1 if it is in memory.
    real
        Share of the steps that read elements; the others read only padding.
    taps
        Least share of the window's taps that meet one pixel of the stream.
    met
        Share of the taps that meet any pixel; the others meet only padding.
    mixes
        Phases of which each element affects all channels of some pixel of the result.
    """

    shape: tuple[int, ...]
    work: PhaseWork | None
    edges: list[_Edge] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    real: float = 1.0
    taps: float = 0.0
    met: float = 0.0
    mixes: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProgramWork:
    """The least work of a program, before the main memory is known.

    Parameters
    ----------
    demand
        The least work of each unit.
    words
        The least number of instructions.
    gemm, vector, loads, sizes
        Cycles of GEMM, VECTOR and LOAD, and bytes that LOAD reads, from the start or a cut (rows)
        to a cut or the end (columns).
    ordered
        Whether a cut (columns) comes after another one (rows).
    last
        Cycles from the last work of VECTOR to the end.
    """

    demand: Demand
    configuration: Configuration
    words: int
    gemm: np.ndarray
    vector: np.ndarray
    loads: np.ndarray
    sizes: np.ndarray
    ordered: np.ndarray
    last: int

    def bound(self, memory: MemoryModel) -> Bound:
        """Return the least cycles.

        Before LOAD moves its first byte, FETCH has waited for the first instruction and LOAD for
        main memory. The run ends with the response to the last beat of STORE. In between, LOAD and
        STORE need at least as many cycles as main memory takes for their beats, and for bursts of
        which only some are open at a time.
        """
        demand, configuration = self.demand, self.configuration
        if not any(demand.busy):  # FETCH reads at least HALT
            return Bound(memory.latency_cycles, "")
        word = word_bytes(configuration)
        begin = _transfer_cycles(word, configuration, memory) + memory.latency_cycles
        # The port reads instructions, too.
        words = self.words * word
        port = _transfer_cycles(demand.traffic[0] + words, configuration, memory)
        port += memory.latency_cycles
        gemm, vector, load, store = demand.busy
        if load:
            begin += memory.latency_cycles
        end = memory.latency_cycles if store else 0
        reads, writes = (_transfer_cycles(size, configuration, memory) for size in demand.traffic)
        turns = [max(count - 1, 0) // configuration.outstanding_bursts for count in demand.bursts]
        reads = max(reads, turns[0] * (memory.latency_cycles + READ_BURST_CYCLES))
        writes = max(writes, turns[1] * (memory.latency_cycles + WRITE_BURST_CYCLES))
        busy = gemm, vector, max(load, reads), max(store, writes)
        parts = zip(demand.before, busy, demand.after, strict=True)
        totals = [before + work + after if work else 0 for before, work, after in parts]
        longest = max(totals)
        path = self._longest_path(begin, end, memory)
        return Bound(max(begin + longest + end, port, path), UNITS[totals.index(longest)])

    def _longest_path(self, begin: int, end: int, memory: MemoryModel) -> int:
        """Return the least cycles from start to end by way of cuts."""
        machine = self.configuration
        # Unused bandwidth does not accumulate beyond the beats of one period.
        reads = self.sizes / machine.bus_bytes * memory.cycles / memory.beats - 2 * memory.cycles
        waits = np.full((2, len(self.gemm), 1), VECTOR_RESULT_CYCLES)
        waits[:, 0, 0] = begin + np.array(self.demand.before[:2])
        tail = gemm_tail_cycles(machine) + 1
        loads = np.maximum(self.loads, reads)
        loads[0] += begin
        steps = np.maximum.reduce(
            [
                np.where(self.gemm > 0, waits[0] + self.gemm + tail, 0),
                np.where(self.vector > 0, waits[1] + self.vector, 0),
                loads,
            ]
        )
        times = np.zeros(len(steps))
        for place in range(1, len(times)):
            before = self.ordered[:place, place]
            times[place] = (times[:place] + steps[:place, place - 1])[before].max()
        return math.ceil((times + steps[:, -1]).max() - ROUNDING) + self.last + end


def program_work(
    groups: Sequence[Group | MovementGroup],
    demand: Demand,
    configuration: Configuration,
    stores: int,
) -> ProgramWork:
    """Return the least work of a program that computes the phases of groups, fused in any way.

    Parameters
    ----------
    demand
        The least work of each unit for all of them.
    stores
        The least number of STOREs.
    """
    groups = [group for group in groups if 0 not in _shape(group)]  # an empty batch has no work
    stages = _stages(groups, configuration)
    works = [(n, one, one.work) for n, one in enumerate(stages) if one.work is not None]
    words = 1 + sum(work.instructions for *_, work in works) + stores
    ahead, behind = _needs(stages)
    mixed = _mixed(stages, ahead)
    cuts = [number for number, _, work in works if work.vector]
    cuts = cuts[:: -(-len(cuts) // MAX_CUTS) or 1]
    rest = tile_cycles(configuration)
    parts = [_behind(stage, work, number, behind, mixed, rest) for number, stage, work in works]
    after = np.ones((4, 1 + len(cuts), len(works)))
    for column, shares in enumerate(parts):
        for kind, pairs in enumerate(shares):
            after[kind, 1:, column] = np.max([_bits(bits, cuts) * one for bits, one in pairs], 0)
    until = np.ones((len(works), 1 + len(cuts)))
    for column, cut in enumerate(cuts):
        until[:, column] = _bits(ahead[cut], [number for number, *_ in works])
    table = np.array(
        [(w.gemm, w.vector, *w.weights, *w.constants) for *_, w in works], dtype=float
    ).reshape(-1, 6)
    gemm, vector = ((after[unit] * table[:, unit]) @ until for unit in (0, 1))
    loads, sizes = (
        (after[2] * table[:, 2 + part] + after[3] * table[:, 4 + part]) @ until for part in (0, 1)
    )
    # At a cut, scratchpads may hold some of the constants.
    memories = (Memory.WGT, Memory.PARAM, Memory.LUT)
    for memory in memories:
        held = configuration.size_bytes(memory)
        sizes[1:] -= held
        loads[1:] -= held // min(configuration.bus_bytes, configuration.row_bytes(memory))
    ordered = np.ones((1 + len(cuts), 1 + len(cuts)), dtype=bool)
    for column, cut in enumerate(cuts, 1):
        ordered[1:, column] = _bits(ahead[cut], cuts)
    bare = any(not work.vector for *_, work in works)
    last = 0 if bare else VECTOR_RESULT_CYCLES + 1
    return ProgramWork(demand, configuration, words, gemm, vector, loads, sizes, ordered, last)


def _behind(
    stage: _Stage,
    work: PhaseWork,
    number: int,
    behind: Sequence[int],
    mixed: Sequence[int],
    rest: int,
) -> list[list[tuple[int, float]]]:
    """Return the cuts behind which a share of a phase's work is, for each kind of work.

    The kinds are GEMM, VECTOR, and loads of weights and of other constants.
    """
    waits = -1 if stage.streams else 0
    for maker in stage.streams:
        waits &= behind[maker] if maker >= 0 else 0
    (stream,) = stage.streams if len(stage.streams) == 1 else (-1,)
    some = mixed[stream] if stream >= 0 else 0
    finish = (behind[number], 1.0) if work.pointwise else (waits, stage.real)
    # Without the steps on padding, a last weight tile may be a short one, which need not rest.
    real = stage.real if stage.real == 1 else max(stage.real - rest / max(work.gemm, 1), 0.0)
    return [
        [(waits, real), (some, max(stage.taps * work.tiles - 1, 0) * rest / max(work.gemm, 1))],
        [finish],
        [(waits, max(stage.real, stage.met)), (some, stage.taps)],
        [finish, (mixed[number], 1.0)],
    ]


def _bits(bits: int, places: Sequence[int]) -> np.ndarray:
    return np.array([bits >> place & 1 for place in places], dtype=float)


def _transfer_cycles(size: int, configuration: Configuration, memory: MemoryModel) -> int:
    """Return the least cycles from the first beat of a transfer to the last, both included."""
    beats = -(-size // configuration.bus_bytes)
    return max(0, (beats - 1) * memory.cycles // memory.beats + 1 - memory.cycles) if beats else 0


# Phases and their reads --------------------------------------------------------------------------


def _shape(group: Group | MovementGroup) -> tuple[int, ...]:
    if isinstance(group, MovementGroup):
        return tuple(group.nodes[0].output.type.shape)
    return group.kernel.output.shape


def _stages(groups: Iterable[Group | MovementGroup], configuration: Configuration) -> list[_Stage]:
    stages: list[_Stage] = []
    makers: dict[str, int] = {}
    for group in groups:
        if isinstance(group, MovementGroup):
            kind = group.nodes[0].attributes
            bijective = isinstance(kind, QReshape | QSwap)
            whole = bijective or isinstance(kind, QConcat | QInterleave)
            stage = _Stage(_shape(group), None)
            found = [makers[name] for name in group.inputs if name in makers]
            stage.edges = [_Edge(maker, None, whole) for maker in found]
            makers[group.output] = len(stages)
            stages.append(stage)
        else:
            _add_phases(group.kernel, stages, makers, configuration)
    return stages


def _add_phases(
    kernel: Kernel, stages: list[_Stage], makers: dict[str, int], configuration: Configuration
) -> None:
    inside: dict[str, int] = {}
    for step, work in zip(phases_of(kernel), work_of_phases(kernel, configuration), strict=True):
        out = step.finish.output
        stage = _Stage(out.shape if out.view is None else (), work)
        streams = step.streams if step.product else step.vector_reads
        for read in (*step.activations, *((step.weights,) if step.weights else ())):
            maker = _maker(read, kernel, inside, makers)
            if read in streams:
                stage.streams.append(maker)
                stage.real = min(stage.real, _real_share(read, step, kernel, stages, maker))
                if step.product and len(streams) == 1:
                    stage.taps, stage.met = _taps(read, step, kernel, stages, maker)
            if maker >= 0 and (edge := _edge(read, step, kernel, maker, stages[maker])):
                stage.edges.append(edge)
                if edge.whole and edge.box and edge.box[-1].axis < 0 and _by_pixels(edge.box):
                    stage.mixes.append(maker)
        inside[step.name] = len(stages)
        if step.name == kernel.output.name:
            makers[value_of(kernel.output)] = len(stages)
        elif step.name in kernel.kept:
            makers[value_of(kernel.tensors[step.name])] = len(stages)
        stages.append(stage)


def _real_share(
    read: Read, step: Phase, kernel: Kernel, stages: Sequence[_Stage], maker: int
) -> float:
    """Return a lower bound of the share of steps that read an element, and not only padding."""
    tensor = kernel.tensors.get(read.tensor)
    if tensor is not None and tensor.patches is not None:
        return 0.0  # gathered windows have rows of padding
    if step.bordered:
        return 0.0  # so may have the product's further row
    shape = tensor.shape if tensor is not None else stages[maker].shape
    extents = step.extents
    share = 1.0
    for affine, extent in zip(read.index, shape, strict=True):
        if _pairs(affine, extents) > MAX_PLACES:
            return 0.0
        places = np.full(1, affine.constant)
        for axis, factor in affine.terms:
            places = (places[:, None] + factor * np.arange(extents.get(axis, 1))).ravel()
        inside = float(((places >= 0) & (places < extent)).mean())
        if step.window is not None:  # padding is streamed, too
            inside = min(inside, extent / (max(places.max() + 1, extent) - min(places.min(), 0)))
        share *= inside
    further = step.excess is not None and step.excess.terms
    return share if share == 1 or not further else 0.0  # further tiles have other taps


def _pairs(affine: Affine, extents: Mapping[str, int]) -> int:
    return math.prod(extents.get(axis, 1) for axis, _ in affine.terms)


def _taps(
    read: Read, step: Phase, kernel: Kernel, stages: Sequence[_Stage], maker: int
) -> tuple[float, float]:
    """Return the least share of the window's taps that meet one pixel, and that which meets any."""
    tensor = kernel.tensors.get(read.tensor)
    if tensor is not None and (tensor.patches is not None or tensor.view is not None):
        return 0.0, 0.0
    shape = tensor.shape if tensor is not None else stages[maker].shape
    own = {axis.name for axis in step.finish.axes}
    least = some = 1.0
    for affine, extent in list(zip(read.index, shape, strict=True))[:-1]:
        if _pairs(affine, step.extents) > MAX_PLACES:
            return 0.0, 0.0
        starts = taps = np.zeros(1, dtype=np.int64)
        for axis, factor in affine.terms:
            more = factor * np.arange(step.extents.get(axis, 1))
            if axis in own:
                starts = (starts[:, None] + more).ravel()
            else:
                taps = (taps[:, None] + more).ravel()
        places = starts[:, None] + taps + affine.constant
        met = np.zeros((extent, len(taps)), dtype=bool)
        inside = (places >= 0) & (places < extent)
        met[places[inside], np.broadcast_to(np.arange(len(taps)), places.shape)[inside]] = True
        least *= float(met.mean(axis=1).min())
        some *= float(met.any(axis=0).mean())
    return least, some


def _maker(read: Read, kernel: Kernel, inside: Mapping[str, int], makers: Mapping[str, int]) -> int:
    if read.tensor in inside:
        return inside[read.tensor]
    return (
        -1
        if read.tensor in kernel.constants
        else makers.get(value_of(kernel.tensors[read.tensor]), -1)
    )


def _edge(read: Read, step: Phase, kernel: Kernel, maker: int, made: _Stage) -> _Edge | None:
    """Return what a phase needs of a result; None if nothing is certain."""
    tensor = kernel.tensors.get(read.tensor)
    unknown = _Edge(maker, None, whole=False)
    if not read.index:
        return None
    index = list(read.index)
    if tensor is not None and tensor.patches is not None:
        return unknown
    if tensor is not None and tensor.view is not None:
        if tensor.view.channels or len(made.shape) != 4:
            return unknown
        moved = zip(index, tensor.view.moves, strict=True)
        along: list[list[tuple[Affine, int]]] = [[], [], [], []]
        for affine, (axis, pace) in moved:
            along[axis].append((affine, pace))
        index = [_sum(parts) for parts in along]
    elif tensor is not None and made.shape and tensor.shape != made.shape:
        return unknown
    shape = made.shape or (tensor.shape if tensor is not None else ())
    if len(shape) != len(index):
        return unknown
    extents = {**step.reductions, **{axis.name: axis.extent for axis in step.finish.reductions}}
    own = {axis.name: number for number, axis in enumerate(step.finish.axes)}
    spans = []
    for affine, extent in zip(index, shape, strict=True):
        span = _span(affine, extent, own, step, extents)
        if span is None:
            return None
        spans.append(span)
    whole = all(_reaches_all(span, extent) for span, extent in zip(spans, shape, strict=True))
    return _Edge(maker, tuple(spans) if made.shape else None, whole)


def _sum(parts: Iterable[tuple[Affine, int]]) -> Affine:
    """Return a sum of indices times factors."""
    terms: dict[str, int] = {}
    constant = 0
    for affine, factor in parts:
        constant += factor * affine.constant
        for axis, step in affine.terms:
            terms[axis] = terms.get(axis, 0) + factor * step
    return Affine.of(constant, **terms)


def _span(
    affine: Affine, extent: int, own: Mapping[str, int], step: Phase, reductions: Mapping[str, int]
) -> _Span | None:
    """Return the indices that a read needs for each element; None if nothing is certain."""
    driving = [(own[axis], factor) for axis, factor in affine.terms if axis in own]
    taps = np.zeros(1, dtype=np.int64)
    for axis, factor in affine.terms:
        if axis in own:
            continue
        if axis not in reductions:
            return None
        taps = (taps[:, None] + factor * np.arange(reductions[axis])).ravel()
    taps = np.unique(taps) + affine.constant
    if len(driving) > 1 or any(factor <= 0 for _, factor in driving):
        return None
    number, factor = driving[0] if driving else (-1, 0)
    starts = factor * np.arange(step.finish.axes[number].extent if driving else 1)
    if len(taps) > 1 and np.diff(taps).max() > 1:  # dilated: one tap is certain
        taps = taps[len(taps) // 2 :][:1]
    low, high = np.maximum(starts + taps[0], 0), np.minimum(starts + taps[-1], extent - 1)
    if (low > high).any():
        return None
    return _Span(number, low, high, bool((high[:-1] + 1 >= low[1:]).all()))


def _reaches_all(span: _Span, extent: int) -> bool:
    return span.joined and span.low[0] == 0 and span.high[-1] == extent - 1


def _by_pixels(box: _Box) -> bool:
    """Whether the pixels that an element needs do not depend on its channel."""
    return all(span.axis < PIXEL_AXES for span in box[:-1])


# Needs of single elements ------------------------------------------------------------------------


def _needs(stages: Sequence[_Stage]) -> tuple[list[int], list[int]]:
    """Return two sets of phases for each phase, as bits.

    Returns
    -------
    ahead
        Phases that its whole result needs whole, itself included.
    behind
        Phases that each of its elements needs whole.
    """
    ahead: list[int] = []
    behind: list[int] = []
    for number, stage in enumerate(stages):
        wholes = (ahead[edge.maker] for edge in stage.edges if edge.whole)
        found = 1 << number
        for bits in wholes:
            found |= bits
        ahead.append(found)
        shape = stage.shape
        box = tuple(_Span(d, np.arange(e), np.arange(e)) for d, e in enumerate(shape)) or None
        behind.append(_needed(number, box, stages, ahead))
    return ahead, behind


def _needed(number: int, start: _Box | None, stages: Sequence[_Stage], ahead: Sequence[int]) -> int:
    """Return the phases that each element of a phase needs whole."""
    found, parts, followed = 0, {number: start}, 0
    while parts and followed < MAX_PARTS:
        latest = max(parts)
        box = parts.pop(latest)
        followed += 1
        movement = stages[latest].work is None
        if movement and len(stages[latest].edges) != 1:
            continue  # an element comes from one of several
        for edge in stages[latest].edges:
            if found >> edge.maker & 1:
                continue
            needs = _followed(box, edge)
            if needs is not None and _is_whole(needs, stages[edge.maker].shape):
                found |= ahead[edge.maker]
            elif edge.maker not in parts or parts[edge.maker] is None:
                parts[edge.maker] = needs
    return found & ~(1 << number)


def _followed(box: _Box | None, edge: _Edge) -> _Box | None:
    """Return what an element needs of a result, by what it needs of the reader's."""
    if edge.box is None:
        return None
    spans = []
    for axis, low, high, joined in edge.box:
        if axis < 0:
            spans.append(_Span(-1, low, high))
        elif box is None:
            spans.append(_Span(-1, low.max(keepdims=True), high.min(keepdims=True)))
            if spans[-1].low[0] > spans[-1].high[0]:
                return None
        else:
            first, last = box[axis].low, box[axis].high
            spans.append(_Span(box[axis].axis, low[first], high[last if joined else first]))
    return tuple(spans)


def _is_whole(box: _Box, shape: Sequence[int]) -> bool:
    pairs = zip(box, shape, strict=True)
    return all(span.low.max() <= 0 and span.high.min() >= extent - 1 for span, extent in pairs)


def _mixed(stages: Sequence[_Stage], ahead: Sequence[int]) -> list[int]:
    """Return, for each phase, those of which each element affects all channels of some pixel."""
    mixed: list[int] = []
    for stage in stages:
        found = 0
        for edge in stage.edges:
            if edge.whole and edge.box and _by_pixels(edge.box):
                found |= mixed[edge.maker]
        for maker in stage.mixes:
            found |= ahead[maker]
        mixed.append(found)
    return mixed
