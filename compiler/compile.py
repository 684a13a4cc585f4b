"""Graph in, module out: partition, plan memory, schedule, lower, synthesise tokens, check."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from ..errors import CompileError
from ..isa.checker import check
from ..isa.configuration import Configuration
from ..isa.instructions import Instruction, Sync
from ..isa.tokens import synthesise_tokens
from .accelerator.constants import ConstantPool, align
from .accelerator.dma import Resident
from .accelerator.lower import Emitted, Lowering
from .fusion import Group, Movement, form_groups, images_that_fit
from .gaps import LayerGap, layer_gap, report_of
from .graph import Graph, Node, is_accelerated
from .homes import Home, find_homes
from .kernels.common import channel_block, padded
from .kernels.first_layer import Image
from .measure import Measure, Stopwatch
from .memory_plan import plan_memory
from .module import Binding, Layer, Module, Segment
from .options import DEFAULT_OPTIONS, Options
from .transposes import transpose_on_host

Progress = Callable[[str], None]


def compile_graph(
    graph: Graph,
    configuration: Configuration,
    progress: Progress = lambda line: None,
    *,
    keep_all: bool = False,
    options: Options = DEFAULT_OPTIONS,
    measure: Measure | None = None,
) -> Module:
    """Compile an integer graph for a configuration.

    Parameters
    ----------
    graph
        As `import_and_quantise` gives it.
    configuration
        The accelerator.
    progress
        Called with one line per layer.
    keep_all
        Give every activation a place of its own, so that all of them can be read after a run; the
        same instructions, in more memory.
    options
        What to leave out.
    measure
        Tells the exact cycles of a program (`tilewright.sim.timing` has such a model); with it the
        most likely schedules are compared by their time, and without it by an estimate.

    Returns
    -------
    Module
        Its report has `compile_s`, seconds, `instructions`, and what `gaps.report_of` tells.

    Raises
    ------
    CompileError
        When a layer does not fit the configuration.
    """
    started = time.perf_counter()
    graph = transpose_on_host(graph, configuration)
    steps: list[str | int] = []
    segments: list[Segment] = []
    gaps: list[list[LayerGap]] = []
    with _paused_collector():
        for group in partition(graph):
            if is_accelerated(group[0]):
                steps.append(len(segments))
                segment, found = _compile_segment(
                    graph, group, configuration, progress, keep_all, options, measure
                )
                segments.append(segment)
                gaps.append(found)
            else:
                steps += [node.outputs[0].name for node in group]
    exact = measure and sum(measure(segment.program, configuration) for segment in segments)
    report = {
        "compile_s": time.perf_counter() - started,
        "instructions": sum(len(segment.program) for segment in segments),
        **report_of(gaps, exact),
    }
    return Module(graph.name, configuration, graph, tuple(steps), tuple(segments), report)


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Leave the collector of cyclic garbage out: a search makes little of it, and many objects."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def partition(graph: Graph) -> list[list[Node]]:
    """Nodes in groups that alternate between host and accelerator, as few as the order allows."""
    ready = {value.name for value in graph.inputs} | {c.name for c in graph.constants}
    waiting, groups = list(graph.nodes), []
    accelerated = False
    while waiting:
        group: list[Node] = []
        for node in waiting:
            if is_accelerated(node) == accelerated and all(name in ready for name in node.inputs):
                group.append(node)
                ready |= {value.name for value in node.outputs}
        if group:
            groups.append(group)
            taken = {node.outputs[0].name for node in group}
            waiting = [node for node in waiting if node.outputs[0].name not in taken]
        accelerated = not accelerated
    return groups


def _compile_segment(
    graph: Graph,
    nodes: list[Node],
    configuration: Configuration,
    progress: Progress,
    keep_all: bool,
    options: Options,
    measure: Measure | None,
) -> tuple[Segment, list[LayerGap]]:
    inputs, outputs = _boundary(graph, nodes)
    images = images_that_fit(graph, nodes, inputs, configuration, options) if options.gather else {}
    values = [*inputs, *(node.output.name for node in nodes)]
    places = {name: _place(name, graph, images, configuration) for name in values}
    homes = find_homes(graph, nodes, {name: place.stored_shape for name, place in places.items()})
    stopwatch = None
    if measure is not None:
        stopwatch = Stopwatch(*homes.apart(), configuration, measure)
    groups = form_groups(
        graph, nodes, outputs, images, configuration, options, stopwatch, homes.copies
    )
    lifetimes = _lifetimes(graph, groups, inputs, outputs, keep_all)
    plan = plan_memory(homes.lifetimes(lifetimes))
    residents = homes.residents(plan.offsets)
    bind = {name: _bind(places[name], homes.of[name], residents[name]) for name in lifetimes}
    pool = ConstantPool(base=align(plan.size))
    lowering = Lowering(configuration, residents, pool)
    ends: list[int] = []
    gaps: list[LayerGap] = []
    for group in groups:
        for kernel, schedule in group.work:
            lowering.lower(kernel, schedule)
        ends.append(len(lowering.stream))
        gaps.append(layer_gap(group.name, group.work, configuration, stopwatch))
        progress("; ".join([str(gaps[-1]), *(str(schedule) for _, schedule in group.work)]))
    program = synthesise_tokens([e.instruction for e in lowering.stream], configuration)
    notes, positions = _annotate(program, lowering.stream)
    layers, first = [], 0
    for group, end in zip(groups, ends, strict=True):
        last = positions[end - 1] + 1 if end else 0
        layers.append(
            Layer(
                name=group.name,
                op=group.op,
                output=group.output,
                macs=sum(kernel.macs for kernel, _ in group.work),
                schedule="; ".join(str(schedule) for _, schedule in group.work) or "in place",
                first=first,
                last=last,
            )
        )
        first = last
    data_bytes = align(pool.base + pool.size)
    check(program, configuration, data_bytes)
    segment = Segment(
        program=program,
        notes=notes,
        layers=tuple(layers),
        inputs=tuple(bind[name] for name in inputs),
        outputs=tuple(bind[name] for name in outputs),
        activations=tuple(bind.values()),
        constants=pool.image(),
        constants_offset=pool.base,
        data_bytes=data_bytes,
    )
    return segment, gaps


def _boundary(graph: Graph, nodes: list[Node]) -> tuple[list[str], list[str]]:
    """Activations that enter and leave a group of nodes."""
    inside = {value.name for node in nodes for value in node.outputs}
    entering = dict.fromkeys(
        name
        for node in nodes
        for name in node.inputs
        if name not in inside and not graph.is_constant(name)
    )
    shown = {output.value for output in graph.outputs}
    leaving = [
        name
        for name in (value.name for node in nodes for value in node.outputs)
        if name in shown or any(user.outputs[0].name not in inside for user in graph.users(name))
    ]
    return list(entering), leaving


def _lifetimes(
    graph: Graph,
    groups: list[Group | Movement],
    inputs: list[str],
    outputs: list[str],
    keep_all: bool,
) -> dict[str, tuple[int, int]]:
    """First and last step of every value in memory.

    Inputs exist before the first group, outputs after the last.
    """
    first = dict.fromkeys(inputs, -1)
    last: dict[str, int] = dict.fromkeys(inputs, -1)
    for step, group in enumerate(groups):
        for name in group.inputs:
            if not graph.is_constant(name):
                last[name] = step
        first[group.output] = last[group.output] = step
    for name in first if keep_all else outputs:
        last[name] = len(groups)
    return {name: (step, last[name]) for name, step in first.items()}


def _place(
    name: str, graph: Graph, images: Mapping[str, Image], configuration: Configuration
) -> Binding:
    """How a value lies in memory, at a place not yet known."""
    shape = graph.types[name].shape
    if len(shape) != 4:
        raise CompileError(
            f"value `{name}`: an accelerated layer needs [N, H, W, C], got {list(shape)}"
        )
    if name in images:
        image = images[name]
        return Binding(name, 0, image.stored_shape, shape, image.border[:2], image.fill)
    return Binding(name, 0, (*shape[:3], padded(shape[3], channel_block(configuration))), shape)


def _bind(place: Binding, home: Home, resident: Resident) -> Binding:
    """Where a value lies in memory."""
    if not home.strides:
        return replace(place, offset=resident.base)
    return replace(
        place,
        offset=resident.base,
        stored_shape=place.shape,
        whole=home.whole,
        strides=home.strides,
    )


def _annotate(
    program: tuple[Instruction, ...], stream: list[Emitted]
) -> tuple[tuple[str, ...], list[int]]:
    """Notes for every instruction, and where each emitted one went; tokens added SYNCs."""
    notes, positions, emitted = [], [], iter(stream)
    for position, instruction in enumerate(program[:-1]):
        if isinstance(instruction, Sync):
            notes.append("token")
            continue
        item = next(emitted)
        notes.append(f"{item.kernel}: {item.note}")
        positions.append(position)
    return (*notes, "end"), positions
