"""Chains that the compiler fuses, with schedules taken at random instead of the best.

Small scratchpads make rings wrap, rows and channels be cut and weights be loaded again; what really
occurred is counted, so that a test cannot pass because nothing was fused.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tilewright.compiler import te
from tilewright.compiler.accelerator.search import (
    Candidate,
    TileSearch,
    choose_candidate,
    legal_candidates,
)
from tilewright.compiler.accelerator.tile_plan import TilePlan
from tilewright.compiler.accelerator.weights import stored_bytes
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.tensor import Kernel
from tilewright.errors import CompileError
from tilewright.flows.verify.fuzz.fuzz_runs import FuzzRunner
from tilewright.flows.verify.fuzz.graph_specs import NodeSpec, Number, Shape, Sketch, realise
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.sim.native import NATIVE_FLAGS
from tilewright.sim.native_functional import NativeMachine
from tilewright.sim.timing import ExactMeasure

PLAIN: dict[str, Number] = {
    "kernel": (1, 1), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1,
    "low": -128, "high": 127, "zero_point_x": 0, "zero_point_y": 0, "gain": 0, "sparse": 0,
}  # fmt: skip
ADD: dict[str, Number] = {
    "multipliers": (3, 2), "constant": 5, "gain": 1, "zero_point_y": -3, "low": -128, "high": 120,
}  # fmt: skip
MEMORIES = {
    "roomy": {},
    "small": {"act_banks": 8, "act_depth": 64, "wgt_depth": 128, "acc_depth": 64},
    "least": {"act_banks": 8, "act_depth": 32, "wgt_depth": 64, "acc_depth": 32, "param_depth": 8},
}
SHAPES = ((24, 3), (17, 1), (40, 2), (1, 24), (9, 9), (13, 6), (2, 2), (1, 1))
"""Heights and widths."""

WINDOWS = ((3, 3), (3, 3), (5, 5), (1, 7), (7, 1), (2, 2), (4, 3))


class Drawing:
    """Steps after one another; `values` counts inputs and results."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        height, width = chance.choice(SHAPES)
        channels = chance.choice((1, 3, 5, 8, 13, 16, 21))
        self.inputs: list[Shape] = [(chance.choice((1, 1, 2)), height, width, channels)]
        self.steps: list[NodeSpec] = []

    def sketch(self) -> Sketch:
        """What has been drawn, its last value shown."""
        last = len(self.inputs) + len(self.steps) - 1
        return Sketch(tuple(self.inputs), tuple(self.steps), (last,))

    def then(self, kind: str, *others: int, **numbers: Number) -> None:
        """A step that reads the last value, or the first input where there is none."""
        last = len(self.inputs) + len(self.steps) - 1 if self.steps else 0
        self.steps.append(NodeSpec(kind, (last, *others), numbers))

    def conv(self, channels: int, groups: Number = 1, **window: Number) -> None:
        """A convolution, or a depthwise one where `groups` is 0."""
        points = {name: self.chance.randint(-128, 127) for name in ("zero_point_x", "zero_point_y")}
        numbers = {**PLAIN, **points, "channels": channels, "groups": groups, **window}
        self.then("conv", seed=self.chance.randrange(1 << 20), **numbers)

    def window(self, *, same: bool = False) -> dict[str, Number]:
        """A window with padding at any side; of the same size as its image if asked for."""
        chance = self.chance
        kernel, dilation = chance.choice(WINDOWS), chance.choice((1, 1, 1, 2))
        dilations = (dilation, dilation)
        reach = [dilation * (extent - 1) for extent in kernel]
        before = [chance.randint(0, extent) for extent in reach]
        after = [whole - first for whole, first in zip(reach, before, strict=True)]
        strides = (1, 1)
        if not same:
            strides = chance.choice(((1, 1), (2, 2), (3, 1), (4, 2)))
            after = [chance.choice((0, extent)) for extent in after]
        pads = (*before, *after)
        return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads}

    def pool(self) -> None:
        """A maximum or an average, at most its image large."""
        window = {**self.window(), "kernel": self.chance.choice(((2, 2), (3, 3), (1, 2), (3, 1)))}
        average = self.chance.random() < 0.5
        window["pads"] = tuple(self.chance.randint(0, 1) for _ in range(4))
        if average:
            self.then("average", **{**PLAIN, **window, "dilations": (1, 1), "constant": 7})
        else:
            self.then("maximum", **{**PLAIN, **window})


