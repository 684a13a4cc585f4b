"""Turn the schedules of a segment into instructions, and collect its constants."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ...aligned import align
from ...errors import CompileError
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
) -> Iterator[Lowered]:
    """Lower a segment for the machine of its search, which has the request's instructions.

    Values that nobody loads and that stay inside the segment are not stored, and have no place in
    main memory, unless the request keeps all. Those that share a place are stored all or none.

    Parameters
    ----------
    known
        Results of earlier lowerings for this machine, by kernel.
    frames
        Activations that may stay on chip between kernels.

    Yields
    ------
    The segment in which activations stay on chip, if some can, with and without more banks for
    results that stay; then the one in which none does.

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
    machine, most = scheduled.grouped.searched, request.options.most_instructions
    layers = len(scheduled.layers)

    def begin(room: bool) -> _Beginning:
        lowering = Lowering(machine, dram, pool.copy(), most, known, frames, room)
        return _Beginning(scheduled, lowering, frames)

    program = begin(room=True)
    plain, pads = program.copy(), program.lowering.scratchpads
    if frames:
        with suppress(CompileError):
            for count in range(1, layers + 1):
                if not (pads.kept or pads.made_room):
                    plain = program.copy()
                program.append(count)
            yield _without_dead_stores(request, graph, program.lowered())
            if not (pads.kept or pads.made_room):
                return
        if pads.made_room:  # which other buffers may have used better
            with suppress(CompileError):
                close = begin(room=False)
                close.append(layers)
                if close.lowering.scratchpads.kept:
                    yield _without_dead_stores(request, graph, close.lowered())
    # All programs are the same up to the first layer whose result stays.
    plain.append(layers)
    yield _without_dead_stores(request, graph, plain.lowered())


@dataclass(slots=True)
class _Beginning:
    """The first layers of a segment as instructions."""

    scheduled: Scheduled
    lowering: Lowering
    frames: Mapping[str, ResidentFrame]
    ends: list[int] = field(default_factory=list)

    def copy(self) -> "_Beginning":
        """Return a program whose further layers leave nothing on chip."""
        return _Beginning(self.scheduled, self.lowering.copy(), NO_FRAMES, self.ends.copy())

    def append(self, layers: int) -> None:
        """Lower further layers, until the program has as many as `layers`."""
        for layer in self.scheduled.layers[len(self.ends) : layers]:
            for schedule in layer.schedules:
                self.lowering.lower(schedule)
            self.ends.append(len(self.lowering.stream))

    def lowered(self) -> Lowered:
        stream, ends = tuple(self.lowering.stream), tuple(self.ends)
        frames = self.frames if self.lowering.scratchpads.kept else NO_FRAMES
        return Lowered(self.scheduled, stream, ends, self.lowering.pool, frames)


def _without_dead_stores(request: CompileRequest, graph: Graph, lowered: Lowered) -> Lowered:
    """Drop stores of values that nobody loads, and the places of these values in main memory."""
    scheduled, stream = lowered.scheduled, lowered.stream
    layout, of = scheduled.grouped.layout, scheduled.grouped.layout.placements.of
    loads = {one.loads for one in stream if one.loads}
    needed = {of[name].whole for name in (*loads, *layout.inputs, *layout.outputs)}
    unstored = frozenset(name for name, place in of.items() if place.whole not in needed)
    if request.keep_all or unstored.isdisjoint(scheduled.bound):
        return lowered
    groups = [layer.group for layer in scheduled.layers]
    plan, bound = addresses(request, graph, layout, groups, unstored)
    pool = lowered.constants.moved(align(plan.size))
    by = pool.base - lowered.constants.base
    before, after = (layout.placements.dram(each.offsets) for each in (scheduled.plan, plan))
    moves = {name: place.base - before[name].base for name, place in after.items()}
    moves |= dict.fromkeys(layout.constants, by)
    kept = [each.stores not in unstored for each in stream]
    counts = [0, *itertools.accumulate(kept)]
    return replace(
        lowered,
        scheduled=replace(scheduled, plan=plan, bound=bound),
        stream=tuple(one.moved(by, moves) for one in itertools.compress(stream, kept)),
        ends=tuple(counts[end] for end in lowered.ends),
        constants=pool,
    )
