"""Turn the schedules of a segment into instructions, and collect its constants."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from ...aligned import align
from ..accelerator.constant_pool import ConstantPool
from ..accelerator.lower_schedules import KnownPieces, Lowering
from ..accelerator.residents import NO_FRAMES, ResidentFrame
from ..graph import Graph
from ..main_memory.segment_layout import constant_bytes
from ..tensor import Kernel
from .request import CompileRequest, Lowered, Scheduled
from .schedule import addresses


def lower(
    request: CompileRequest,
    graph: Graph,
    scheduled: Scheduled,
    known: dict[Kernel, KnownPieces],
    frames: Mapping[str, ResidentFrame] = NO_FRAMES,
) -> Lowered:
    """Lower a segment for the machine of its search, which has the request's instructions.

    Values that nobody loads and that stay inside the segment are not stored, and have no place in
    main memory, unless the request keeps all. Those that share a place are stored all or none.

    Parameters
    ----------
    known
        Results of earlier lowerings for this machine, by kernel.
    frames
        Activations that may stay on chip between kernels.

    Raises
    ------
    UnfitError
        When an instruction needs more or longer loops than the machine has.
    CompileError
        When a scratchpad is too small, or the program too large.
    """
    lowered, loads = _lowered(request, graph, scheduled, known, frames)
    layout = scheduled.grouped.layout
    of = layout.placements.of
    needed = {of[name].whole for name in (*loads, *layout.inputs, *layout.outputs)}
    unstored = frozenset(name for name, place in of.items() if place.whole not in needed)
    if request.keep_all or unstored.isdisjoint(scheduled.bound):
        return lowered
    groups = [layer.group for layer in scheduled.layers]
    plan, bound = addresses(request, graph, layout, groups, unstored)
    scheduled = replace(scheduled, plan=plan, bound=bound)
    return _lowered(request, graph, scheduled, known, frames, unstored)[0]


def _lowered(
    request: CompileRequest,
    graph: Graph,
    scheduled: Scheduled,
    known: dict[Kernel, KnownPieces],
    frames: Mapping[str, ResidentFrame],
    unstored: Collection[str] = (),
) -> tuple[Lowered, set[str]]:
    """Lower a segment; the values that it loads come second."""
    layout = scheduled.grouped.layout
    pool = ConstantPool(base=align(scheduled.plan.size))
    constants = {
        name: pool.add(constant_bytes(graph.data(name), layout.bindings[name]))
        for name in layout.constants
    }
    dram = layout.placements.dram({**scheduled.plan.offsets, **constants})
    most = request.options.most_instructions
    lowering = Lowering(scheduled.grouped.searched, dram, pool, most, known, frames, unstored)
    ends = []
    for layer in scheduled.layers:
        for schedule in layer.schedules:
            lowering.lower(schedule)
        ends.append(len(lowering.stream))
    lowered = Lowered(scheduled, tuple(lowering.stream), tuple(ends), pool, frames)
    return lowered, lowering.loads