def bottleneck(draw: Drawing) -> None:
    """Expand, depthwise, project, and the input added."""
    channels = draw.inputs[0][3]
    draw.conv(draw.chance.choice((4, 9, 24, 40)))
    draw.conv(1, 0, **draw.window(same=True))
    draw.conv(channels)
    draw.then("add", 0, **ADD)


def thinned(draw: Drawing) -> None:
    """A depthwise convolution with a stride between two pointwise ones."""
    draw.conv(draw.chance.choice((4, 9, 24)))
    draw.conv(1, 0, **draw.window())
    draw.conv(draw.chance.choice((3, 8, 17)))


def depthwise_twice(draw: Drawing) -> None:
    """Windows over rows that are themselves made window by window."""
    draw.conv(1, 0, **draw.window(same=True))
    draw.conv(1, 0, **draw.window())
    draw.conv(draw.chance.choice((3, 8, 17)))


def pooled(draw: Drawing) -> None:
    """A convolution and a pooling."""
    draw.conv(draw.chance.choice((4, 9, 24)), **draw.window())
    draw.pool()


def added_and_pooled(draw: Drawing) -> None:
    """A convolution, an addition from memory, a table and a pooling."""
    n, height, width, _ = draw.inputs[0]
    channels = draw.chance.choice((4, 9, 24))
    draw.inputs.append((n, height, width, channels))
    draw.conv(channels, **draw.window(same=True))
    draw.then("add", 1, **ADD)
    draw.then("table", seed=draw.chance.randrange(1 << 20))
    draw.pool()


def first_layer(draw: Drawing) -> None:
    """An image of few channels, a convolution that gathers, and a depthwise one."""
    n, height, width, _ = draw.inputs[0]
    draw.inputs = [(n, height, width, draw.chance.randint(1, 8))]
    draw.conv(draw.chance.choice((8, 16, 24)), **draw.window())
    draw.conv(1, 0, **draw.window(same=True))


CHAINS: tuple[Callable[[Drawing], None], ...] = (
    bottleneck, thinned, depthwise_twice, pooled, added_and_pooled, first_layer,
)  # fmt: skip


def chains(seeds: range) -> Iterator[tuple[int, Sketch]]:
    """Random chains that are graphs."""
    for seed in seeds:
        draw = Drawing(random.Random(seed))
        draw.chance.choice(CHAINS)(draw)
        sketch = draw.sketch()
        try:
            realise(sketch)
        except CompileError:  # a window larger than its image
            continue
        yield seed, sketch


class Seen(Counter[str]):
    """Counts what the plans of lowered kernels have in them."""

    def add(self, plan: TilePlan, configuration: Configuration) -> None:
        """Count one plan."""
        self["fused"] += len(plan.phases) > 1
        self["channels outer"] += plan.channels_outer
        for ring in plan.rings.values():
            self["ring"] += 1
            self["wrap"] += ring.rows > ring.ring
            self["wrap twice"] += ring.rows > 2 * ring.ring
            self["overhang"] += ring.overhang > 0
            self["no rows ahead"] += ring.ring < min(ring.rows, ring.span + ring.advance)
            self["stride beyond window"] += ring.advance > ring.span
            self["parts of channels"] += bool(ring.narrow)
        for phase, tile in zip(plan.phases, plan.tiles, strict=True):
            window, columns, channels = phase.window, phase.pixels[2], phase.channels[-1]
            self["groups of taps"] += bool(
                window and window.columns.groups(configuration.depthwise_taps)[0] > 1
            )
            self["gathered"] += any(plan.kernel.tensors[r.tensor].patches for r in phase.streams)
            self["batch"] += phase.extents[phase.pixels[0]] > 1
            self["images together"] += tile[phase.pixels[0]] > 1
            self["first rows of tiles"] += (
                window is not None
                and stored_bytes(window, configuration) < configuration.tile_bytes
            )
            self["rows cut"] += tile[columns] < phase.extents[columns]
            self["channels cut"] += tile[channels] < phase.extents[channels]
            self["split sum"] += bool(
                phase.reduced and tile[phase.reduced] < phase.reductions[phase.reduced]
            )


