"""The timing of candidate schedules, and the cycles that a compiled network reports."""

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from tilewright.compiler.accelerator.dma import DramTensor
from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.accelerator.lower_bound import demand_of
from tilewright.compiler.accelerator.search import likely_candidates
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, QConv
from tilewright.compiler.options import DEFAULT_OPTIONS, Options
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.scheduling import candidate_timer as timing
from tilewright.compiler.scheduling.bound_report import LayerGap
from tilewright.compiler.scheduling.candidate_timer import CandidateTimer
from tilewright.compiler.scheduling.kernel_programs import KernelPrograms, ProgramStore
from tilewright.compiler.tensor import Kernel
from tilewright.flows.execution.compile_graph import compile_graph
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.instructions import Instruction
from tilewright.sim.timing import ExactMeasure, time_program

from .test_estimate import layer

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"
MACHINE = PRESETS["8x8"]
GRAPH = layer(14, 16, 32, 3, 1, 1)


def kernel_of(graph: Graph) -> Kernel:
    """The kernel of a graph of one node."""
    return build_kernel(graph.nodes[0], graph, MACHINE)


class Told:
    """Tells the same cycles, or falling ones, of every program, and counts the programs."""

    def __init__(self, cycles: float, falling: int = 0) -> None:
        self.cycles, self.falling, self.programs = int(cycles), falling, 0

    def __call__(
        self, program: Sequence[Instruction], configuration: Configuration
    ) -> tuple[int, None]:
        self.programs += 1
        return self.cycles - self.falling * self.programs, None

    def timer(self, kernel: Kernel) -> CandidateTimer:
        """A timer for one kernel's activations."""
        names = [*kernel.inputs, kernel.output.name]
        shapes = {kernel.tensors[name].value: kernel.tensors[name].shape for name in names}
        dram = {name: DramTensor(1 << 20, shape) for name, shape in shapes.items()}
        return CandidateTimer(KernelPrograms(dram, 1 << 21, MACHINE), MACHINE, self)


def test_nothing_more_is_timed_once_a_schedule_is_near_the_bound(monkeypatch):
    kernel = kernel_of(GRAPH)
    monkeypatch.setattr(timing, "HOPELESS", 2)
    bound = demand_of(kernel, MACHINE).cycles
    for share, programs in ((timing.NEAR, 1), (1.03, DEFAULT_OPTIONS.candidates)):
        told = Told(share * bound)
        told.timer(kernel).choose(kernel, DEFAULT_OPTIONS)
        assert told.programs == programs


def test_more_is_timed_while_a_small_kernel_is_far_from_the_bound(monkeypatch):
    kernel = kernel_of(GRAPH)
    bound = demand_of(kernel, MACHINE).cycles
    monkeypatch.setattr(timing, "FEW_INSTRUCTIONS", 10**6)
    monkeypatch.setattr(timing, "ASTRAY", 10**6)
    told = Told(2 * bound)
    told.timer(kernel).choose(kernel, Options(candidates=1))
    assert told.programs == timing.PATIENCE
    monkeypatch.setattr(timing, "FEW_INSTRUCTIONS", 0)
    told = Told(2 * bound)
    told.timer(kernel).choose(kernel, Options(candidates=1))
    assert told.programs == 1


@pytest.mark.parametrize("astray", [False, True])
def test_more_is_timed_while_the_estimate_is_far_from_the_exact_time(monkeypatch, astray):
    kernel = kernel_of(GRAPH)
    monkeypatch.setattr(timing, "FEW_INSTRUCTIONS", 0)
    estimate = likely_candidates(kernel, MACHINE, 0, 1)[0].estimated_cycles
    told = Told(timing.ASTRAY * estimate * (1.02 if astray else 0.98))
    told.timer(kernel).choose(kernel, Options(candidates=2))
    assert told.programs == 2 * (timing.MORE if astray else 1)


