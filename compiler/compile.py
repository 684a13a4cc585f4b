"""Graph in, module out: partition, plan memory, schedule, lower, synthesise tokens, check."""

import gc
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from ..errors import CompileError, ConfigurationError, UnfitError
from ..isa.checker import check
from ..isa.configuration import PARAMETERS, Configuration, Memory
from ..isa.instructions import Instruction
from .accelerator.constants import ConstantPool
from .accelerator.lower_schedules import Emitted, Lowering
from .accelerator.program_size import refuse_huge_programs
from .aligned import align
from .assignment import (
    ACCELERATOR,
    DEFAULT_COSTS,
    DEFAULT_PLACEMENT,
    Costs,
    Decision,
    PlacedLayer,
    Placement,
    decide,
    misfits,
    placed_layers,
    placement_report,
)
from .flatten_on_host import flatten_on_host
from .graph import Graph, Node
from .host import host_target, plan_host, report_of_host
from .host.kernel_store import compile_host
from .macs import macs_of
from .main_memory.memory_plan import MemoryPlan, plan_memory
from .module import Layer, Module, Segment
from .options import DEFAULT_OPTIONS, Options
from .scheduling.bound_report import LayerGap, layer_gap, report_of
from .scheduling.candidate_timer import CandidateTimer
from .scheduling.fusion import form_groups
from .scheduling.given_schedules import joined, refuse_unknown_layers, with_given
from .scheduling.issue_order import Measure, issue
from .scheduling.kernel_programs import ProgramStore
from .scheduling.refine import refine
from .segments import bind, lay_out_segment, lifetimes, partition
from .split_pools import split_pools
from .transpose_on_host import transpose_on_host

Progress = Callable[[str], None]

MAX_PORT_SEARCH_CYCLES = 250_000
"""Cycles at the peak of the array up to which a segment is also searched for narrower ports."""

NO_SCHEDULES: Mapping[str, str] = MappingProxyType({})
"""No schedules from the user."""


def compile_graph(
    graph: Graph,
    configuration: Configuration,
    progress: Progress = lambda line: None,
    *,
    keep_all: bool = False,
    options: Options = DEFAULT_OPTIONS,
    measure: Measure | None = None,
    placement: Placement = DEFAULT_PLACEMENT,
    costs: Costs = DEFAULT_COSTS,
    schedules: Mapping[str, str] = NO_SCHEDULES,
    lean: bool = False,
    store: ProgramStore | None = None,
) -> Module:
    """Compile an integer graph for a configuration.

    Parameters
    ----------
    graph
        A result of `import_model`.
    configuration
        The accelerator.
    progress
        Called with a line of text for each layer and for each host kernel.
    keep_all
        Give every activation its own place, so that all of them can be read after a run. The
        instructions stay the same and use more memory.
    options
        The optimisations to use.
    measure
        Gives the exact cycles of a program, such as the model in `tilewright.sim.timing`. With it,
        the most likely schedules are compared by exact cycles, and instructions are issued in the
        order in which they can start; without it, schedules are compared by an estimate.
    placement
        The nodes that run on the accelerator; by default all that it supports and that fit the
        configuration. The report says which ones do not fit, and why.
    costs
        The basis of time estimates, for the report and for a `placement` with the least time.
    schedules
        Schedule steps for some layers, by the layer's name. They replace the compiler's choice; see
        `given_schedules`.
    lean
        Leave out what cycles do not depend on: the checker's proof, the host's machine code, notes,
        and the report of the placement. The module is for timing alone.
    store
        Shares the work of several compilations, see `ProgramStore`.

    Returns
    -------
    Module
        Its report has `compile_s` in seconds, `instructions`, the values of
        `bound_report.report_of`, `host` (`host.report_of_host`), `placement`
        (`placement.placement_report`), and `windows`: the bytes of each data window, and the least
        bytes that its activations need in this order.

    Raises
    ------
    UnfitError
        When a layer does not fit the configuration, and the user placed it on the accelerator.
    CompileError
        When a program or its data are too large, or the placement is not possible.
    """
    started = time.perf_counter()
    if not placement.leaves_all:
        graph = transpose_on_host(graph, configuration)
        graph = flatten_on_host(graph, configuration, costs)
        graph = split_pools(graph, configuration)
    with paused_collector():
        decision, made = _compile_placed(
            graph, configuration, progress, keep_all, options, measure, placement, costs, schedules,
            lean, store or ProgramStore(),
        )  # fmt: skip
    steps, segments, gaps, layers, plans, exact = made
    refuse_unknown_layers(schedules, [layer for segment in segments for layer in segment.layers])
    report = {
        "compile_s": time.perf_counter() - started,
        "instructions": sum(len(segment.program) for segment in segments),
        **report_of(gaps, exact if measure else None),
        "windows": [
            {
                "bytes": segment.data_bytes,
                "activation_bytes": plan.size,
                "least_bytes": plan.lower_bound,
                "constant_bytes": len(segment.constants),
            }
            for segment, plan in zip(segments, plans, strict=True)
        ],
    }
    module = Module(graph.name, configuration, graph, tuple(steps), tuple(segments), report)
    if lean:
        return module
    host = plan_host(graph, steps, segments, host_target())
    code = compile_host(host, progress)
    report |= {
        "host": report_of_host(host),
        "placement": placement_report(
            graph, placed_layers(graph, steps, layers, host.kernels), placement, decision, costs
        ),
    }
    report["compile_s"] = time.perf_counter() - started
    return replace(module, code=code)


