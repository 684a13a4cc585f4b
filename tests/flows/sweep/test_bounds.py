"""The bound of a whole network before it is compiled: never above the program that is chosen."""

import contextlib
from itertools import product

import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.options import Options
from tilewright.compiler.pipeline.network_bound import network_work
from tilewright.compiler.placement import STRICT_PLACEMENT
from tilewright.errors import CompileError
from tilewright.flows.execution.compile_graph import compile_graph
from tilewright.flows.execution.retiming import RetimedMachine, retime
from tilewright.flows.sweep.bounds import lower_bounds
from tilewright.flows.verify.fuzz.graph_specs import realise
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel

from ...compiler.branching_networks import cross_stage, dense_block, fire, pyramid, unet
from ...compiler.test_chains import CONFIGURATIONS, chains

MEMORIES = tuple(
    MemoryModel(latency_cycles=latency, beats=beats, cycles=cycles, outstanding_bursts=bursts)
    for latency, (beats, cycles), bursts in product(
        (1, 64, 5000), ((1, 1), (2, 3), (1, 4), (1, 50)), (1, 64)
    )
)


def check(graph, configuration, options=None) -> float:
    """Compare bounds and cycles; the share of the cycles that the bound explains at best."""
    module = compile_graph(
        graph,
        configuration,
        cache=False,
        lean=True,
        options=options or Options(),
        placement=STRICT_PLACEMENT,
    )
    cycles = retime(module, [RetimedMachine({}, configuration, memory) for memory in MEMORIES])
    bounds = lower_bounds(graph, configuration, MEMORIES)
    for memory, exact, bound in zip(MEMORIES, cycles, bounds, strict=True):
        assert 0 < bound.cycles <= exact, memory
    return bounds[0].cycles / cycles[0]


@pytest.mark.parametrize("name", ["4x4", "8x16", "16x8", "32x32"])
def test_no_program_of_a_network_beats_its_bound(digits, name):
    check(digits.graph, PRESETS[name])


@pytest.mark.parametrize("options", [Options(fuse=False), Options(pipeline_depth=1)])
def test_the_bound_holds_for_other_choices(digits, options):
    check(digits.graph, PRESETS["8x8"], options)


def check_chains(seeds: range, choices: tuple[Options, ...] = (Options(),)) -> int:
    """Check random chains, compiled with each of the choices; how many programs there were."""
    count = 0
    for seed, sketch in chains(seeds):
        for options in choices:
            with contextlib.suppress(CompileError):  # a layer that does not fit
                configuration = CONFIGURATIONS[seed % len(CONFIGURATIONS)]
                check(realise(sketch), configuration, options)
                count += 1
    return count


def test_no_chain_beats_its_bound():
    assert check_chains(range(3000, 3010), (Options(), Options(fuse=False))) > 7


@pytest.mark.slow
def test_no_chain_of_many_beats_its_bound():
    """As the compiler chooses: without fusion, programs are mostly further from the same bound."""
    assert check_chains(range(4000, 4100)) > 37


@pytest.mark.slow
@pytest.mark.parametrize("network", [cross_stage, dense_block, fire, pyramid, unet])
def test_no_branching_network_beats_its_bound(network):
    graph = import_model(network(8).SerializeToString())
    for options in (Options(), Options(fuse=False)):
        check(graph, PRESETS["8x8"], options)


def test_a_bound_is_near_what_is_reached(digits):
    """One that is 0 would never be beaten either."""
    assert check(digits.graph, PRESETS["4x4"]) > 0.85


def test_the_unit_with_most_work_is_named(digits):
    slow = MemoryModel(beats=1, cycles=32)
    units = [
        bound.unit for bound in lower_bounds(digits.graph, PRESETS["4x4"], (MEMORIES[0], slow))
    ]
    assert units == ["gemm", "load"]


def test_a_segment_is_a_program(digits):
    (work,) = network_work(digits.graph, PRESETS["8x8"])
    assert min(work.demand.busy) > 0
    assert min(work.demand.traffic) > 0
