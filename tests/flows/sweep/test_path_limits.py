"""Limits of a run: the exact critical path, by layer and by what takes its cycles."""

import pytest

from tilewright.flows.execution.retiming import RetimedMachine, retime
from tilewright.flows.execution.timed import time_segments
from tilewright.flows.reports.page.causes import Cause, by_cause, path_steps
from tilewright.flows.sweep.path_limits import LIMITS, path_limits
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import load

MEMORIES = (
    MemoryModel(),
    MemoryModel(latency_cycles=1000),
    MemoryModel(beats=1, cycles=16, outstanding_bursts=2),
)


@pytest.fixture
def module(artifact):
    return load(artifact)


def test_limits_and_layers_have_every_cycle_once(module):
    settings = [RetimedMachine({}, module.configuration, memory) for memory in MEMORIES]
    paths = (path_limits(module, memory) for memory in MEMORIES)
    for cycles, path in zip(retime(module, settings), paths, strict=True):
        assert path.cycles == cycles == sum(path.limits.values())
        assert sum(layer.cycles for layer in path.layers) == cycles
        assert set(path.limits) <= set(LIMITS)


def test_causes_are_those_of_the_report(module):
    """But for the places of single beats, which only the report finds."""
    for memory in MEMORIES:
        path = path_limits(module, memory)
        (segment,) = time_segments(module, memory)
        causes = by_cause(path_steps(segment))
        of = {name: path.limits.get(name, 0) for name in LIMITS}
        assert of["GEMM"] + of["VECTOR"] == causes[Cause.COMPUTE]
        found = {
            Cause.MEMORY: of["LOAD"] + of["STORE"],
            Cause.LATENCY: of["latency"],
            Cause.DISPATCH: of["dispatch"],
        }
        for cause, cycles in found.items():
            assert cycles == pytest.approx(causes[cause], abs=0.07 * path.cycles)


def test_a_worse_memory_limits_the_layers(module):
    limits = [
        {layer.name: layer.limit for layer in path_limits(module, memory).layers}
        for memory in MEMORIES
    ]
    assert [found["conv3"] for found in limits] == ["GEMM", "latency", "LOAD"]
