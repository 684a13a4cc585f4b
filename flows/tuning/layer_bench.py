"""A layer of a network on a bench: it answers what a schedule does, one schedule after the other.

The layer runs apart from its neighbours, with its data in main memory as in the network. So its
cycles are those that `compile --schedules` prints for it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from ...argument_types import checked, checked_class
from ...compiler.accelerator.kernels import build_kernel
from ...compiler.accelerator.search import Candidate, legal_candidates
from ...compiler.accelerator.target import Accelerator
from ...compiler.graph import Rearranging
from ...compiler.graph.evaluate import evaluate_node
from ...compiler.graph.short_names import listed_names
from ...compiler.main_memory.segment_layout import lay_out_segment
from ...compiler.module import Layer, Module, Segment
from ...compiler.options import DEFAULT_OPTIONS
from ...compiler.pipeline import CompileRequest
from ...compiler.pipeline.link import link, prove
from ...compiler.pipeline.lower import lower
from ...compiler.pipeline.request import Grouped, Scheduled
from ...compiler.pipeline.schedule import schedule
from ...compiler.scheduling.bound_report import LayerGap
from ...compiler.scheduling.candidate_timer import CandidateTimer
from ...compiler.scheduling.fusion import Group, fuse
from ...compiler.scheduling.given_schedules import (
    GivenSchedule,
    joined,
    short_stages,
    whole_stages,
    with_short_stages,
)
from ...compiler.scheduling.kernel_programs import KernelPrograms
from ...compiler.te.schedule import Schedule
from ...compiler.te.target import ScheduleError
from ...errors import CompileError, UsageError
from ...isa.memory_model import MemoryModel
from ...runtime.device import Device, Result
from ...runtime.devices import open_device
from ...runtime.names import find_layers, layer_names, layer_nodes, similar_layers
from ...sim.timing import ExactMeasure, time_program
from ..execution.timed import TimedSegment, require_segments
from ..sweep.path_limits import limits_of


class Verdict(StrEnum):
    """Result of an attempt to use a schedule.

    `illegal`: a step is refused. `no program`: every step is legal, but a stage is
    not tensorised, a scratchpad is too small, or an instruction has too few loops. `wrong result`:
    the program computes something else than the layer; that is a fault of Tilewright.
    """

    OK = "ok"
    ILLEGAL = "illegal"
    NO_PROGRAM = "no program"
    WRONG = "wrong result"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The answer for one schedule.

    Parameters
    ----------
    message
        Why it was refused; empty if it was not.
    step, line
        The step that is refused, and its line from 1; None if the fault is not a step's.
    loops
        The loops of every stage where that step stands, outermost first.
    cycles
        Exact cycles of the layer alone; None unless the verdict is `ok`.
    default_cycles, bound
        Cycles with the compiler's schedule, and a lower bound for all schedules.
    bound_by
        The unit that determines the bound.
    limits
        Cycles of the exact critical path by what takes them: their sum is `cycles`.
    instructions
        Length of the program.
    """

    verdict: Verdict
    default_cycles: int
    bound: int
    bound_by: str
    message: str = ""
    step: str | None = None
    line: int | None = None
    loops: Mapping[str, tuple[str, ...]] | None = None
    cycles: int | None = None
    limits: Mapping[str, int] | None = None
    instructions: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON values; what does not apply is left out."""
        values = {name: value for name, value in asdict(self).items() if value not in (None, "")}
        values["verdict"] = str(self.verdict)
        if self.cycles is not None:
            values["gap"] = self.cycles / self.bound - 1
        return values


@checked_class("LayerBench", UsageError)
class LayerBench:
    """A layer, ready to be judged under any schedule.

    Parameters
    ----------
    module
        The network as `compile_graph` gives it; an artifact lacks the report that is needed.
    layer
        The layer's full or short name, or the name of one of its nodes.
    memory
        Main memory that is timed; None for that of the module.

    Raises
    ------
    UsageError
        If no layer on the accelerator has the name, or several have, or the layer moves data
        without a computation.
    """

    def __init__(self, module: Module, layer: str, memory: MemoryModel | None = None) -> None:
        number, found = _find(module, layer)
        self.name, self.default = found.name, found.schedule
        """The layer's name, and the steps of its schedule in the module."""
        self.names = found.name, found.output, layer_names(module)[found.output]
        self.configuration = module.configuration
        self._graph = module.graph
        self._request = CompileRequest(
            graph=module.graph,
            configuration=module.configuration,
            memory=(memory or module.memory).with_stalls(0.0),
            options=replace(DEFAULT_OPTIONS, candidates=1),
        )
        self._grouped = self._group(module, number, found)
        self._measure = ExactMeasure(self._request.memory)
        layout = self._grouped.layout
        programs = KernelPrograms(*layout.placements.apart(), module.configuration)
        self._timer = CandidateTimer(programs, module.configuration, self._measure)

    @cached_property
    def gap(self) -> LayerGap:
        """Cycles of the layer alone with its schedule in the module, and their lower bound."""
        return self._scheduled(self.default).layers[0].gap

    def _group(self, module: Module, number: int, layer: Layer) -> Grouped:
        """Return the layer as a segment of its own, with its activations where they were."""
        graph, segment = self._graph, module.segments[number]
        nodes = layer_nodes(module)
        made = {node.output.name for one in segment.layers for node in nodes[one.output]}
        ordered = [node for node in graph.nodes if node.outputs[0].name in made]
        machine = self._request.configuration.replace(bus_bits=module.report["ports"][number])
        layout = lay_out_segment(graph, ordered, machine, self._request.options)
        mine = nodes[layer.output]
        gather = self._request.options.gather
        parts = [build_kernel(node, graph, machine, layout.images, gather=gather) for node in mine]
        kernel = fuse(parts) if len(parts) > 1 else parts[0]
        group = Group(mine, tuple(parts), kernel, GivenSchedule(layer.name, layer.schedule))
        inputs = tuple(name for name in group.inputs if not graph.is_constant(name))
        layout = replace(layout, nodes=mine, inputs=inputs, outputs=(group.output,))
        return Grouped(layout, (group,))

    def candidates(self) -> list[Candidate]:
        """Every candidate of the compiler, the likeliest first; none if it has several kernels."""
        work = self._grouped.groups[0].work
        if len(work) != 1:
            return []
        depth = self._request.options.pipeline_depth
        found = legal_candidates(work[0][0], self._grouped.searched, depth)
        return sorted(found, key=lambda one: one.estimated_cycles)

    def cycles(self, candidate: Candidate) -> int:
        """Exact cycles of the layer alone with a candidate; `NEVER` if it cannot be lowered."""
        return self._timer.cycles((self._grouped.groups[0].work[0][0], candidate))

    @property
    def form(self) -> object:
        """All that determines the cycles of candidates; layers of one form have equal cycles."""
        kernel = self._grouped.groups[0].work[0][0]
        return self._timer.programs.form_of(kernel), self._grouped.searched

    def steps(self, candidate: Candidate) -> str:
        """The steps of a candidate's schedule, as `evaluate` takes them."""
        kernel = self._grouped.groups[0].work[0][0]
        return joined([self._timer.programs.schedule(kernel, candidate)])

    @checked("LayerBench.evaluate", UsageError)
    def evaluate(self, text: str) -> Evaluation:
        """Judge a schedule: steps, one a line; see `compiler.scheduling.given_schedules`."""
        gap = self.gap
        answer = Evaluation(Verdict.OK, gap.cycles, gap.bound, gap.demand.unit)
        try:
            scheduled = self._scheduled(text)
            segment = self._segment(scheduled)
        except CompileError as error:
            return self._refused(answer, text, error)
        cycles = scheduled.layers[0].gap.cycles
        answer = replace(answer, instructions=len(segment.program))
        with open_device("sim", self._request.configuration) as device:
            _, apart = self.run(segment, device)
        if apart:
            return replace(answer, verdict=Verdict.WRONG, message=apart)
        return replace(answer, cycles=cycles, limits=self._limits(segment))

    @checked("LayerBench.program", UsageError)
    def program(self, text: str) -> Segment:
        """Return the program of the layer alone with a schedule; raises `CompileError`."""
        return self._segment(self._scheduled(text))

    def run(self, segment: Segment, device: Device) -> tuple[Result, str]:
        """Run a program of the layer on random data.

        Returns
        -------
        The result, and how the output differs from the definition of the nodes; "" if it does not.
        """
        window = segment.image(self.values)
        result = device.run(segment.program, window)
        (place,) = segment.outputs
        got, expected = place.read(window), self.values[self._grouped.groups[0].output]
        wrong = np.count_nonzero(got != expected)
        apart = f"{wrong:,} of {expected.size:,} values differ from the definition" if wrong else ""
        return result, apart

    def _scheduled(self, text: str) -> Scheduled:
        request = replace(self._request, schedules={self.name: text})
        return schedule(request, self._graph, self._grouped, self._timer)

    def _segment(self, scheduled: Scheduled) -> Segment:
        (lowered,) = lower(self._request, self._graph, scheduled, self._timer.programs.pieces)
        segment = link(self._request, lowered, self._measure, reorder=False).segment
        prove(self._request, segment)
        return segment

    def _refused(self, answer: Evaluation, text: str, error: CompileError) -> Evaluation:
        cause = error.__cause__ if isinstance(error.__cause__, ScheduleError) else None
        if cause is None:
            message = str(error)
            for kernel, _ in self._grouped.groups[0].work:
                message = with_short_stages(kernel, message)
            return replace(answer, verdict=Verdict.NO_PROGRAM, message=message)
        return replace(
            answer,
            verdict=Verdict.ILLEGAL,
            message=str(cause),
            step=str(cause.step) if cause.step else None,
            **self._place(text, cause.line),
        )

    def _place(self, text: str, line: int) -> dict[str, Any]:
        """Return the line of a refused step and the loops where it stands."""
        if not line:
            return {}
        ((kernel, _),) = self._grouped.groups[0].work
        before = "\n".join(text.splitlines()[: line - 1])
        try:
            target = Accelerator(self._request.configuration)
            stages = Schedule.parse(kernel, before, target, whole_stages(kernel)).stages
        except ScheduleError:  # steps that are legal together need not be so one by one
            return {"line": line}
        short = short_stages(kernel)
        return {"line": line, "loops": {short(stage.name): tuple(stage.loops) for stage in stages}}

    @cached_property
    def values(self) -> dict[str, np.ndarray]:
        """Random inputs of the layer, and what its nodes make of them."""
        generator, graph = np.random.default_rng(0), self._graph
        layout = self._grouped.layout
        values = {constant.name: constant.data for constant in graph.constants}
        for name in layout.inputs:
            kind = graph.types[name]
            values[name] = generator.integers(-128, 128, kind.shape, np.int8)
        for node in self._grouped.layout.nodes:
            results = evaluate_node(node, [values[name] for name in node.inputs])
            values |= {one.name: result for one, result in zip(node.outputs, results, strict=True)}
        return {name: values[name] for name in (*layout.inputs, *layout.outputs)}

    def _limits(self, segment: Segment) -> Mapping[str, int]:
        request = self._request
        timing = time_program(segment.program, request.configuration, request.memory)
        names = {layer.output: layer.name for layer in segment.layers}
        return limits_of([TimedSegment(segment, timing, names)], names).limits


def _find(module: Module, wanted: str) -> tuple[int, Layer]:
    """Return a layer and the number of its segment."""
    require_segments(module, "schedules")
    if "ports" not in module.report:
        raise UsageError(
            f"`{module.name}`: expected a compiled model, got an artifact, which does not say for "
            "which port it was searched; name the model instead"
        )
    found = find_layers(module, wanted)
    names = layer_names(module)
    if not found:
        raise UsageError(
            f"`--layer {wanted}`: expected the name of one layer on the accelerator"
            + similar_layers(module, wanted)
        )
    if len(found) > 1:
        called = listed_names(names[layer.output] for _, layer in found)
        raise UsageError(
            f"`--layer {wanted}`: expected the name of one layer on the accelerator, got that of "
            f"{len(found)}; choose one of {called}"
        )
    ((number, layer),) = found
    if any(isinstance(node.attributes, Rearranging) for node in layer_nodes(module)[layer.output]):
        raise UsageError(f"`--layer {wanted}`: expected a layer that computes, got one that copies")
    return number, layer