@pytest.fixture
def seen(monkeypatch) -> Seen:
    """Schedules are drawn at random, what can be fused is fused, and what is lowered is counted."""
    seen, chance = Seen(), random.Random(0)
    make = Candidate.schedule

    def draw_schedule(kernel: Kernel, configuration: Configuration, *_) -> Candidate:
        most, depth = chance.choice((1, 10, 100)), chance.choice((0, 0, 1, 2, 3))
        legal = tuple(itertools.islice(legal_candidates(kernel, configuration, depth), most))
        if chance.random() < 0.2:
            search = TileSearch(kernel, configuration, depth)
            legal = (*search.just_in_time(most),) or legal
        if configuration.window_lines > 1 and chance.random() < 0.5:
            every = legal_candidates(kernel, configuration, depth)
            parts = (one for one in every if one.plan(kernel, configuration).has_narrow_rings)
            legal = (*itertools.islice(parts, 3),) or legal
        drawn = chance.choice(legal or (choose_candidate(kernel, configuration),))
        return replace(drawn, estimated_cycles=0)

    def make_and_count(
        self: Candidate, kernel: Kernel, configuration: Configuration, *_
    ) -> te.Schedule:
        seen.add(self.plan(kernel, configuration), configuration)
        return make(self, kernel, configuration)

    monkeypatch.setattr("tilewright.compiler.scheduling.fusion.choose_candidate", draw_schedule)
    monkeypatch.setattr(Candidate, "schedule", make_and_count)
    # Nearly every machine's simulator is compiled for these tests alone, and runs for a moment.
    flags = tuple("-O1" if flag == "-O3" else flag for flag in NATIVE_FLAGS)
    monkeypatch.setattr(NativeMachine, "flags", flags)
    return seen


CONFIGURATIONS = tuple(
    PRESETS[name].replace(
        name=f"{name}, {memory}, {taps} taps", depthwise_taps=min(taps, PRESETS[name].lanes_in),
        **MEMORIES[memory],
    )
    for name in ("4x4", "8x8", "8x16", "16x8", "16x16")
    for memory, taps in (
        ("roomy", 3), ("small", 0), ("small", 1), ("small", 3), ("least", 2), ("least", 5),
    )
)  # fmt: skip
CONFIGURATIONS += tuple(
    one.replace(name=f"{one.name}, lines", depthwise_lines="two")
    for one in CONFIGURATIONS
    if 1 <= one.depthwise_taps <= one.lanes_in // 3
)


def run_chains(seeds: range, device: str = "sim") -> int:
    """Compile and run chains on configurations in turn; how many were equal."""
    equal = 0
    with FuzzRunner() as run:
        for seed, sketch in chains(seeds):
            configuration = CONFIGURATIONS[seed % len(CONFIGURATIONS)]
            outcome = run(realise(sketch), configuration, seed, device)
            assert outcome.kind != "failed", f"{seed} on {configuration.name}: {outcome.text}"
            if outcome.kind == "refused":
                assert "no tile fits" in outcome.text, f"{seed}: {outcome.text}"
            equal += outcome.kind == "equal"
    return equal


EXPECTED = (
    "fused", "channels outer", "ring", "wrap", "wrap twice", "overhang", "no rows ahead",
    "groups of taps", "gathered", "batch", "images together", "first rows of tiles", "rows cut",
    "channels cut", "split sum", "stride beyond window", "parts of channels",
)  # fmt: skip