class _Made(NamedTuple):
    """The steps of a module, and for each segment what its report needs."""

    steps: list[str | int]
    segments: list[Segment]
    gaps: list[list[LayerGap]]
    layers: list[list[PlacedLayer]]
    plans: list[MemoryPlan]
    cycles: int


def _compile_placed(
    graph: Graph,
    configuration: Configuration,
    progress: Progress,
    keep_all: bool,
    options: Options,
    measure: Measure | None,
    placement: Placement,
    costs: Costs,
    schedules: Mapping[str, str],
    lean: bool,
    store: ProgramStore,
) -> tuple[Decision, _Made]:
    """Place the nodes and compile the segments; nodes that do not fit go to the host.

    Few networks have such nodes, so they are looked for only after a segment was refused.
    """
    refused: dict[str, str] = {}
    while True:
        decision = decide(graph, configuration, options, placement, costs, refused)
        groups = partition(graph, decision.on_accelerator)
        made = _Made([], [], [], [], [], 0)
        try:
            for group in groups:
                if decision.on_accelerator(group[0]):
                    made.steps.append(len(made.segments))
                    segment, cycles, found, placed, plan = _compile_segment(
                        graph, group, configuration, progress, keep_all, options, measure,
                        schedules, lean, store,
                    )  # fmt: skip
                    made.segments.append(segment)
                    made.gaps.append(found)
                    made.layers.append(placed)
                    made.plans.append(plan)
                    made = made._replace(cycles=made.cycles + cycles)
                else:
                    made.steps.extend(node.outputs[0].name for node in group)
            return decision, made
        except UnfitError:
            known = len(refused)
            for group in groups if not placement.strict else ():
                if decision.on_accelerator(group[0]):
                    timed = measure is not None
                    refused |= misfits(graph, group, configuration, options, timed=timed)
            if len(refused) == known:
                raise


