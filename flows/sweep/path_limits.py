"""Limits of a run: what takes the cycles of its exact critical path, for each layer and for all.

The causes are those of the report. The beats on main memory, which tell whether a wait is for data
or for an answer, are spread evenly over each transfer here: the exact ones take as long to find as
the program takes to compile.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ...compiler.module import Module
from ...isa.encoding import word_bytes
from ...isa.instructions import Load, Store, Unit
from ...isa.memory_model import MemoryModel
from ...runtime.names import layer_nodes, node_names
from ...sim.timing import Timing
from ..execution.timed import NO_LAYER, TimedSegment, time_segments
from ..reports.page.causes import (
    CAUSE_TEXT,
    BeatCounts,
    Cause,
    CausedStep,
    count_before,
    path_steps,
)

JOINT = " + "
HIDDEN = "hidden"

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        Unit.GEMM.name: "GEMM works",
        Unit.VECTOR.name: "VECTOR works",
        Unit.LOAD.name: "LOAD moves data, or the read channel is busy with data",
        Unit.STORE.name: "STORE moves data, or waits for its busy channel",
        **{str(cause): CAUSE_TEXT[cause] for cause in (Cause.LATENCY, Cause.DISPATCH)},
    }
)
"""Meaning of each limit: the unit or the wait that takes a cycle of the critical path."""


@dataclass(frozen=True, slots=True)
class LimitedLayer:
    """A layer on the accelerator.

    Parameters
    ----------
    name : str
        Names of the nodes that it computes, see `node_names`, joined with `JOINT`.
    cycles : int
        Cycles by which it delays the end of the run.
    limit : str
        What takes most of its cycles on the critical path; `hidden` if it has none there.
    """

    name: str
    cycles: int
    limit: str


@dataclass(frozen=True, slots=True)
class PathLimits:
    """The limits of a run.

    Parameters
    ----------
    cycles : int
        Cycles of the run.
    limits : mapping
        Cycles of the critical path by limit; their sum is `cycles`.
    layers : tuple of LimitedLayer
        In order of execution; the sum of their cycles is `cycles`.
    """

    cycles: int
    limits: Mapping[str, int]
    layers: tuple[LimitedLayer, ...]


def path_limits(module: Module, memory: MemoryModel) -> PathLimits:
    """Return the limits of a compiled network with a main memory."""
    names, nodes = node_names(module.graph), layer_nodes(module)
    joined = {
        output: JOINT.join(names[node.outputs[0].name] for node in mine)
        for output, mine in nodes.items()
    }
    return limits_of(time_segments(module, memory), joined)


def limits_of(segments: Sequence[TimedSegment], names: Mapping[str, str]) -> PathLimits:
    """Return the limits of timed segments; `names` has each layer's name, by its output."""
    total = Counter[str]()
    layers: list[LimitedLayer] = []
    for segment in segments:
        own = [Counter[str]() for _ in segment.segment.layers]
        for step in path_steps(segment, _spread_beats(segment.timing)):
            limit = _limit_of(step)
            total[limit] += step.cycles
            if step.layer != NO_LAYER:
                own[step.layer][limit] += step.cycles
        for layer, cycles, found in zip(
            segment.segment.layers, segment.layer_cycles, own, strict=True
        ):
            largest = max(found, key=lambda limit: (found[limit], limit), default=HIDDEN)
            layers.append(LimitedLayer(names[layer.output], cycles, largest))
    limits = {limit: total[limit] for limit in LIMITS if total[limit]}
    return PathLimits(sum(limits.values()), limits, tuple(layers))


def _limit_of(step: CausedStep) -> str:
    if step.cause is Cause.COMPUTE and step.unit is not None:
        return step.unit.name
    if step.cause is Cause.MEMORY:  # while a unit waits for its instruction, LOAD has the channel
        return Unit.STORE.name if step.unit is Unit.STORE else Unit.LOAD.name
    return str(step.cause)


def _spread_beats(timing: Timing) -> BeatCounts:
    """Return the beats of main memory, each transfer's at equal distances."""
    words = timing.column("word")
    words = words[words >= 0]
    beats = word_bytes(timing.configuration) // timing.configuration.bus_bytes
    before = np.arange(beats) * timing.memory.beat_cycles
    fetched = (words[:, None] - before.astype(np.int64)).ravel()
    loads, stores = (_count_spread(timing, unit) for unit in (Unit.LOAD, Unit.STORE))
    return BeatCounts(count_before(np.sort(fetched)), loads, stores)


def _count_spread(timing: Timing, unit: Unit) -> Callable[[int], int]:
    """Return a function that counts the beats of a unit before a cycle."""
    mine = timing.links.of_unit(unit)
    moving = mine[timing.links.moved_bytes[mine] > 0]
    most = np.array([_run_beats(timing, index) for index in moving.tolist()], dtype=np.int64)
    first, last = timing.column("first")[moving], timing.column("last")[moving]
    room = np.rint((last - first + 1) / timing.memory.beat_cycles).astype(np.int64)
    beats = np.maximum(1, np.minimum(most, room))
    begins, counts = first.tolist(), beats.tolist()
    steps = ((last - first) / np.maximum(1, beats - 1)).tolist()
    earlier = (np.cumsum(beats) - beats).tolist()

    def before(cycle: int) -> int:
        index = bisect_left(begins, cycle) - 1
        if index < 0:
            return 0
        step = steps[index]
        begun = math.ceil((cycle - begins[index]) / step) if step else counts[index]
        return earlier[index] + min(counts[index], begun)

    return before


def _run_beats(timing: Timing, index: int) -> int:
    """Return the beats of a transfer whose runs are all aligned."""
    instruction = timing.program[index]
    assert isinstance(instruction, Load | Store)
    return -(-instruction.length // timing.configuration.bus_bytes) * instruction.steps()
