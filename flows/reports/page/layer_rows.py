"""Figures of each layer: cycles, bytes, its bound, and a sentence that explains its time."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....compiler.graph import Node
from ....compiler.module import Layer, Module
from ....isa.encoding import word_bytes
from ....isa.instructions import Gemm, Load, Store, Unit
from ....runtime.names import layer_nodes
from ....runtime.profile import layer_cycles
from ....sim.timing.beats import FETCH
from ....sim.timing.links import moved_bytes
from ....sim.timing.stalls import Wait
from ...execution.timed import TimedSegment
from .causes import Cause, CausedStep, bound, by_cause

PADDING = "padding"
WINDOWS = "windows"

_PURPOSE = re.compile(r"(?:^|: )(load|store) (.*)$")


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """A layer's figures; cycles are those of the exact model.

    Parameters
    ----------
    segment : TimedSegment
        The segment that contains the layer.
    layer : Layer
        The layer.
    nodes : tuple of Node
        The nodes of the model that it computes.
    added_cycles : int
        Cycles by which it delays the completion of all layers so far.
    steps : sequence of CausedStep
        Its part of the critical path.
    gemm_cycles, load_cycles : int
        Cycles in which GEMM issues its rows, and in which LOAD moves its data, on the critical
        path or not.
    gemm_multiplications : int
        Multiplications that the array could do in its rows: rows x lanes_in x lanes_out.
    read_bytes, written_bytes : int
        Bytes that its LOADs read and its STOREs write.
    purposes : dict
        Bytes read, by kind: weights, parameters, activations, windows of an image.
    path_purposes : dict
        Beats on the read channel while LOAD is on the critical path, by the same kinds, most
        first. Padding, which does not use the channel, is in cycles.
    """

    segment: TimedSegment
    layer: Layer
    nodes: tuple[Node, ...]
    added_cycles: int
    steps: Sequence[CausedStep]
    gemm_cycles: int
    load_cycles: int
    gemm_multiplications: int
    read_bytes: int
    written_bytes: int
    purposes: dict[str, int]
    path_purposes: dict[str, int]

    @property
    def name(self) -> str:
        return self.segment.names[self.layer.output]

    @property
    def instructions(self) -> int:
        return len(self.layer.places)

    @property
    def path_cycles(self) -> int:
        """Its cycles on the critical path."""
        return sum(step.cycles for step in self.steps)

    @property
    def causes(self) -> dict[Cause, int]:
        """Its cycles on the critical path by cause."""
        return by_cause(self.steps)

    @property
    def bound(self) -> Cause | None:
        """Cause of most of its cycles on the critical path; None if it has none there."""
        return bound(self.causes) if self.path_cycles else None

    def path_of(self, unit: Unit, *waits: Wait) -> int:
        """Count the cycles of its critical path in which a unit is in one of these states."""
        return sum(s.cycles for s in self.steps if s.unit is unit and s.step.wait in waits)

    @property
    def busier_bytes(self) -> int:
        """Bytes on the busier channel of the bus, instruction words too."""
        words = self.instructions * word_bytes(self.segment.timing.configuration)
        return max(self.read_bytes + words, self.written_bytes)


def layer_facts(
    module: Module, segment: TimedSegment, steps: Sequence[CausedStep]
) -> list[LayerFacts]:
    """Return the figures of each layer of a segment.

    Parameters
    ----------
    module : Module
        To which the segment belongs.
    steps : sequence of CausedStep
        The segment's critical path.
    """
    added = layer_cycles(segment.segment, segment.timing.spans)
    configuration = segment.timing.configuration
    lanes = configuration.lanes_in * configuration.lanes_out
    work = _work_cycles(segment)
    units = segment.timing.links.unit
    nodes = layer_nodes(module)
    facts = []
    for number, (layer, cycles) in enumerate(zip(segment.segment.layers, added, strict=True)):
        own = layer.places
        program = [segment.program[index] for index in own]
        worked = {u: int(work[own][units[own] == u].sum()) for u in (Unit.GEMM, Unit.LOAD)}
        mine = [step for step in steps if step.layer == number]
        read: Counter[str] = Counter()
        for index in own:
            if isinstance(segment.program[index], Load):
                read[purpose(segment, index)] += moved_bytes(segment.program[index])
        facts.append(
            LayerFacts(
                segment=segment,
                layer=layer,
                nodes=nodes[layer.output],
                added_cycles=cycles or 0,
                steps=mine,
                gemm_cycles=worked[Unit.GEMM],
                load_cycles=worked[Unit.LOAD],
                gemm_multiplications=lanes * sum(i.steps() for i in program if isinstance(i, Gemm)),
                read_bytes=read.total(),
                written_bytes=sum(moved_bytes(i) for i in program if isinstance(i, Store)),
                purposes={name: size for name, size in read.most_common() if size},
                path_purposes=_path_purposes(segment, number, mine),
            )
        )
    return facts


def purpose(segment: TimedSegment, index: int) -> str:
    """Classify a LOAD: weights, parameters, activations, windows of an image or padding."""
    instruction = segment.program[index]
    if isinstance(instruction, Load) and instruction.fill:
        return PADDING
    found = _PURPOSE.search(segment.note(index))
    text = found[2] if found else "data"
    if text.startswith("`windows of "):
        return WINDOWS
    return "activations" if text.startswith("`") else text.partition(" `")[0]


def _path_purposes(
    segment: TimedSegment, layer: int, steps: Sequence[CausedStep]
) -> dict[str, int]:
    read, _ = segment.beats
    found: Counter[str] = Counter()
    for step in (each for each in steps if each.unit is Unit.LOAD):
        index = step.step.instruction
        if step.step.wait is Wait.WORK and purpose(segment, index) == PADDING:
            found[PADDING] += step.cycles
            continue
        first, last = read.cycle.searchsorted([step.step.begin, step.step.end])
        owners, beats = np.unique(read.instruction[first:last], return_counts=True)
        for owner, count in zip(owners.tolist(), beats.tolist(), strict=True):
            if owner != FETCH and segment.layer[owner] == layer:
                found[purpose(segment, owner)] += count
    return dict(found.most_common())


def _work_cycles(segment: TimedSegment) -> np.ndarray:
    """Return the cycles of each instruction's own work, int64[instructions]."""
    found = segment.activity
    works = found.wait == Wait.WORK
    cycles = (found.end - found.begin)[works]
    total = np.bincount(found.instruction[works], cycles, minlength=len(segment.program))
    return total.astype(np.int64)


def layer_row(module: Module, fact: LayerFacts, sentence: str) -> dict[str, Any]:
    """Return a layer as JSON values."""
    configuration = module.configuration
    peak = configuration.lanes_in * configuration.lanes_out
    macs = fact.layer.macs
    # GEMM's work may precede the cycles that a layer adds, so the larger number counts.
    busiest = max(fact.added_cycles, fact.gemm_cycles)
    return {
        "name": fact.name,
        "full_name": fact.layer.name,
        "op": fact.layer.op,
        "schedule": fact.layer.schedule,
        "macs": macs,
        "instructions": fact.instructions,
        "read_bytes": fact.read_bytes,
        "written_bytes": fact.written_bytes,
        "read": fact.purposes,
        "added_cycles": fact.added_cycles,
        "path_cycles": fact.path_cycles,
        "causes": {str(cause): cycles for cause, cycles in fact.causes.items()},
        "bound": str(fact.bound) if fact.bound else None,
        "of_peak": macs / (fact.added_cycles * peak) if macs and fact.added_cycles else None,
        "macs_per_cycle": macs / busiest if macs and busiest else None,
        "macs_per_byte": macs / fact.busier_bytes if macs and fact.busier_bytes else None,
        "sentence": sentence,
    }