@contextmanager
def paused_collector() -> Iterator[None]:
    """Disable cyclic garbage collection: a search makes many objects and few cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _compile_segment(
    graph: Graph,
    nodes: list[Node],
    configuration: Configuration,
    progress: Progress,
    keep_all: bool,
    options: Options,
    measure: Measure | None,
    schedules: Mapping[str, str],
    lean: bool,
    store: ProgramStore,
) -> tuple[Segment, int, list[LayerGap], list[PlacedLayer], MemoryPlan]:
    """Compile a segment with the search that gives the fastest program."""
    searched = [configuration]
    if measure is not None and options.candidates > 1:
        searched += _narrower_ports(graph, nodes, configuration)
    found = []
    for machine in searched:
        with suppress(UnfitError) if found else nullcontext():
            made = _compile_searched(
                graph, nodes, configuration, machine, keep_all, options, measure, schedules, lean,
                store,
            )  # fmt: skip
            found.append(made)
    best = min(found, key=lambda made: made[1])
    for gap in best[2]:
        progress(str(gap))
    if not lean:
        segment, *_ = best
        _refuse_large_data(graph.name, segment.data_bytes, configuration)
        check(segment.program, configuration, segment.data_bytes)
    return best


def _narrower_ports(
    graph: Graph, nodes: Sequence[Node], configuration: Configuration
) -> Iterator[Configuration]:
    """Yield the machine with each narrower memory port, if the segment is short.

    A program for a narrower port has the same instructions and takes no longer on a wider one. A
    search may miss it, because it judges kernels mostly alone; in short segments, where kernels
    overlap much, it often does. Searching for all ports, a wider one never loses to a narrower one.
    """
    cycles = sum(macs_of(graph, node) for node in nodes) / configuration.tile_bytes
    bits = configuration.bus_bits // 2
    while cycles <= MAX_PORT_SEARCH_CYCLES and bits >= PARAMETERS["bus_bits"].low:
        with suppress(ConfigurationError):
            yield configuration.replace(bus_bits=bits)
        bits //= 2


def _compile_searched(
    graph: Graph,
    nodes: list[Node],
    configuration: Configuration,
    searched: Configuration,
    keep_all: bool,
    options: Options,
    measure: Measure | None,
    schedules: Mapping[str, str],
    lean: bool,
    store: ProgramStore,
) -> tuple[Segment, int, list[LayerGap], list[PlacedLayer], MemoryPlan]:
    """Compile a segment with the schedules that are best on the machine `searched`."""
    layout = lay_out_segment(graph, nodes, searched, options)
    inputs, outputs, placements = layout.inputs, layout.outputs, layout.placements
    timer = None
    if measure is not None:
        programs = store.programs(*placements.apart(), configuration)
        timer = CandidateTimer(programs, searched, measure)
    groups = form_groups(
        graph, nodes, outputs, layout.images, searched, options, timer, placements.copies
    )
    work = (piece for group in groups for piece in group.work)
    refuse_huge_programs(work, configuration, options.most_instructions)
    if timer is not None and options.candidates > 1:
        groups = refine(groups, timer, options)
    if timer is not None and searched is not configuration:
        timer = CandidateTimer(timer.programs, configuration, timer.measure)
    spans = lifetimes(graph, groups, inputs, outputs, keep_all)
    plan = plan_memory(placements.lifetimes(spans))
    dram = placements.dram(plan.offsets)
    bound = {name: bind(layout.places[name], placements.of[name], dram[name]) for name in spans}
    pool = ConstantPool(base=align(plan.size))
    known = timer.programs.pieces if timer else None
    lowering = Lowering(configuration, dram, pool, options.most_instructions, known)
    ends: list[int] = []
    gaps: list[LayerGap] = []
    texts: list[str] = []
    for group in groups:
        parts = with_given(group.name, group.output, group.work, schedules)
        scheduled = [
            timer.programs.schedule(*part) if timer else part[1].schedule(part[0], configuration)
            for part in parts
        ]
        for schedule in scheduled:
            lowering.lower(schedule)
        ends.append(len(lowering.stream))
        gaps.append(layer_gap(group.name, parts, configuration, timer))
        texts.append(joined(scheduled))
    instructions = [emitted.instruction for emitted in lowering.stream]
    program, order, cycles = issue(instructions, configuration, measure)
    notes = () if lean else _notes(program, [lowering.stream[index] for index in order])
    runs = _runs(program, [bisect_right(ends, index) for index in order])
    layers = [
        Layer(
            name=group.name,
            op=group.op,
            output=group.output,
            macs=sum(kernel.macs for kernel, _ in group.work),
            schedule=text,
            runs=tuple(runs.get(number, ())),
        )
        for number, (group, text) in enumerate(zip(groups, texts, strict=True))
    ]
    segment = Segment(
        program=program,
        notes=notes,
        layers=tuple(layers),
        inputs=tuple(bound[name] for name in inputs),
        outputs=tuple(bound[name] for name in outputs),
        activations=tuple(bound.values()),
        constants=pool.image(),
        constants_offset=pool.base,
        data_bytes=align(pool.base + pool.size),
    )
    placed = [
        PlacedLayer(group.name, group.op, ACCELERATOR, group.nodes, gap.cycles, gap.exact)
        for group, gap in zip(groups, gaps, strict=True)
    ]
    return segment, cycles, gaps, placed, plan


def _refuse_large_data(model: str, data_bytes: int, configuration: Configuration) -> None:
    """Refuse data that no instruction could address."""
    reach = configuration.size_bytes(Memory.DRAM)
    if data_bytes > reach:
        raise CompileError(
            f"model `{model}`: its activations and constants take {data_bytes:,} bytes, but "
            f"`address_bits` = {configuration.address_bits} of configuration "
            f"`{configuration.name}` reaches {reach:,}; raise it, or leave layers to the cpu"
        )


def _notes(program: Sequence[Instruction], emitted: Sequence[Emitted]) -> tuple[str, ...]:
    """The note of every instruction."""
    items = iter(emitted)
    notes = [
        "token" if instruction.only_tokens else f"{(item := next(items)).kernel}: {item.note}"
        for instruction in program[:-1]
    ]
    return (*notes, "end")


def _runs(
    program: Sequence[Instruction], layers: Sequence[int]
) -> dict[int, list[tuple[int, int]]]:
    """The ranges of a program that belong to each layer; a SYNC belongs to the next instruction.

    Parameters
    ----------
    layers
        For each instruction that is not a SYNC or HALT, the number of its layer.
    """
    runs: dict[int, list[tuple[int, int]]] = {}
    numbers, first, before = iter(layers), 0, None
    for place, instruction in enumerate(program[:-1]):
        if instruction.only_tokens:
            continue
        number = next(numbers)
        mine = runs.setdefault(number, [])
        if number == before:
            first, _ = mine.pop()
        mine.append((first, place + 1))
        first, before = place + 1, number
    return runs
