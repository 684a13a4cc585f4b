"""The bound of a kernel against the exact time of its schedules: never above, and for some near."""

import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.accelerator.lower_bound import NOTHING, UNITS, Demand, demand_of
from tilewright.compiler.accelerator.search import Candidate, choose_candidate, legal_candidates
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, QConv, QMatMul
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.scheduling.candidate_timer import CandidateTimer
from tilewright.compiler.scheduling.given_schedules import Part
from tilewright.compiler.tensor import Kernel
from tilewright.errors import CompileError
from tilewright.flows.verify.fuzz.graph_specs import realise
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.instructions import Instruction
from tilewright.isa.memory_model import MemoryModel
from tilewright.sim.timing import ExactMeasure, time_program

from .branching_networks import cross_stage, dense_block, fire, pyramid, unet
from .test_chains import CONFIGURATIONS, chains
from .test_estimate import LAYERS, exact_cycles, layer
from .test_fusion import Network
from .test_matmuls import product, products

IDEAL = MemoryModel(latency_cycles=1)
"""The bound of a layer holds for any memory; this one answers at once."""

SLOW = MemoryModel(latency_cycles=700, cycles=3)


def kernel_of(graph: Graph, configuration: Configuration, *, gather: bool = True) -> Kernel:
    """The kernel of a graph of one node."""
    return build_kernel(graph.nodes[0], graph, configuration, gather=gather)


def some_schedules(kernel: Kernel, configuration: Configuration, most: int) -> list[Candidate]:
    """What the estimate likes best, and a few others."""
    legal = tuple(itertools.islice(legal_candidates(kernel, configuration), 60))
    best = choose_candidate(kernel, configuration)
    return [best, *random.Random(0).sample(legal, min(len(legal), most))]