def test_the_fastest_that_was_timed_is_chosen():
    kernel = kernel_of(GRAPH)
    told = Told(10**6, falling=1)
    chosen = told.timer(kernel).choose(kernel, DEFAULT_OPTIONS)
    assert chosen == likely_candidates(kernel, MACHINE, 0, told.programs)[-1]


def test_what_is_estimated_to_be_slower_than_its_rival_is_not_timed():
    kernel = kernel_of(GRAPH)
    told = Told(1)
    best = likely_candidates(kernel, MACHINE, 0, 1)[0]
    rival = best.estimated_cycles / timing.HOPELESS - 1
    assert told.timer(kernel).choose(kernel, DEFAULT_OPTIONS, rival) == best
    assert told.programs == 0


def test_a_schedule_that_was_not_timed_because_of_a_rival_is_timed_without_it():
    kernel = kernel_of(GRAPH)
    told = Told(10**6, falling=1)
    timer = told.timer(kernel)
    timer.choose(kernel, DEFAULT_OPTIONS, rival=1)
    assert told.programs == 0
    chosen = timer.choose(kernel, DEFAULT_OPTIONS)
    assert chosen == likely_candidates(kernel, MACHINE, 0, told.programs)[-1]


class Kept(Told):
    """Keeps each program that it is asked about."""

    def __init__(self) -> None:
        super().__init__(1)
        self.kept: list[Sequence[Instruction]] = []

    def __call__(
        self, program: Sequence[Instruction], configuration: Configuration
    ) -> tuple[int, None]:
        self.kept.append(program)
        return super().__call__(program, configuration)


def test_programs_that_begin_alike_are_those_of_a_new_timer():
    kernel = kernel_of(GRAPH)
    a, *others = ((kernel, each) for each in likely_candidates(kernel, MACHINE, 0, 8))
    together = Kept()
    timer = together.timer(kernel)
    windows = [(b, *more) for b in others for c in others for more in ((), (a,), (c, a), (a, b))]
    for parts in dict.fromkeys([(a,), *windows]):
        apart = Kept()
        assert timer.cycles(*parts) == apart.timer(kernel).cycles(*parts)
        assert together.kept[-1] == apart.kept[-1]


def test_the_likely_schedules_do_not_depend_on_earlier_questions():
    kernel = kernel_of(GRAPH)
    timer = Kept().timer(kernel)
    for count in (3, 1, 8, 5):
        found = timer.likely(kernel, DEFAULT_OPTIONS, count)
        assert found == likely_candidates(kernel, MACHINE, 0, count)


def test_equal_layers_of_two_segments_are_timed_once():
    kernel, told, times = kernel_of(GRAPH), Told(10**6, falling=1), {}
    names = [*kernel.inputs, kernel.output.name]
    shapes = {kernel.tensors[name].value: kernel.tensors[name].shape for name in names}
    store, timers = ProgramStore(), []
    for base in (1 << 20, 1 << 22):
        dram = {name: DramTensor(base, shape) for name, shape in shapes.items()}
        programs = store.programs(dram, 2 * base, MACHINE)
        timers.append(CandidateTimer(programs, MACHINE, told, times))
    chosen = timers[0].choose(kernel, DEFAULT_OPTIONS)
    timed = told.programs
    assert timers[0].programs is not timers[1].programs
    assert timers[1].choose(kernel, DEFAULT_OPTIONS) == chosen
    assert told.programs == timed > 0
    assert timers[1].instructions == timers[0].instructions  # by which `refine` is limited


def test_layers_that_differ_in_numbers_alone_are_timed_once():
    (node,) = GRAPH.nodes
    assert isinstance(node.attributes, QConv)
    shifted = replace(node.attributes, zero_point_x=-7, low=-100, high=90)
    other = replace(GRAPH, nodes=(replace(node, attributes=shifted),))
    larger = layer(14, 16, 32, 5, 1, 2)
    one, two, three = map(kernel_of, (GRAPH, other, larger))
    told = Told(10**6)
    timer = told.timer(one)
    chosen = timer.choose(one, DEFAULT_OPTIONS)
    before = told.programs
    assert timer.choose(two, DEFAULT_OPTIONS) == chosen
    assert told.programs == before
    timer.choose(three, DEFAULT_OPTIONS)
    assert told.programs > before


