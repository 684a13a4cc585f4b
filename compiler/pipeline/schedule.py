"""Choose the schedules of kernels among their neighbours, and give activations addresses."""

from collections.abc import Collection, Sequence

from ...isa.configuration import Configuration
from ..accelerator.lower_bound import OnChip
from ..graph import Graph
from ..main_memory.memory_plan import MemoryPlan, plan_memory
from ..main_memory.segment_layout import SegmentLayout, between_kernels, bind, lifetimes
from ..module import Binding
from ..scheduling.bound_report import layer_gap
from ..scheduling.candidate_timer import CandidateTimer
from ..scheduling.fusion import Group, MovementGroup
from ..scheduling.given_schedules import with_given
from ..scheduling.refine import refine
from .request import CompileRequest, Grouped, Progress, Scheduled, ScheduledLayer


def schedule(
    request: CompileRequest,
    graph: Graph,
    grouped: Grouped,
    timer: CandidateTimer | None,
    progress: Progress = lambda line: None,
    *,
    alone: bool = False,
) -> Scheduled:
    """Schedule a segment; the user's steps replace the compiler's.

    Parameters
    ----------
    alone
        Whether kernels keep the schedules that are fastest for each of them alone.

    Raises
    ------
    CompileError
        When a user's steps are illegal.
    """
    groups = list(grouped.groups)
    if timer is not None and request.options.candidates > 1 and not alone:
        groups = refine(groups, timer, request.options, progress)
    if timer is not None:
        timer = timer_for(timer, request.configuration)
    plan, bound = addresses(request, graph, grouped.layout, groups)
    kernels = [kernel for each in groups for kernel, _ in each.work]
    on_chip = between_kernels(kernels, grouped.layout)
    layers = (scheduled_layer(request, each, timer, on_chip) for each in groups)
    return Scheduled(grouped, tuple(layers), plan, bound)


def timer_for(timer: CandidateTimer, machine: Configuration) -> CandidateTimer:
    """Return a timer for a machine, with the programs that are known already."""
    if timer.configuration == machine:
        return timer
    return CandidateTimer(timer.programs, machine, timer.measure)


def addresses(
    request: CompileRequest,
    graph: Graph,
    layout: SegmentLayout,
    groups: Sequence[Group | MovementGroup],
    unstored: Collection[str] = (),
) -> tuple[MemoryPlan, dict[str, Binding]]:
    """Give activations places in main memory; those that are `unstored` need none."""
    spans = lifetimes(graph, groups, layout, request.keep_all, unstored)
    plan = plan_memory(layout.placements.lifetimes(spans))
    dram, of = layout.placements.dram(plan.offsets), layout.placements.of
    values = (name for name in spans if name in layout.bindings)  # others are places of copies
    return plan, {name: bind(layout.bindings[name], of[name], dram[name]) for name in values}


def scheduled_layer(
    request: CompileRequest,
    group: Group | MovementGroup,
    timer: CandidateTimer | None,
    on_chip: OnChip,
) -> ScheduledLayer:
    """The schedules of a layer and its distance from its bound, beside values `on_chip`."""
    parts = with_given(group.name, group.output, group.work, request.schedules)
    machine = request.configuration
    schedules = (
        timer.programs.schedule(kernel, choice) if timer else choice.schedule(kernel, machine)
        for kernel, choice in parts
    )
    gap = layer_gap(group.name, parts, machine, timer, on_chip)
    return ScheduledLayer(group, tuple(schedules), gap)
