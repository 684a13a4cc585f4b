"""Activations that stay in ACT between kernels: equal results, and fewer transfers."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.arena import Piece
from tilewright.compiler.accelerator.lower_schedules import Lowering
from tilewright.compiler.accelerator.residents import ResidentFrame, exchanged
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate
from tilewright.compiler.module import Module
from tilewright.compiler.options import Options
from tilewright.compiler.pipeline import compile as compile_stages
from tilewright.compiler.pipeline import compile_module
from tilewright.errors import CompileError
from tilewright.flows.verify.fuzz.graph_specs import NodeSpec, Number, realise
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.instructions import Load, Store
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session, kept_layers
from tilewright.sim.timing import ExactMeasure, time_program

from .branching_networks import cross_stage, dense_block, fire, pyramid, unet
from .test_chains import ADD, PLAIN, Drawing

SMALL = {"act_depth": 64, "acc_depth": 64, "wgt_depth": 128}


@pytest.fixture
def always_stay(monkeypatch):
    """Leave on chip whatever may stay, however slow; counts the programs in which something did."""
    through_memory, found = set[int](), []
    lower, link = compile_stages.lower, compile_stages.link

    def lower_with(request, graph, scheduled, known, frames):
        *staying, plain = lower(request, graph, scheduled, known, frames)
        through_memory.add(id(plain))
        found.extend((plain, *staying))
        return [*staying, plain]

    def link_with(request, lowered, measure):
        linked = link(request, lowered, measure)
        return replace(linked, cycles=linked.cycles + (id(lowered) in through_memory) * (1 << 40))

    monkeypatch.setattr(compile_stages, "lower", lower_with)
    monkeypatch.setattr(compile_stages, "link", link_with)
    return found


def count(module: Module, family: type[Load] | type[Store]) -> int:
    """Instructions of a family in all programs."""
    return sum(isinstance(one, family) for part in module.segments for one in part.program)


def check(graph, configuration: Configuration, keep_all: bool = False) -> Module:
    """Compile and run; the results are those of the definition."""
    module = compile_module(
        graph, configuration, measure=ExactMeasure(), lean=True, keep_all=keep_all
    )
    generator = np.random.default_rng(1)
    inputs = {
        value.name: generator.integers(-128, 128, value.type.shape).astype(value.type.dtype)
        for value in graph.inputs
    }
    with open_device("sim", configuration) as device:
        outcome = Session(module, device).run(inputs)
    expected = evaluate(graph, inputs)
    for name, ours in outcome.outputs.items():
        np.testing.assert_array_equal(ours, expected[name])
    return module


def drawn(seed: int):
    """A chain with windows of all borders, pools, and the addition of an earlier value."""
    draw = Drawing(random.Random(seed))
    for _ in range(draw.chance.randint(2, 5)):
        if draw.chance.random() < 0.3:
            draw.pool()
        else:
            channels = draw.chance.choice((8, 16, 24))
            draw.conv(channels, draw.chance.choice((0, 1, 1)), **draw.window(same=True))
    if draw.chance.random() < 0.5:
        earlier = len(draw.inputs) + len(draw.steps) - 1
        channels = 16
        draw.conv(channels, **draw.window(same=True))
        draw.conv(channels, **draw.window(same=True))
        draw.then("add", earlier + 1, **ADD)
    return realise(draw.sketch())


def check_chains(always_stay, seeds: range) -> int:
    """Check chains; in how many of them an activation stayed on chip."""
    stayed = 0
    for seed in seeds:
        configuration = PRESETS[("16x16", "4x4", "8x16")[seed % 3]]
        if seed % 2:
            configuration = replace(configuration, name="small", **SMALL)
        always_stay.clear()
        try:
            check(drawn(seed), configuration, keep_all=seed % 4 == 0)
        except CompileError:
            continue  # a layer that does not fit
        # A program with values on chip has fewer LOADs than the one through main memory.
        stayed += len({len(one.stream) for one in always_stay}) > 1
    return stayed


def test_chains_keep_their_meaning(always_stay):
    assert check_chains(always_stay, range(8)) > 2


@pytest.mark.slow
def test_many_chains_keep_their_meaning(always_stay):
    assert check_chains(always_stay, range(100, 200)) > 30


@pytest.mark.parametrize("network", [cross_stage, dense_block, fire, pyramid, unet])
def test_values_with_several_readers_keep_their_meaning(network, always_stay):
    """Parts of a concatenation are stored for its reader, even where another reader has them."""
    check(import_model(network(8).SerializeToString()), PRESETS["8x8"])
    stayed = [emitted for one in always_stay for emitted in one.stream if emitted.borders]
    assert stayed or network not in (pyramid, unet)


@pytest.fixture(scope="module")
def windows():
    """Five convolutions with a border, which are not fused with each other."""
    draw = Drawing(random.Random(1))
    draw.inputs = [(1, 6, 6, 32)]
    for _ in range(5):
        draw.conv(32, kernel=(3, 3), pads=(1, 1, 1, 1))
    return realise(draw.sketch())


def test_values_on_chip_are_neither_loaded_nor_stored(windows, monkeypatch):
    configuration = PRESETS["16x16"]
    stays = compile_module(windows, configuration, measure=ExactMeasure())
    kept = compile_module(windows, configuration, measure=ExactMeasure(), keep_all=True)
    (part,), (whole,) = stays.segments, kept.segments
    assert len(part.layers) == 5
    assert [one.name for one in kept_layers(part)] == [part.layers[-1].output]
    assert [one.name for one in kept_layers(whole)] == [each.output for each in whole.layers]
    for layer in part.layers:
        assert all(part.notes[place].startswith(f"{layer.name}: ") for place in layer.places)
    assert count(stays, Store) < count(kept, Store)
    assert part.data_bytes < whole.data_bytes
    assert stays.report["cycles"] < kept.report["cycles"]
    assert stays.report["bound"] <= stays.report["cycles"]
    monkeypatch.setattr(compile_stages, "frames_of", lambda programs: {})
    apart = compile_module(windows, configuration, measure=ExactMeasure())
    assert count(stays, Load) < count(apart, Load)
    assert count(kept, Store) == count(apart, Store)


def branches(*steps: tuple[str, tuple[int, ...]], shown: Sequence[int] = ()):
    """A graph of convolutions with a border, and of steps between them, which read these values.

    Value 0 is the input; the last one is shown, and those in `shown`.
    """
    draw = Drawing(random.Random(1))
    draw.inputs = [(1, 6, 6, 32)]
    border = {**PLAIN, "channels": 32, "kernel": (3, 3), "pads": (1, 1, 1, 1)}
    numbers: dict[str, dict[str, Number]] = {
        "conv": border, "add": ADD, "maximum": border, "join": {"axis": 3}, "host": {"way": 1},
        "constant": {},
    }  # fmt: skip
    for place, (kind, sources) in enumerate(steps):
        draw.steps.append(NodeSpec(kind, sources, {"seed": place, **numbers[kind]}))
    return realise(replace(draw.sketch(), outputs=(*shown, len(steps))))


CHAIN = ("conv", (0,)), ("conv", (1,)), ("conv", (2,)), ("conv", (3,))

CASES = {
    "chain": (CHAIN, (), [False, False, False, True]),
    "leaves and is read": (CHAIN, (2,), [False, True, False, True]),
    "read twice": (
        (*CHAIN[:2], ("conv", (1,)), ("add", (3, 2)), ("conv", (4,))), (),
        [False, False, False, True],
    ),
    "residual": (
        (*CHAIN[:3], ("add", (3, 1)), ("conv", (4,))), (), [False, False, False, True]
    ),
    "in a larger value": (
        (*CHAIN[:2], ("join", (1, 2)), ("conv", (3,))), (), [True, True, True, True]
    ),
    "another border": (
        (*CHAIN[:2], ("maximum", (1,)), ("add", (3, 2)), ("conv", (4,))), (),
        [True, False, False, True],
    ),
    "with a constant": (
        (*CHAIN[:2], ("constant", (2,)), ("add", (2, 3)), ("conv", (4,)), ("conv", (5,))), (),
        [False, False, False, True],
    ),
    "host between": (
        (*CHAIN[:2], ("host", (2,)), ("conv", (3,)), ("conv", (4,))), (),
        [False, True, False, True],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_only_values_that_are_read_in_main_memory_are_stored(case, always_stay):
    steps, shown, expected = CASES[case]
    graph = branches(*steps, shown=shown)
    module = check(graph, PRESETS["16x16"])
    assert stored_layers(module) == expected
    kept = check(graph, PRESETS["16x16"], keep_all=True)
    assert all(stored_layers(kept))
    assert count(module, Store) <= count(kept, Store) - expected.count(False)


def stored_layers(module: Module) -> list[bool]:
    """Whether the result of each layer has a place in main memory."""
    return [
        layer.output in {binding.name for binding in part.activations}
        for part in module.segments
        for layer in part.layers
    ]


def test_a_chain_on_chip_takes_fewer_cycles(windows, monkeypatch):
    configuration = PRESETS["16x16"]

    def cycles() -> int:
        (part,) = compile_module(windows, configuration, measure=ExactMeasure()).segments
        return time_program(part.program, configuration).cycles

    stays = cycles()
    monkeypatch.setattr(compile_stages, "frames_of", lambda programs: {})
    assert stays < cycles()


@pytest.mark.parametrize(("act_depth", "programs"), [(1024, 2), (64, 1)])
def test_a_segment_is_lowered_once_if_nothing_can_stay(act_depth, programs, windows, monkeypatch):
    """The program through main memory is the same with and without frames."""
    configuration = replace(PRESETS["8x8"], name="other", act_depth=act_depth)
    lower, lower_kernel = compile_stages.lower, Lowering.lower
    found, kernels = [], []

    def counting(self, schedule):
        kernels.append(schedule)
        lower_kernel(self, schedule)

    def lower_with(request, graph, scheduled, known, frames):
        assert frames
        (expected,) = lower(request, graph, scheduled, known)
        monkeypatch.setattr(Lowering, "lower", counting)
        found.extend(lower(request, graph, scheduled, known, frames))
        monkeypatch.setattr(Lowering, "lower", lower_kernel)
        assert found[-1].instructions == expected.instructions
        assert found[-1].ends == expected.ends
        assert found[-1].constants.image() == expected.constants.image()
        return found

    monkeypatch.setattr(compile_stages, "lower", lower_with)
    options = Options(candidates=1)
    compile_module(windows, configuration, measure=ExactMeasure(), lean=True, options=options)
    assert len(found) == programs
    assert len(kernels) == programs * len(found[0].ends)


def test_a_reader_that_sees_other_values_around_an_activation_loads_it():
    whole = ((0, 1), (0, 4), (0, 4), (0, 16))
    wider = ((0, 1), (-1, 5), (-1, 5), (0, 16))
    frame = ResidentFrame((1, 4, 4, 16), whole, 0).joined(wider, 7)
    assert (frame.box, frame.pad) == (wider, 7)
    assert frame.joined(wider, -128) == frame
    assert frame.serves(wider, 7)
    assert frame.serves(whole, -128)
    assert not frame.serves(wider, -128)
    assert not frame.serves(((0, 1), (-2, 5), (0, 4), (0, 16)), 7)


def test_a_program_without_banks_of_others_is_compared_too(always_stay):
    """Its small results stay all the same."""
    draw = Drawing(random.Random(1))
    draw.inputs = [(1, 32, 32, 32)]
    for stride in (1, 1, 2, 1, 1):
        draw.conv(32, kernel=(3, 3), pads=(1, 1, 1, 1), strides=(stride, stride))
    check(realise(draw.sketch()), PRESETS["16x16"])
    plain, roomy, close = always_stay[:3]
    assert not plain.frames
    assert roomy.frames
    assert close.frames
    assert roomy.stream != close.stream


REGIONS = {"rows": (0, 16), "addend": (16, 24), "sums": (24, 28), "result": (28, 32)}
"""Regions of a kernel in four banks of 8 bytes; the last two buffers share one."""


@pytest.mark.parametrize(
    ("pieces", "changed"),
    [
        ({"addend": (16, 20)}, {}),
        ({"addend": (25, 31)}, {"addend": (24, 32), "sums": (16, 20), "result": (20, 24)}),
        ({"addend": (2, 6)}, {"addend": (0, 8), "rows": (8, 16)}),
        ({"rows": (0, 4), "addend": (4, 8)}, {}),  # VECTOR cannot read both
        ({"addend": (4, 8), "rows": (0, 4)}, {}),  # whichever comes first
        ({"rows": (20, 24), "addend": (0, 4)}, {"rows": (16, 24), "addend": (0, 8)}),
        ({"addend": (20, 28)}, {}),  # two banks do not fit a region of one
    ],
)
def test_operands_elsewhere_change_banks(pieces, changed):
    inputs = [(name, Piece(name, low, high, 0)) for name, (low, high) in pieces.items()]
    wanted = dict.fromkeys(REGIONS, 4)
    assert exchanged(REGIONS, inputs, wanted, 8) == REGIONS | changed


def test_banks_that_overlap_do_not_change_places():
    """The piece lies in the last bank of its region and the first one of the next."""
    regions = {"rows": (0, 8), "addend": (8, 24), "result": (24, 32)}
    inputs = [("addend", Piece("addend", 16, 32, 0))]
    assert exchanged(regions, inputs, dict.fromkeys(regions, 4), 8) == regions


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_buffers_with_banks_of_their_own_keep_such(data):
    """And no buffer loses bytes that it wants."""
    bank, banks = 8, data.draw(st.integers(2, 8))
    cuts = sorted(data.draw(st.sets(st.integers(1, banks * bank - 1), max_size=5)))
    whole = itertools.pairwise([0, *cuts, banks * bank])
    regions = {f"buffer {number}": range_ for number, range_ in enumerate(whole)}
    wanted = {name: data.draw(st.integers(1, 16)) for name in regions}
    inputs = []
    for name in data.draw(st.lists(st.sampled_from([*regions]), unique=True)):
        low = data.draw(st.integers(0, banks * bank - 1))
        high = data.draw(st.integers(low + 1, banks * bank))
        inputs.append((name, Piece(name, low, high, 0)))
    found = exchanged(regions, inputs, wanted, bank)
    pieces = dict(inputs)

    def held(region: tuple[int, int]) -> set[int]:
        return set(range(region[0] // bank, -(-region[1] // bank)))

    for one, other in itertools.combinations(regions, 2):
        if not held(regions[one]) & held(regions[other]):
            assert not held(found[one]) & held(found[other])
        (low, high), (first, last) = found[one], found[other]
        assert high <= first or last <= low
    for name, (low, high) in found.items():
        piece = pieces.get(name)
        if piece is None or not (low <= piece.base and piece.end <= high):
            before = regions[name][1] - regions[name][0]
            assert high - low >= min(before, wanted[name])


def test_no_buffer_gives_up_banks_that_it_needs():
    inputs = [("addend", Piece("addend", 2, 6, 0))]
    wanted = dict.fromkeys(REGIONS, 12)
    assert exchanged(REGIONS, inputs, wanted, 8) == REGIONS


def test_a_result_that_stays_gets_the_banks_that_it_needs(always_stay):
    """With its border, it takes 36,992 bytes, and a bank has 32,768."""
    draw = Drawing(random.Random(1))
    draw.inputs = [(1, 32, 32, 32)]
    for _ in range(3):
        draw.conv(32, kernel=(3, 3), pads=(1, 1, 1, 1))
    module = check(realise(draw.sketch()), PRESETS["16x16"])
    assert stored_layers(module) == [False, False, True]
