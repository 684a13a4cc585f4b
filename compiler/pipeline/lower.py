"""Turn the schedules of a segment into instructions, and collect its constants."""

from collections.abc import Mapping

from ...aligned import align
from ..accelerator.constant_pool import ConstantPool
from ..accelerator.lower_schedules import KnownPieces, Lowering
from ..accelerator.residents import NO_FRAMES, ResidentFrame
from ..graph import Graph
from ..main_memory.segment_layout import constant_bytes
from ..tensor import Kernel
from .request import CompileRequest, Lowered, Scheduled


def lower(
    request: CompileRequest,
    graph: Graph,
    scheduled: Scheduled,
    known: dict[Kernel, KnownPieces],
    frames: Mapping[str, ResidentFrame] = NO_FRAMES,
) -> Lowered:
    """Lower a segment for the machine of its search, which has the request's instructions.

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
    layout = scheduled.grouped.layout
    pool = ConstantPool(base=align(scheduled.plan.size))
    constants = {
        name: pool.add(constant_bytes(graph.data(name), layout.bindings[name]))
        for name in layout.constants
    }
    dram = layout.placements.dram({**scheduled.plan.offsets, **constants})
    most = request.options.most_instructions
    lowering = Lowering(scheduled.grouped.searched, dram, pool, most, known, frames)
    ends = []
    for layer in scheduled.layers:
        for schedule in layer.schedules:
            lowering.lower(schedule)
        ends.append(len(lowering.stream))
    return Lowered(scheduled, tuple(lowering.stream), tuple(ends), pool)