def test_chains_keep_their_meaning_by_the_definition_of_the_instructions(seen):
    assert run_chains(range(1000, 1020), "reference") > 10
    assert seen["wrap"] > 1


@pytest.mark.slow
def test_many_chains_keep_their_meaning_whatever_the_schedule(seen):
    assert run_chains(range(2000, 2600)) > 300
    assert [name for name in EXPECTED if seen[name] < 10] == [], seen


def every_schedule(sketch: Sketch, configuration: Configuration, monkeypatch) -> Iterator[TilePlan]:
    """Run a chain with each of the first legal schedules of the kernel that all of it becomes."""
    plans: list[TilePlan] = []
    whole = len(sketch.steps)
    for place in range(0, 60, 3):
        plans.clear()

        def nth(kernel: Kernel, machine: Configuration, *_, place: int = place) -> Candidate:
            first = place if kernel.name.count(" + ") == whole - 1 else 0
            legal = tuple(itertools.islice(legal_candidates(kernel, machine), first + 1))
            plans.append(legal[-1].plan(kernel, machine))
            return replace(legal[-1], estimated_cycles=0)

        monkeypatch.setattr("tilewright.compiler.scheduling.fusion.choose_candidate", nth)
        with FuzzRunner() as run:
            outcome = run(realise(sketch), configuration, 1, "sim")
        assert outcome.kind == "equal", f"schedule {place}: {outcome.text}"
        yield plans[-1]


def test_tiles_begin_where_the_ring_that_they_read_expects_them(monkeypatch):
    """A pool asks for one row less in the beginning; the ring before the table is read by twos."""
    draw = Drawing(random.Random(1))
    draw.inputs = [(1, 15, 2, 4)]
    draw.conv(4)
    draw.then("table", seed=5)
    draw.then("maximum", **{**PLAIN, "kernel": (3, 3), "pads": (1, 1, 1, 1)})
    machine = PRESETS["4x4"].replace(name="banks", act_banks=8, act_depth=64)
    plans = list(every_schedule(draw.sketch(), machine, monkeypatch))
    assert any(ring.advance > 1 and not ring.whole for p in plans for ring in p.rings.values())


def test_channels_are_the_outer_loop_only_where_rings_begin_anew_for_them(monkeypatch):
    """The addition reads a ring, tile by tile in the order of the table behind it."""
    draw = Drawing(random.Random(2))
    draw.inputs = [(1, 9, 9, 4), (1, 9, 9, 8)]
    draw.conv(8, kernel=(1, 2), pads=(0, 1, 0, 0))
    draw.then("add", 1, **ADD)
    draw.then("table", seed=5)
    machine = PRESETS["4x4"].replace(
        name="banks", act_banks=8, act_depth=64, depthwise_taps=1, depthwise_lines="two"
    )
    plans = list(every_schedule(draw.sketch(), machine, monkeypatch))
    assert any(plan.rings and not plan.channels_outer for plan in plans)
    rings = [ring for plan in plans if plan.channels_outer for ring in plan.rings.values()]
    assert any(ring.narrow and not ring.whole for ring in rings)
    assert all(ring.whole or ring.narrow for ring in rings)


def test_rings_without_rows_ahead_make_room_for_larger_tiles(monkeypatch):
    draw = Drawing(random.Random(0))
    draw.inputs = [(1, 28, 28, 72)]
    draw.conv(1, 0, kernel=(3, 3), pads=(1, 1, 1, 1))
    draw.conv(16)
    graph = realise(draw.sketch())
    machine = PRESETS["16x16"].replace(name="shallow", act_depth=512, depthwise_lines="two")
    with FuzzRunner() as run:
        assert run(graph, machine, 1, "sim").kind == "equal"
    cycles = [compile_module(graph, machine, measure=ExactMeasure()).report["cycles"]]
    monkeypatch.setattr(TileSearch, "just_in_time", lambda *_: [])
    cycles.append(compile_module(graph, machine, measure=ExactMeasure()).report["cycles"])
    assert cycles[0] < cycles[1]
