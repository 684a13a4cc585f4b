"""The estimate against the exact timing model: it need not be right, only choose well."""

import random

import numpy as np
import pytest

from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.accelerator.search import (
    Candidate,
    TileSearch,
    choose_candidate,
    legal_candidates,
    likely_candidates,
)
from tilewright.compiler.graph import Graph, QConv
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.memory_model import MemoryModel
from tilewright.sim.timing import time_program

from .test_lowering import out_extent, single_node

SAMPLE = 6
"""Legal schedules that are timed beside the chosen one."""

LAYERS = {
    "3x3 of many pixels": (28, 16, 32, 3, 1, 1),
    "3x3 of many channels": (7, 64, 64, 3, 1, 1),
    "3x3 with a stride": (28, 16, 32, 3, 2, 1),
    "1x1 of many channels": (14, 128, 32, 1, 1, 1),
    "1x1 with a stride": (28, 32, 64, 1, 2, 1),
    "depthwise": (28, 48, 48, 3, 1, 48),
    "depthwise with a stride": (28, 48, 48, 3, 2, 48),
}
"""Image size, channels in and out, kernel, stride and groups."""


def layer(size: int, channels_in: int, channels_out: int, kernel: int, stride: int, groups: int):
    """A square convolution as a graph."""
    chance = np.random.default_rng(0)
    pad = kernel // 2
    out = out_extent(size, kernel, stride, 1, pad, pad)
    constants = (
        chance.integers(-128, 128, (kernel, kernel, channels_in // groups, channels_out)).astype(
            np.int8
        ),
        np.zeros(channels_out, np.int32),
        np.full(channels_out, 0.001, np.float32),
    )
    attributes = QConv("conv", (stride, stride), (pad, pad, pad, pad), (1, 1), groups, 3, 0)
    shape = (1, size, size, channels_in)
    return single_node(attributes, [shape], (1, out, out, channels_out), constants)


def exact_cycles(
    graph: Graph,
    schedule: Candidate,
    configuration: Configuration,
    monkeypatch,
    memory: MemoryModel | None = None,
) -> int:
    """Cycles of the graph's one kernel with a schedule, by the timing model."""
    monkeypatch.setattr(
        "tilewright.compiler.scheduling.fusion.choose_candidate", lambda kernel, *options: schedule
    )
    (segment,) = compile_module(graph, configuration).segments
    return time_program(segment.program, configuration, memory).cycles


def rank_correlation(first: list[int], second: list[int]) -> float:
    """Spearman's: 1 where both put everything in the same order."""
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    apart = np.square(ranks[0] - ranks[1]).sum()
    return float(1 - 6 * apart / (len(first) * (len(first) ** 2 - 1)))


@pytest.mark.slow
@pytest.mark.parametrize("configuration", ["8x8", "16x16"])
def test_the_chosen_schedule_is_nearly_the_best_of_a_sample(configuration, monkeypatch):
    machine, worst = PRESETS[configuration], 0.0
    estimates, cycles = [], []
    for name, numbers in LAYERS.items():
        graph = layer(*numbers)
        kernel = build_kernel(graph.nodes[0], graph, machine)
        chosen = choose_candidate(kernel, machine)
        legal = [one for one in legal_candidates(kernel, machine) if one != chosen]
        # Among those that the estimate likes, where a wrong order costs most, and some others.
        legal.sort(key=lambda one: one.estimated_cycles)
        legal = [one for one in legal if one.estimated_cycles < 4 * chosen.estimated_cycles]
        chance = random.Random(name)
        near, far = legal[: len(legal) // 4], legal[len(legal) // 4 :]
        sample = [*chance.sample(near, SAMPLE // 2), *chance.sample(far, SAMPLE // 2)]
        times = [exact_cycles(graph, one, machine, monkeypatch) for one in (chosen, *sample)]
        excess = times[0] / min(times) - 1
        correlation = rank_correlation([one.estimated_cycles for one in (chosen, *sample)], times)
        print(
            f"{configuration} {name}: {len(legal)} schedules, chosen {times[0]} cycles "
            f"(estimated {chosen.estimated_cycles}), {100 * excess:.1f} % over the best of "
            f"{len(times)}, rank correlation {correlation:.2f}"
        )
        worst = max(worst, excess)
        estimates += [one.estimated_cycles for one in (chosen, *sample)]
        cycles += times
        assert excess <= 0.25, name
    overall = rank_correlation(estimates, cycles)
    print(f"{configuration}: worst {100 * worst:.1f} %, rank correlation of all {overall:.3f}")
    assert overall > 0.9


def test_an_estimate_of_the_best_is_near_the_exact_time(monkeypatch):
    machine = PRESETS["8x8"]
    for numbers in (LAYERS["3x3 of many channels"], LAYERS["depthwise"]):
        graph = layer(*numbers)
        kernel = build_kernel(graph.nodes[0], graph, machine)
        chosen = choose_candidate(kernel, machine)
        cycles = exact_cycles(graph, chosen, machine, monkeypatch)
        assert 0.8 < chosen.estimated_cycles / cycles < 1.25


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("count", [1, 3, 24])
def test_likely_candidates_are_the_first_of_all_legal_ones(name, count):
    graph = layer(*LAYERS[name])
    machine = PRESETS["8x8"].replace(act_depth=256)
    kernel = build_kernel(graph.nodes[0], graph, machine)
    legal = sorted(legal_candidates(kernel, machine), key=lambda one: one.estimated_cycles)
    assert likely_candidates(kernel, machine, 0, count) == legal[:count]


@pytest.mark.parametrize("name", LAYERS)
def test_a_search_that_goes_on_finds_what_a_new_one_finds(name):
    machine = PRESETS["8x8"].replace(act_depth=256)
    kernel = build_kernel((graph := layer(*LAYERS[name])).nodes[0], graph, machine)
    legal = sorted(legal_candidates(kernel, machine), key=lambda one: one.estimated_cycles)
    search = TileSearch(kernel, machine, 0)
    for count in (1, 4, 2, len(legal) + 1):
        below = legal[0].estimated_cycles * 1.1
        fast = [one for one in legal if one.estimated_cycles < below][:count]
        assert search.likely(count, below)[: len(fast)] == fast
        assert search.likely(count) == legal[:count]