def test_the_report_has_exact_cycles_and_bounds():
    measure = ExactMeasure()
    assert measure is not None
    module = compile_module(GRAPH, MACHINE, measure=measure)
    report = module.report
    (segment,) = module.segments
    exact = time_program(segment.program, MACHINE).cycles
    bound = demand_of(kernel_of(GRAPH), MACHINE)
    assert report["instructions"] == len(segment.program)
    assert report["cycles"] == exact
    # The program's bound has the memory's latency too.
    assert bound.cycles < report["bound"] <= exact
    assert report["gap"] == pytest.approx(exact / report["bound"] - 1)
    assert report["layers"] == [
        {
            "name": GRAPH.nodes[0].name,
            "cycles": exact,
            "exact": True,
            "bound": bound.cycles,
            "unit": bound.unit,
            "gap": pytest.approx(exact / bound.cycles - 1),
        }
    ]


def test_without_a_timing_model_the_report_has_estimates():
    report = compile_module(GRAPH, MACHINE).report
    estimated = likely_candidates(kernel_of(GRAPH), MACHINE, 0, 1)[0].estimated_cycles
    layers = report["layers"]
    assert isinstance(layers, list)
    assert (report["cycles"], report["gap"]) == (None, None)
    assert (layers[0]["cycles"], layers[0]["exact"]) == (estimated, False)


def test_a_gap_is_said_in_a_line():
    demand = demand_of(kernel_of(GRAPH), MACHINE)
    gap = LayerGap("conv", 2 * demand.cycles, True, demand, demand)
    assert str(gap) == (
        f"conv: {2 * demand.cycles:,} cycles, lower bound {demand.cycles:,} (gemm), gap 100.0%"
    )
    assert str(replace(gap, exact=False)).startswith(f"conv: about {2 * demand.cycles:,} cycles, ")


def test_the_garbage_collector_rests_while_compiling_and_goes_on_afterwards():
    seen = []
    compile_module(GRAPH, MACHINE, lambda line: seen.append(gc.isenabled()))
    assert set(seen) == {False}
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        compile_module(GRAPH, MACHINE, lambda line: seen.append(1 // 0))
    assert gc.isenabled()


def test_a_lean_module_has_the_same_program_and_cycles_and_no_proof(monkeypatch):
    whole = compile_module(GRAPH, MACHINE, measure=ExactMeasure())
    monkeypatch.setattr("tilewright.compiler.pipeline.link.check", None)
    lean = compile_module(GRAPH, MACHINE, measure=ExactMeasure(), lean=True)
    assert [one.program for one in lean.segments] == [one.program for one in whole.segments]
    assert lean.report["cycles"] == whole.report["cycles"]
    assert lean.segments[0].notes == ()


def test_a_compilation_with_another_schedule_searches_nothing_again(monkeypatch):
    searches = []
    for name in ("TileSearch",):
        searches.append(Mock(wraps=getattr(timing, name)))
        monkeypatch.setattr(timing, name, searches[-1])
    store, graph = ProgramStore(), import_model(DIGITS)

    def compiled(schedules, *shared):
        return compile_graph(
            graph, MACHINE, schedules=schedules, store=shared[0] if shared else None, cache=False
        )

    before = compiled({}, store)
    layers = {layer.name: layer.schedule for one in before.segments for layer in one.layers}
    given = {"conv1": layers["conv1"]}
    alone = compiled(given)
    counts = [search.call_count for search in searches]
    shared = compiled(given, store)
    assert [search.call_count for search in searches] == counts
    assert [one.program for one in shared.segments] == [one.program for one in alone.segments]
    assert shared.report["cycles"] == alone.report["cycles"]
