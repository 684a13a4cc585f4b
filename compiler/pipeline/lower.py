"""Turn the schedules of a segment into instructions, and collect its constants."""

from collections.abc import Mapping

from ...aligned import align
from ...errors import CompileError
from ..accelerator.constant_pool import ConstantPool
from ..accelerator.lower_schedules import KnownPieces, Lowering
from ..accelerator.residents import NO_FRAMES, ResidentFrame
from ..graph import Graph
from ..main_memory.segment_layout import constant_bytes
from ..tensor import Kernel
from .request import CompileRequest, Lowered, Scheduled, ScheduledLayer


def lower(
    request: CompileRequest,
    graph: Graph,
    scheduled: Scheduled,
    known: dict[Kernel, KnownPieces],
    frames: Mapping[str, ResidentFrame] = NO_FRAMES,
) -> list[Lowered]:
    """Lower a segment for the machine of its search, which has the request's instructions.

    Parameters
    ----------
    known
        Results of earlier lowerings for this machine, by kernel.
    frames
        Activations that may stay on chip between kernels.

    Returns
    -------
    The segment without activations that stay, and, if some of them can, the one in which they do.

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
    ends: list[int] = []
    plain, found = (lowering, ends), []
    try:
        for layer in scheduled.layers:
            if frames and not lowering.scratchpads.kept:
                plain = lowering.copy(), ends.copy()
            _append(layer, lowering, ends)
        found = [_lowered(scheduled, lowering, ends)]
        if not lowering.scratchpads.kept:
            return found
    except CompileError:
        if not frames:
            raise
    # Both programs are the same up to the first layer whose result stays.
    for layer in scheduled.layers[len(plain[1]) :]:
        _append(layer, *plain)
    return [_lowered(scheduled, *plain), *found]


def _append(layer: ScheduledLayer, lowering: Lowering, ends: list[int]) -> None:
    for schedule in layer.schedules:
        lowering.lower(schedule)
    ends.append(len(lowering.stream))


def _lowered(scheduled: Scheduled, lowering: Lowering, ends: list[int]) -> Lowered:
    return Lowered(scheduled, tuple(lowering.stream), tuple(ends), lowering.pool)
