"""The default schedule of a kernel on the accelerator: schedule steps for given tile sizes.

The search chooses a few numbers: the extents of the splits, the order of the outer loops, and how
far rows run ahead. The kernel determines the rest. Each operand is copied to the scratchpad that
its instruction reads. A product and its finish are computed tile by tile inside the loops of the
output. Data between two phases stay in ACT, as tiles or as a ring of rows.
"""

from collections.abc import Iterator

from ...isa.configuration import Memory
from ..te.loop_steps import Pipeline, Reorder, Split
from ..te.stage_steps import CacheRead, CacheWrite, ComputeAt, SetScope, Tensorise
from ..te.steps import Step
from ..te.storage_steps import Arena, Precede, Roll
from .phases import Phase, Tile
from .tile_plan import Tiling, passes_tiles, rows_ahead

ACT, WGT, ACC, PARAM = (
    memory.name for memory in (Memory.ACT, Memory.WGT, Memory.ACC, Memory.PARAM)
)


def default_steps(tiling: Tiling) -> tuple[Step, ...]:
    """The schedule of a kernel."""
    return tuple(_Writer(tiling).steps())


class _Writer:
    def __init__(self, tiling: Tiling) -> None:
        self.tiling, self.phases, self.tiles = tiling, tiling.phases, tiling.tiles
        self.output = tiling.kernel.output.name
        self.scope = ACC if self.phases[-1].is_bare else ACT
        """The scratchpad from which the results are stored."""
        self.early = any(one.early for one in self.phases[-1].partials)
        """All channels of a tile of pixels share sums, and so follow each other."""
        self.made = {phase.name for phase in self.phases}
        self.rolling = {
            phase.name
            for index, phase in enumerate(self.phases[:-1])
            if not passes_tiles(self.phases, index)
        }
        self.loops: dict[str, str] = {}
        """For each phase, the loop in which its inputs are computed."""
        self.outer: dict[str, str] = {}
        """For each phase, the loop around that of its channels."""

    def steps(self) -> Iterator[Step]:
        """All steps: scopes, loops, `compute_at`, and instructions."""
        yield Arena()
        yield CacheWrite(self.output, self.scope)
        for phase in self.phases:
            yield from self.places(phase)
        yield from self.output_loops()
        for index, phase in enumerate(self.phases):
            yield from self.phase_loops(index, phase)
        for phase in reversed(self.phases):
            yield from self.where(phase)
        for phase in reversed(self.phases):
            if phase.name in self.rolling:
                yield self.roll(phase)
        for phase, tile in zip(self.phases, self.tiles, strict=True):
            yield from self.instructions(phase, tile)

    def stage(self, phase: Phase) -> str:
        """The stage that computes the result of a phase."""
        return f"{self.output}.{self.scope}" if phase.name == self.output else phase.name

    def product(self, phase: Phase) -> str:
        """The stage that computes the sums of a phase."""
        assert phase.product is not None
        return self.stage(phase) if phase.is_bare else phase.product.output.name

    def places(self, phase: Phase) -> Iterator[Step]:
        """The scratchpads of a phase's operands and of its result."""
        stage = self.stage(phase)
        if phase.product is not None:
            product = self.product(phase)
            if not phase.is_bare:
                yield SetScope(product, ACC)
            assert phase.weights is not None
            yield CacheRead(phase.weights.tensor, WGT, (product,))
            early = tuple(one.name for one in phase.partials if one.weights)
            for read in phase.streams:
                if read.tensor not in self.made:
                    yield CacheRead(read.tensor, ACT, (*early, product))
        for one in phase.partials:
            yield SetScope(one.name, ACC if one.compute.output.dtype == "int32" else ACT)
            if one.weights is not None:
                yield CacheRead(one.weights.tensor, WGT, (one.name,))
            for read in one.parameters:
                yield CacheRead(read.tensor, PARAM, (one.name,))
        if phase.name != self.output:
            yield SetScope(stage, ACT)
        loaded: dict[str, tuple[str, ...]] = {}
        vector = [(one.name, one.operands) for one in phase.partials if not one.weights]
        readers = *vector, (stage, phase.operands)
        for name, operands in readers:
            for read in operands:
                if read.tensor not in self.made:
                    loaded[read.tensor] = (*loaded.get(read.tensor, ()), name)
        for tensor, names in loaded.items():
            yield CacheRead(tensor, ACT, names)
        for read, memory in phase.constants:
            yield CacheRead(read.tensor, memory.name, (stage,))
        # Data from main memory come first, so that their LOAD does not queue behind others.
        for other in (read for read in phase.operands if read.tensor in self.made):
            for tensor in loaded:
                yield Precede(f"{tensor}.{ACT}", other.tensor)

    def output_loops(self) -> Iterator[Step]:
        """The outer loops over output tiles, and the copy that stores a tile."""
        last, tile = self.phases[-1], self.tiles[-1]
        n, y, x = last.pixels
        cut = self.cut_channels(last)
        outer, inner = (n,), ()
        if tile[n] > 1:
            yield Split(self.output, n, tile[n])
            outer, inner = (f"{n}.o",), (f"{n}.i",)
        yield Split(self.output, y, tile[y])
        yield Split(self.output, x, tile[x])
        pixels = (*outer, f"{y}.o", f"{x}.o", *inner, f"{y}.i", f"{x}.i")
        channels: tuple[str, ...] = last.channels
        order = (*pixels, *channels)
        if self.tiling.channels_outer:
            yield Split(self.output, cut, tile[cut])
            inside = (f"{axis}.i" if axis == cut else axis for axis in channels)
            tiles = pixels.index(f"{x}.o") + 1 if self.early else 0
            order = (*pixels[:tiles], f"{cut}.o", *pixels[tiles:], *inside)
        yield Reorder(self.output, order)
        if self.tiling.depth:
            yield Pipeline(self.output, order[0], self.tiling.depth)

    @staticmethod
    def cut_channels(phase: Phase) -> str:
        """The channel axis that is split into tiles."""
        *outer, inner = phase.channels
        return next((axis for axis in outer if phase.extents[axis] > 1), inner)

    def phase_loops(self, index: int, phase: Phase) -> Iterator[Step]:
        """A phase's loops around one instruction per stage."""
        stage, tile, (n, y, x) = self.stage(phase), self.tiles[index], phase.pixels
        cut = self.cut_channels(phase)
        channels = tuple(f"{axis}.i" if axis == cut else axis for axis in phase.channels)
        reductions = tuple(axis.name for axis in phase.finish.reductions)
        if phase.is_bare:
            yield from self.bare_loops(phase, tile)
            return
        outer, pixels = n, (y, x)
        if tile[n] > 1:
            yield Split(stage, n, tile[n])
            outer, pixels = f"{n}.o", (f"{n}.i", y, x)
        self.outer[stage] = f"{y}.o" if phase.name in self.rolling else outer
        if phase.name == self.output:
            if self.tiling.channels_outer:
                self.loops[stage] = outer
            else:
                yield Split(stage, cut, tile[cut])
                yield Reorder(stage, (outer, f"{cut}.o", *pixels, *channels, *reductions))
                self.loops[stage] = f"{cut}.o"
        elif phase.name not in self.rolling:
            self.loops[stage] = outer
        else:
            yield Split(stage, y, tile[y])
            yield Split(stage, cut, tile[cut])
            inside = (n, f"{y}.i", x, *channels, *reductions)
            yield Reorder(stage, (f"{y}.o", f"{cut}.o", *inside))
            self.loops[stage] = f"{cut}.o"
        if phase.reduced and phase.product is not None and self.may_cut(phase):
            product = phase.product
            yield Split(product.output.name, phase.reduced, tile[phase.reduced])
            axes = [axis.name for axis in (*product.axes, *product.reductions)]
            inner = [f"{axis}.i" if axis == phase.reduced else axis for axis in axes]
            yield Reorder(product.output.name, (f"{phase.reduced}.o", *inner))
            self.loops[product.output.name] = f"{phase.reduced}.o"

    def bare_loops(self, phase: Phase, tile: Tile) -> Iterator[Step]:
        """The loops of a product without a finish; its tiles of channels are stored one by one."""
        assert phase.product is not None
        stage, (n, _, _) = self.stage(phase), phase.pixels
        outer, inner = [n], [axis.name for axis in phase.product.axes[1:]]
        if tile[n] > 1:
            yield Split(stage, n, tile[n])
            outer, inner = [f"{n}.o"], [f"{n}.i", *inner]
        names = [axis.name for axis in phase.product.reductions]
        if phase.reduced and self.may_cut(phase):
            yield Split(stage, phase.reduced, tile[phase.reduced])
            outer.append(f"{phase.reduced}.o")
            names = [f"{axis}.i" if axis == phase.reduced else axis for axis in names]
        yield Reorder(stage, (*outer, *inner, *names))
        self.loops[stage] = outer[-1]

    def may_cut(self, phase: Phase) -> bool:
        """Whether a product's reduction may be split into chunks; windows are gathered whole."""
        patches = (self.tiling.kernel.tensors[read.tensor].patches for read in phase.streams)
        return all(one is None or one.whole_pixels for one in patches)

    def where(self, phase: Phase) -> Iterator[Step]:
        """The loop in which a phase and its inputs are computed."""
        stage = self.stage(phase)
        loop = self.loops[stage]
        early = stage, self.outer.get(stage, "")
        if phase.name == self.output:
            around = pixels = self.output, f"{phase.pixels[2]}.o"
            if self.early and self.tiling.channels_outer:
                early, around = pixels, (self.output, f"{self.cut_channels(phase)}.o")
            yield ComputeAt(stage, *around)
        else:
            reader = next(
                other
                for other in self.phases
                if any(read.tensor == phase.name for read in other.activations)
            )
            around = self.stage(reader)
            yield ComputeAt(stage, around, self.loops[around])
        if phase.product is not None:
            product = self.product(phase)
            if not phase.is_bare:
                yield ComputeAt(product, stage, loop)
            assert phase.weights is not None
            around = (product, self.loops[product]) if product in self.loops else (stage, loop)
            yield ComputeAt(f"{phase.weights.tensor}.{WGT}", *around)
            if any(one.weights for one in phase.partials):
                around = early
            for read in phase.streams:
                if read.tensor not in self.made:
                    yield ComputeAt(f"{read.tensor}.{ACT}", *around)
        for one in phase.partials:
            around = early if one.early else (stage, loop)
            yield ComputeAt(one.name, *around)
            for read, scope in (*((r, PARAM) for r in one.parameters), (one.weights, WGT)):
                if read is not None:
                    yield ComputeAt(f"{read.tensor}.{scope}", *around)
        copies = [(r, Memory.ACT) for r in phase.vector_reads if r.tensor not in self.made]
        for read, memory in (*copies, *phase.constants):
            yield ComputeAt(f"{read.tensor}.{memory.name}", stage, loop)

    def roll(self, phase: Phase) -> Step:
        """The ring of rows that passes a phase's result to the next phase."""
        reader, read = next(
            (place, read)
            for place, other in enumerate(self.phases)
            for read in other.activations
            if read.tensor == phase.name
        )
        other, tile = self.phases[reader], self.tiles[reader]
        return Roll(phase.name, rows_ahead(read, other, tile) if self.tiling.ahead else 0)

    def instructions(self, phase: Phase, tile: Tile) -> Iterator[Step]:
        """The outermost loop of the instruction."""
        n, y, _ = phase.pixels
        if phase.product is not None and not phase.is_bare:
            yield Tensorise(self.product(phase), n)
        for one in phase.partials:
            yield Tensorise(one.name, one.compute.axes[0].name)
        outermost = n if phase.name in self.rolling else f"{n}.i" if tile[n] > 1 else y
        yield Tensorise(self.stage(phase), outermost)
