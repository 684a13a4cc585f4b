"""Request in, module out: place, group, schedule, lower and link; every stage is kept."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ...collector import paused_collector
from ...errors import CompileError, UnfitError
from ...isa.configuration import Configuration
from ...wording import counted
from ..accelerator.lower_bound import chained
from ..accelerator.residents import frames_of
from ..cpu.kernels.choices import device_choices, is_device_key
from ..graph import Graph, Node
from ..host import host_target, plan_host, report_of_host
from ..host.kernel_store import compile_host, used_choices
from ..module import Module
from ..placement import misfits, placed_layers, placement_report
from ..placement.host_products import (
    host_combinations,
    host_products,
    idle_sentence,
    unmarked_masks,
)
from ..scheduling.bound_report import report_of
from ..scheduling.candidate_timer import CandidateTimer, Times
from ..scheduling.given_schedules import refuse_unknown_layers, refuse_unknown_nodes
from ..scheduling.issue_order import Measure
from ..scheduling.kernel_programs import ProgramStore
from ..scheduling.program_bound import program_work
from .group import MAX_ALONE_CYCLES, group, narrower_ports, peak_cycles
from .link import link, prove
from .lower import lower
from .place import place
from .refine_program import refine_program
from .request import Compilation, CompileRequest, Linked, PlacedGraph, Progress, Scheduled
from .schedule import schedule


def compile_request(
    request: CompileRequest,
    progress: Progress = lambda line: None,
    *,
    measure: Measure | None = None,
    store: ProgramStore | None = None,
) -> Compilation:
    """Compile a graph for a configuration.

    Parameters
    ----------
    progress
        Called with a line of text before each step: layers, by name, and kernels of the host.
    measure
        Gives the exact cycles of a program with the main memory of the request, such as the model
        in `tilewright.sim.timing`. With it, the most likely schedules are compared by exact cycles,
        and instructions are issued in the order in which they can start; without it, schedules are
        compared by an estimate.
    store
        Shares the work of several compilations, see `ProgramStore`.

    Returns
    -------
    Compilation
        The report of its module has `compile_s` in seconds, `instructions`, the values of
        `bound_report.report_of`, `host` (`host.report_of_host`), `placement`
        (`placement.placement_report`), `host_products` (`placement.host_products`), `idle`: why
        nothing runs on the accelerator, `windows`: the bytes of each data window, and the least
        bytes that its activations need in this order, and `ports`: the width in bits of the memory
        port for which each segment was searched, see `group.narrower_ports`.

    Raises
    ------
    UnfitError
        When a layer does not fit the configuration, and the user placed it on the accelerator.
    CompileError
        When a program or its data are too large, or the placement is not possible.
    """
    started = time.perf_counter()
    compiler = _Compiler(request, progress, measure, store or ProgramStore())
    with paused_collector():
        placed, segments = compiler.placed()
    layers = [layer for linked in segments for layer in linked.segment.layers]
    refuse_unknown_layers(request.schedules, layers)
    numbers = iter(range(len(segments)))
    steps: list[str | int] = []
    for part in placed.parts:
        if placed.is_segment(part):
            steps.append(next(numbers))
        else:
            steps += [node.outputs[0].name for node in part]
    module = Module(
        name=placed.graph.name,
        configuration=request.configuration,
        graph=placed.graph,
        steps=tuple(steps),
        segments=tuple(linked.segment for linked in segments),
        report=_report(segments, request, timed=measure is not None),
        memory=request.memory,
    )
    if not request.lean:
        module = compiler.with_host(placed, segments, module)
    report = {"compile_s": time.perf_counter() - started, **module.report}
    module = replace(module, report=report)
    return Compilation(request, placed, tuple(segments), module)


def compile_module(
    graph: Graph,
    configuration: Configuration,
    progress: Progress = lambda line: None,
    *,
    measure: Measure | None = None,
    **wishes: Any,
) -> Module:
    """Compile a request with the fields `wishes`, and return its module."""
    request = CompileRequest(graph=graph, configuration=configuration, **wishes)
    return compile_request(request, progress, measure=measure).module


@dataclass(frozen=True, slots=True)
class _Compiler:
    """The stages of a request, see `compile_request`."""

    request: CompileRequest
    progress: Progress
    measure: Measure | None
    store: ProgramStore
    times: dict[Configuration, Times] = field(default_factory=dict)
    """Known times of kernels on each machine; equal layers of several segments are timed once."""

    def placed(self) -> tuple[PlacedGraph, list[Linked]]:
        """Place the nodes and compile the segments; nodes that do not fit go to the host.

        Few networks have such nodes, so they are looked for only after a segment was refused.
        """
        request, refused = self.request, dict[str, str]()
        while True:
            placed = place(request, refused)
            parts = [part for part in placed.parts if placed.is_segment(part)]
            refuse_unknown_nodes(request.schedules, placed.accelerated)
            try:
                return placed, [self.segment(placed.graph, part) for part in parts]
            except UnfitError:
                known = len(refused)
                for part in parts if not request.placement.strict else ():
                    refused |= misfits(
                        placed.graph, part, request.configuration, request.options,
                        timed=self.measure is not None,
                    )  # fmt: skip
                if len(refused) == known:
                    raise

    def segment(self, graph: Graph, nodes: Sequence[Node]) -> Linked:
        """Compile a segment with the search that gives the fastest program."""
        request = self.request
        best = self.search(graph, nodes, request.configuration)
        if self.measure is not None and request.options.candidates > 1:
            for machine in narrower_ports(graph, nodes, request.configuration):
                with suppress(UnfitError):
                    best = min(best, self.search(graph, nodes, machine), key=self._rank)
        if not request.lean:
            self.progress("checking the program")
            prove(request, best.segment)
        return best

    def _rank(self, linked: Linked) -> tuple[int, int]:
        """Programs with more of the given schedules come first, then those of fewer cycles."""
        given = self.request.schedules
        taken = sum(layer.gap.name in given for layer in linked.layers) if given else 0
        return -taken, linked.cycles

    def search(self, graph: Graph, nodes: Sequence[Node], searched: Configuration) -> Linked:
        """Compile a segment with schedules that are searched for a machine."""
        request, measure = self.request, self.measure
        times = self.times.setdefault(searched, {})
        grouped, timer = group(
            request, graph, nodes, searched, measure, self.store, times, self.progress
        )
        scheduled = schedule(request, graph, grouped, timer, self.progress)
        best = self.linked(graph, scheduled, timer)
        if measure is not None and peak_cycles(graph, nodes, searched) <= MAX_ALONE_CYCLES:
            # Neighbours are timed with loads in order, which may pass others in the whole program.
            alone = schedule(request, graph, grouped, timer, self.progress, alone=True)
            pairs = zip(scheduled.layers, alone.layers, strict=False)
            if any(one.group is not other.group for one, other in pairs):
                other = self.linked(graph, alone, timer)
                best = min(best, other, key=lambda linked: linked.cycles)
        if timer is not None and best.lowered.frames and request.options.candidates > 1:
            refined = refine_program(request, graph, best.lowered, timer)
            if refined is not best.lowered:
                other = link(request, refined, measure)
                best = min(best, other, key=lambda linked: linked.cycles)
        return best

    def linked(self, graph: Graph, scheduled: Scheduled, timer: CandidateTimer | None) -> Linked:
        """Return the program of a segment, with activations that stay on chip where they may."""
        request, measure = self.request, self.measure
        pieces = timer.programs.pieces if timer else {}
        self.progress(f"the program of {counted(len(scheduled.layers), 'layer')}")
        programs = (one.program() for layer in scheduled.layers for one in layer.schedules)
        frames = frames_of(programs) if measure is not None and request.options.fuse else {}
        *staying, plain = lower(request, graph, scheduled, pieces, frames)
        best = link(request, plain, measure)
        for lowered in staying:
            # They take room and banks, and so may cost more than the transfers that they save.
            with suppress(CompileError):
                best = min(best, link(request, lowered, measure), key=lambda linked: linked.cycles)
        return best

    def with_host(self, placed: PlacedGraph, segments: Sequence[Linked], module: Module) -> Module:
        """Compile the host's kernels, and report the placement."""
        graph, request = placed.graph, self.request
        host = plan_host(graph, module.steps, module.segments, host_target())
        code = compile_host(host, self.progress, request.choices)
        choices = used_choices(host, code, request.choices)
        if any(map(is_device_key, request.choices)):  # for GPUs, whose sessions use them
            from ..gpu import planned_for

            planned = plan_host(graph, module.steps, module.segments, planned_for())
            choices |= device_choices(planned.descriptions(), request.choices)
        on_accelerator = [linked.placed_layers for linked in segments]
        layers = placed_layers(graph, module.steps, on_accelerator, host.kernels)
        placement = placement_report(
            graph, layers, request.placement, placed.decision, request.costs
        )
        products = host_products(graph, placed.decision) + host_combinations(graph)
        if request.configuration.row_statistics != "none":
            products += unmarked_masks(graph)
        report = {
            **module.report,
            "host": {**report_of_host(host), "recorded": dict(choices)},
            "placement": placement,
            "host_products": products,
            "idle": "" if segments else idle_sentence(graph, products),
        }
        return replace(module, code=code, choices=choices, report=report)


def _bound(linked: Linked, request: CompileRequest) -> int:
    """Return the lower bound of a segment's cycles with the memory of the request."""
    layers = linked.layers
    demands = [layer.gap.among for layer in layers]
    groups = [layer.group for layer in layers]
    stores = sum(demand.traffic[1] > 0 for demand in demands)
    work = program_work(groups, chained(demands), request.configuration, stores)
    return work.bound(request.memory).cycles


def _report(segments: Sequence[Linked], request: CompileRequest, *, timed: bool) -> dict[str, Any]:
    cycles = sum(linked.cycles for linked in segments)
    gaps = [[layer.gap for layer in linked.layers] for linked in segments]
    bound = sum(_bound(linked, request) for linked in segments)
    return {
        "instructions": sum(len(linked.segment.program) for linked in segments),
        **report_of(gaps, bound, cycles if timed else None),
        "ports": [linked.lowered.scheduled.grouped.searched.bus_bits for linked in segments],
        "windows": [
            {
                "bytes": linked.segment.data_bytes,
                "activation_bytes": linked.lowered.scheduled.plan.size,
                "least_bytes": linked.lowered.scheduled.plan.lower_bound,
                "constant_bytes": len(linked.segment.constants),
            }
            for linked in segments
        ],
    }
