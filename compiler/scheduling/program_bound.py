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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...isa.configuration import Configuration, Memory
from ...isa.durations import gemm_tail_cycles, tile_cycles
from ...isa.encoding import word_bytes
from ...isa.expressions import Affine, Read
from ...isa.memory_model import MemoryModel
from ...isa.pipeline import VECTOR_RESULT_CYCLES
from ..accelerator.lower_bound import UNITS, Demand, PhaseWork, chained, work_of_phases
from ..accelerator.phases import Phase, phases_of
from ..accelerator.residents import value_of
from ..graph import QConcat, QInterleave, QReshape, QSwap
from ..tensor import Kernel
from .fusion import Group, MovementGroup

MAX_CUTS = 128
"""Cuts that are compared; more would take long."""

MAX_PARTS = 64
"""Producers of a phase of which only a part is needed that are followed; more would take long."""


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
    """

    shape: tuple[int, ...]
    work: PhaseWork | None
    edges: list[_Edge] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    real: float = 1.0


def program_bound(
    groups: Sequence[Group | MovementGroup],
    demand: Demand,
    configuration: Configuration,
    memory: MemoryModel,
) -> Bound:
    """Return the least cycles of a program that computes the phases of groups, fused in any way.

    Parameters
    ----------
    demand
        The least work of each unit for all of them.
    """
    busiest = busiest_unit(demand, configuration, memory)
    stages = _stages(groups, configuration)
    cycles = _longest_path(stages, demand, configuration, memory)
    port = _port_cycles(groups, stages, demand, configuration, memory)
    return Bound(max(cycles, port, busiest.cycles), busiest.unit)


def _port_cycles(
    groups: Sequence[Group | MovementGroup],
    stages: Sequence[_Stage],
    demand: Demand,
    configuration: Configuration,
    memory: MemoryModel,
) -> int:
    """Return the least cycles in which the port reads instructions and operands."""
    words = 1 + sum(stage.work.instructions for stage in stages if stage.work)
    words += sum(isinstance(group, Group) for group in groups)  # each has a STORE
    size = demand.traffic[0] + (words - 1) * word_bytes(configuration)
    begin, _ = _ends(demand, configuration, memory)
    return begin + _transfer_cycles(size, configuration, memory)


def busiest_unit(demand: Demand, configuration: Configuration, memory: MemoryModel) -> Bound:
    """Return the least cycles of a program in which units never wait for each other.

    Before LOAD moves its first byte, FETCH has waited for the first instruction and LOAD for main
    memory. The run ends with the response to the last beat of STORE. In between, LOAD and STORE
    need at least as many cycles as main memory takes for their beats.
    """
    begin, end = _ends(demand, configuration, memory)
    gemm, vector, load, store = demand.busy
    read, written = (_transfer_cycles(size, configuration, memory) for size in demand.traffic)
    busy = gemm, vector, max(load, read), max(store, written)
    parts = zip(demand.before, busy, demand.after, strict=True)
    totals = [before + work + after if work else 0 for before, work, after in parts]
    longest = max(totals)
    return Bound(begin + longest + end, UNITS[totals.index(longest)] if longest else "")


def _ends(demand: Demand, configuration: Configuration, memory: MemoryModel) -> tuple[int, int]:
    """Return cycles of main memory before the first work, and after the last."""
    if not any(demand.busy):  # FETCH reads at least HALT
        return memory.latency_cycles, 0
    _, _, load, store = demand.busy
    word = _transfer_cycles(word_bytes(configuration), configuration, memory)
    begin = memory.latency_cycles * (2 if load else 1) + word
    return begin, memory.latency_cycles if store else 0


def _transfer_cycles(size: int, configuration: Configuration, memory: MemoryModel) -> int:
    """Return the least cycles from the first beat of a transfer to the last, both included."""
    beats = -(-size // configuration.bus_bytes)
    return max(0, (beats - 1) * memory.cycles // memory.beats + 1 - memory.cycles) if beats else 0


# Phases and their reads ----------------------------------------------------------------------------


def _stages(
    groups: Iterable[Group | MovementGroup], configuration: Configuration
) -> list[_Stage]:
    stages: list[_Stage] = []
    makers: dict[str, int] = {}
    for group in groups:
        if isinstance(group, MovementGroup):
            kind = group.nodes[0].attributes
            bijective = isinstance(kind, QReshape | QSwap)
            whole = bijective or isinstance(kind, QConcat | QInterleave)
            stage = _Stage((), None)
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
            if maker >= 0 and (edge := _edge(read, step, kernel, maker, stages[maker])):
                stage.edges.append(edge)
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
    shape = tensor.shape if tensor is not None else stages[maker].shape
    extents = step.extents
    share = 1.0
    for affine, extent in zip(read.index, shape, strict=True):
        places = np.full(1, affine.constant)
        for axis, factor in affine.terms:
            places = (places[:, None] + factor * np.arange(extents.get(axis, 1))).ravel()
        inside = float(((places >= 0) & (places < extent)).mean())
        if step.window is not None:  # padding is streamed, too
            inside = min(inside, extent / (max(places.max() + 1, extent) - min(places.min(), 0)))
        share *= inside
    return share


def _maker(
    read: Read, kernel: Kernel, inside: Mapping[str, int], makers: Mapping[str, int]
) -> int:
    if read.tensor in inside:
        return inside[read.tensor]
    return -1 if read.tensor in kernel.constants else makers.get(
        value_of(kernel.tensors[read.tensor]), -1
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


# Needs of single elements --------------------------------------------------------------------------


def _behind(stages: Sequence[_Stage]) -> tuple[list[int], list[int]]:
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


def _needed(
    number: int, start: _Box | None, stages: Sequence[_Stage], ahead: Sequence[int]
) -> int:
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


# The longest path ----------------------------------------------------------------------------------


def _longest_path(
    stages: Sequence[_Stage], demand: Demand, configuration: Configuration, memory: MemoryModel
) -> int:
    """Return the least cycles between start and end, by all pairs of cuts."""
    ahead, behind = _behind(stages)
    cuts = [n for n, stage in enumerate(stages) if stage.work is not None and stage.work.vector]
    used = 0
    for bits in behind:
        used |= bits
    cuts = [n for n in cuts if used >> n & 1]
    cuts = cuts[:: -(-len(cuts) // MAX_CUTS) or 1]
    works = [(n, stage, stage.work) for n, stage in enumerate(stages) if stage.work is not None]
    if not cuts or not works:
        return 0
    bit = [1 << cut for cut in cuts]
    from_cut = np.ones((2, 1 + len(cuts), len(works)))  # of GEMM, of VECTOR
    share = np.ones((2, len(works)))
    to_cut = np.ones((len(works), len(cuts) + 1))
    for column, (number, stage, work) in enumerate(works):
        first = -1
        for maker in stage.streams:
            first &= behind[maker] if maker >= 0 else 0
        gemm = first if stage.streams else 0
        vector = behind[number] if work.pointwise else gemm
        share[:, column] = stage.real, 1.0 if work.pointwise else stage.real
        from_cut[0, 1:, column] = [bool(gemm & one) for one in bit]
        from_cut[1, 1:, column] = [bool(vector & one) for one in bit]
        to_cut[column, :-1] = [bool(ahead[cut] >> number & 1) for cut in cuts]
    gemm, vector = (
        np.array([getattr(work, name) for _, _, work in works]) for name in ("gemm", "vector")
    )
    loads, sizes = (
        sum(
            (from_cut[unit] * [getattr(work, name)[part] for _, _, work in works]) @ to_cut
            for unit, name in enumerate(("weights", "constants"))
        )
        for part in (0, 1)
    )
    # A last weight tile may take fewer cycles than others, with or without padding.
    gemm_behind = np.where(share[0] < 1, share[0] * gemm - tile_cycles(configuration), gemm)
    gemms, vectors = (
        np.vstack([whole @ to_cut, (where[1:] * np.maximum(part, 0)) @ to_cut])
        for where, whole, part in (
            (from_cut[0], gemm, gemm_behind), (from_cut[1], vector, share[1] * vector)
        )
    )
    # At a cut, scratchpads may hold some of the constants.
    memories = (Memory.WGT, Memory.PARAM, Memory.LUT)
    held = sum(map(configuration.size_bytes, memories))
    kept = sum(
        configuration.size_bytes(memory)
        // min(configuration.bus_bytes, configuration.row_bytes(memory))
        for memory in memories
    )
    begin, end = _ends(demand, configuration, memory)
    loads[1:] -= kept
    sizes[1:] -= held
    reads = sizes / configuration.bus_bytes * memory.cycles / memory.beats - 2 * memory.cycles
    tail = gemm_tail_cycles(configuration) + 1
    starts = np.full(1 + len(cuts), VECTOR_RESULT_CYCLES)
    starts[0] = begin
    first = np.zeros((2, 1 + len(cuts), 1))
    first[:, 0, 0] = demand.before[:2]
    through = np.maximum.reduce(
        [
            np.where(gemms > 0, first[0] + gemms + tail, 0),
            np.where(vectors > 0, first[1] + vectors, 0),
            loads - VECTOR_RESULT_CYCLES,
            reads - VECTOR_RESULT_CYCLES,
        ]
    )
    bare = any(work.vector == 0 for _, _, work in works)
    through[:, -1] += end + (0 if bare else VECTOR_RESULT_CYCLES + 1)
    weight = starts[:, None] + through
    times = np.full(1 + len(cuts), -np.inf)
    times[0] = 0
    for place in range(len(cuts)):
        before = [0, *(1 + n for n in range(place) if behind[cuts[place]] & bit[n])]
        times[1 + place] = (times[before] + weight[before, place]).max()
    return int(np.floor((times + weight[:, -1]).max()))