@pytest.mark.parametrize("name", ["4x4", "8x16", "16x8", "32x32"])
def test_no_schedule_of_a_layer_beats_its_bound(name, monkeypatch):
    machine = PRESETS[name]
    for shape, (size, *numbers) in LAYERS.items():
        graph = layer(size // 2, *numbers)
        kernel = kernel_of(graph, machine)
        bound = demand_of(kernel, machine).cycles
        for schedule in some_schedules(kernel, machine, 2):
            cycles = exact_cycles(graph, schedule, machine, monkeypatch, IDEAL)
            assert cycles >= bound, f"{shape}: {schedule}"


@pytest.mark.parametrize("shape", ["3x3 of many pixels", "3x3 with a stride", "depthwise"])
def test_a_bound_is_near_what_is_reached(shape, monkeypatch):
    """One that is 0 would never be beaten either."""
    machine = PRESETS["8x8"]
    graph = layer(*LAYERS[shape])
    kernel = kernel_of(graph, machine)
    cycles = exact_cycles(graph, choose_candidate(kernel, machine), machine, monkeypatch, IDEAL)
    assert 1 <= cycles / demand_of(kernel, machine).cycles < 1.15


def drawn_chains(seeds: range, monkeypatch) -> Iterator[tuple[int, int]]:
    """Bound and exact cycles of chains that are fused, with schedules taken at random."""
    chance = random.Random(0)

    def draw(kernel: Kernel, configuration: Configuration, *_) -> Candidate:
        legal = tuple(itertools.islice(legal_candidates(kernel, configuration), 30))
        drawn = chance.choice(legal or (choose_candidate(kernel, configuration),))
        return replace(drawn, estimated_cycles=0)

    monkeypatch.setattr("tilewright.compiler.scheduling.fusion.choose_candidate", draw)
    for seed, sketch in chains(seeds):
        configuration = CONFIGURATIONS[seed % len(CONFIGURATIONS)]
        try:
            module = compile_module(realise(sketch), configuration, memory=IDEAL)
        except CompileError:
            continue
        programs = [segment.program for segment in module.segments]
        exact = sum(time_program(one, configuration, IDEAL).cycles for one in programs)
        bound = module.report["bound"]
        assert isinstance(bound, int)
        assert bound <= exact, f"{seed} on {configuration.name}"
        yield bound, exact


def test_no_chain_beats_its_bound_whatever_the_schedules(monkeypatch):
    found = list(drawn_chains(range(3000, 3060), monkeypatch))
    assert len(found) > 25
    assert min(exact / bound for bound, exact in found) < 2


@pytest.mark.slow
def test_no_chain_of_many_beats_its_bound(monkeypatch):
    assert len(list(drawn_chains(range(4000, 4400), monkeypatch))) > 160


def test_kernels_one_after_the_other_do_not_beat_their_bound(monkeypatch):
    """Nor does the bound change a choice: it only tells sooner what the exact time would."""
    plain = chosen_programs()
    bound, timed, over = Demand.cycles_before, CandidateTimer.cycles, []

    def cycles(self: CandidateTimer, *parts: Part) -> int:
        found = timed(self, *parts)
        if len(parts) == 2:
            least = bound(*(demand_of(kernel, self.configuration) for kernel, _ in parts))
            assert least <= found, [kernel.name for kernel, _ in parts]
            over.append(found / least)
        return found

    monkeypatch.setattr(CandidateTimer, "cycles", cycles)
    monkeypatch.setattr(Demand, "cycles_before", lambda earlier, later: 0)
    assert chosen_programs() == plain
    assert len(over) > 10
    assert min(over) < 1.1, "an addition that takes as long as a convolution"


def chosen_programs() -> list[tuple[Instruction, ...]]:
    """The programs of some chains, and of a convolution with a slow addition, by exact times."""
    few_lanes = PRESETS["8x8"].replace(name="few-lanes", vector_lanes=2, bus_bits=128)
    net = Network((1, 14, 14, 64))
    slow = net.graph(net.add(net.conv(net.input, "conv", 64), net.input, "sum"))
    asked = [(slow, few_lanes)]
    for seed, sketch in chains(range(3000, 3025)):
        asked.append((realise(sketch), CONFIGURATIONS[seed % len(CONFIGURATIONS)]))
    found = []
    for graph, configuration in asked:
        with contextlib.suppress(CompileError):  # a layer that does not fit
            module = compile_module(graph, configuration, measure=ExactMeasure())
            found += [segment.program for segment in module.segments]
    return found


def assert_not_beaten(graph: Graph, configuration: Configuration) -> None:
    """The bound of a network's layers against the exact time of its programs."""
    for memory in (IDEAL, SLOW):
        module = compile_module(graph, configuration, memory=memory)
        programs = [segment.program for segment in module.segments]
        bound = module.report["bound"]
        assert isinstance(bound, int)
        assert bound <= sum(time_program(one, configuration, memory).cycles for one in programs)


@settings(max_examples=30, deadline=None)
@given(products(), st.sampled_from(["4x4", "8x16", "16x8", "16x16"]))
def test_products_of_activations_do_not_beat_their_bound(graph, name):
    assert_not_beaten(graph, PRESETS[name])


@pytest.mark.parametrize("network", [unet, fire, dense_block, pyramid, cross_stage])
def test_networks_with_branches_do_not_beat_their_bound(network):
    model = network(8).SerializeToString()
    assert_not_beaten(import_model(model), PRESETS["8x8"])


def test_what_each_unit_must_do():
    """A 1x1 convolution of 12 to 20 channels over 6 x 5 pixels, in blocks of 8 lanes."""
    machine = PRESETS["8x8"]
    conv = QConv("conv", (1, 1), (0, 0, 0, 0), (1, 1), 1, 3, 0)
    graph = layer(6, 12, 20, 1, 1, 1)
    assert isinstance(graph.nodes[0].attributes, QConv)
    assert graph.nodes[0].attributes == conv
    pixels, blocks_in, blocks_out = 36, 2, 3
    busy = dict(zip(UNITS, demand_of(kernel_of(graph, machine), machine).busy, strict=True))
    beats = pixels * blocks_in + 8 * blocks_in * blocks_out + 8 * blocks_out
    assert busy == {
        "gemm": pixels * blocks_in * blocks_out,
        "vector": pixels * blocks_out,
        "load": beats,
        "store": pixels * blocks_out,
    }


def test_a_tile_that_meets_few_pixels_takes_its_time_nevertheless():
    machine = PRESETS["8x8"]
    (gemm, *_) = demand_of(kernel_of(layer(1, 64, 64, 1, 1, 1), machine), machine).busy
    assert gemm == 63 * 8 + 1, "64 tiles of 8 rows; the last one need not rest"


def test_only_pixels_in_a_window_are_loaded():
    """A 1x1 window in steps of two leaves three of four pixels, whether it gathers or not."""
    machine = PRESETS["8x8"]
    graph = layer(16, 8, 8, 1, 2, 1)
    wanted = 8 * 8 + 8 + 8
    for gather in (True, False):
        demand = demand_of(kernel_of(graph, machine, gather=gather), machine)
        assert demand.busy[UNITS.index("load")] == wanted


@pytest.mark.parametrize("transposed", [True, False])
def test_an_activation_that_becomes_weights_is_loaded(transposed):
    """24 rows of 16 channels times 32 columns: a beat has 8 bytes, or 1 if it is transposed."""
    machine = PRESETS["8x8"].replace(transposed_weights="int8")
    graph = product(QMatMul(1, 0.01, 0, 0, 0, transposed), 1, 24, 16, 32)
    rest = 24 * 16 // 8 + 32
    load = demand_of(kernel_of(graph, machine), machine).busy[UNITS.index("load")]
    assert load - rest == (16 * 32 if transposed else 16 * 32 // 8)


def test_padding_is_not_loaded():
    machine = PRESETS["8x8"]
    demand = demand_of(kernel_of(layer(4, 8, 8, 3, 1, 1), machine), machine)
    assert demand.busy[UNITS.index("load")] == 16 + 9 * 8 + 8


def test_work_of_two_kernels_adds_up_but_their_ends_do_not():
    one = Demand((1, 2, 3, 4), (10, 20, 30, 0), (5, 5, 5, 5))
    two = Demand((9, 9, 9, 9), (100, 0, 1, 2), (6, 6, 6, 6))
    both = one.then(two)
    assert both.busy == (110, 20, 31, 2)
    assert both.before == (1, 2, 3, 0)
    assert both.after == (6, 0, 6, 6)
    assert (both.cycles, both.unit) == (117, "gemm")
    assert one.then(NOTHING).cycles == 33, "what comes before and behind is not counted twice"
