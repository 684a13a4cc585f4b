"""Turn the schedules of a segment into instructions, and collect its constants."""

from ...aligned import align
from ..accelerator.constants import ConstantPool
from ..accelerator.lower_schedules import KnownPieces, Lowering
from ..tensor import Kernel
from .request import CompileRequest, Lowered, Scheduled


def lower(
    request: CompileRequest, scheduled: Scheduled, known: dict[Kernel, KnownPieces] | None
) -> Lowered:
    """Lower a segment.

    Parameters
    ----------
    known
        Results of earlier lowerings for this machine, by kernel.

    Raises
    ------
    UnfitError
        When an instruction needs more or longer loops than the machine has.
    CompileError
        When a scratchpad is too small, or the program too large.
    """
    dram = scheduled.grouped.layout.placements.dram(scheduled.plan.offsets)
    pool = ConstantPool(base=align(scheduled.plan.size))
    most = request.options.most_instructions
    lowering = Lowering(request.configuration, dram, pool, most, known)
    ends = []
    for layer in scheduled.layers:
        for schedule in layer.schedules:
            lowering.lower(schedule)
        ends.append(len(lowering.stream))
    return Lowered(scheduled, tuple(lowering.stream), tuple(ends), pool)
