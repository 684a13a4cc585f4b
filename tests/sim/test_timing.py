"""The timing model: compiled equals definition, causes explain every cycle, settings matter."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.flows.verify.programs.random_configurations import (
    random_configuration,
    random_memory_parameters,
    verification_configurations,
)
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import DEFAULT, PRESETS, Memory
from tilewright.isa.instructions import Gemm, Halt, Load, Loop, Store, Sync, Unit, Vector
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.pipeline import GEMM_TAIL_CYCLES
from tilewright.sim.timing import COLUMNS, Timer, time_program
from tilewright.sim.timing.critical_path import critical_path
from tilewright.sim.timing.native import TimedProgram
from tilewright.sim.timing.shared_bus import model_of
from tilewright.sim.timing.stalls import Wait, activity

CONFIGURATIONS = verification_configurations()

GEMM = Gemm(act=0, wgt=0, acc=0, tile_loops=(Loop(9, (16, 1, 0)),), row_loops=(Loop(196, (1, 1)),))


def steady_memory(seed: int) -> MemoryModel:
    """A memory without random stalls."""
    return replace(MemoryModel.of_parameters(random_memory_parameters(seed)), stall_probability=0.0)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_compiled_model_equals_its_definition(name):
    configuration = CONFIGURATIONS[name]
    for seed in range(3):
        program, _ = random_program(configuration, seed)
        memory = steady_memory(seed)
        expected, times = model_of(program, configuration, memory).run()
        cycles, found = TimedProgram(program, configuration).run(memory)
        np.testing.assert_array_equal(found, times, err_msg=f"{name}, seed {seed}")
        assert cycles == expected


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), memory=st.integers(0, 1 << 32))
def test_both_agree_on_any_machine(seed, memory):
    configuration = random_configuration(seed)
    program, _ = random_program(configuration, seed, 20)
    expected = model_of(program, configuration, steady_memory(memory)).run()
    found = TimedProgram(program, configuration).run(steady_memory(memory))
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(list(CONFIGURATIONS)), seed=st.integers(0, 1 << 32))
def test_every_cycle_of_every_unit_has_a_name(name, seed):
    program, _ = random_program(CONFIGURATIONS[name], seed)
    timing = time_program(program, CONFIGURATIONS[name], steady_memory(seed))
    seen = activity(timing)
    for unit in Unit:
        mine = seen.unit == unit
        order = np.argsort(seen.begin[mine], kind="stable")
        begin, end = seen.begin[mine][order], seen.end[mine][order]
        assert begin[0] == 0
        np.testing.assert_array_equal(begin[1:], end[:-1])
        assert timing.cycles <= end[-1] <= timing.cycles + 1
        assert sum(seen.cycles(unit).values()) == end[-1]


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(list(CONFIGURATIONS)), seed=st.integers(0, 1 << 32))
def test_the_critical_path_explains_the_whole_run(name, seed):
    program, _ = random_program(CONFIGURATIONS[name], seed)
    timing = time_program(program, CONFIGURATIONS[name], steady_memory(seed))
    path = critical_path(timing)
    assert path[0].begin == 0
    assert path[-1].end == timing.cycles
    assert all(one.end == other.begin for one, other in pairwise(path))
    assert all(step.cycles > 0 for step in path)


def test_a_gemm_alone_takes_its_closed_form():
    timing = time_program([GEMM, Halt()], DEFAULT)
    first, last, complete = (int(timing.column(name)[0]) for name in ("first", "last", "complete"))
    start = int(timing.column("start")[0])
    assert first == start + DEFAULT.lanes_in
    assert last == first + 8 * 196 + 195
    assert complete == last + GEMM_TAIL_CYCLES + 4


def test_work_is_on_the_critical_path_of_a_long_gemm():
    timing = time_program([GEMM, Halt()], DEFAULT)
    work = sum(step.cycles for step in critical_path(timing) if step.wait is Wait.WORK)
    assert work == 9 * 196


def test_a_wait_for_a_token_names_its_giver():
    gemm = replace(GEMM, signal=frozenset({Unit.VECTOR}))
    vector = Vector(
        a_from_acc=True,
        a=1024,
        dst=0,
        map_loops=(Loop(100, (1, 1, 0, 0)),),
        wait=frozenset({Unit.GEMM}),
    )
    seen = activity(time_program([gemm, vector, Halt()], DEFAULT))
    waits = (seen.unit == Unit.VECTOR) & (seen.wait == Wait.TOKEN)
    assert seen.by[waits].tolist() == [0]
    assert (seen.end - seen.begin)[waits].sum() > 9 * 196


def test_slow_memory_shows_as_memory():
    load = Load(destination=Memory.ACT, length=2048, memory=0, local=0)
    slow = time_program([load, Halt()], DEFAULT, MemoryModel(latency_cycles=500))
    seen = activity(slow).cycles(Unit.LOAD)
    assert seen[Wait.MEMORY] >= 495
    assert slow.counters["LOAD_MEMORY"] >= 495
    quick = time_program([load, Halt()], DEFAULT, MemoryModel(latency_cycles=1))
    assert slow.cycles - quick.cycles == 2 * 499  # once for the program, once for the data


def test_a_transfer_that_keeps_its_unit_is_blamed_on_memory():
    load = Load(destination=Memory.ACT, length=2048, memory=0, local=0)
    program = [load, replace(load, memory=2048), GEMM, Halt()]
    slow = MemoryModel(latency_cycles=10, beats=1, cycles=32)
    path = critical_path(time_program(program, DEFAULT.replace(outstanding_bursts=1), slow))
    loads = sum(step.cycles for step in path if step.instruction in (0, 1))
    assert loads > 2 * 256 * 32
    assert {step.wait for step in path if step.cycles > 100} <= {Wait.WORK, Wait.MEMORY, Wait.FETCH}


def test_a_full_queue_is_blamed_on_the_unit_that_it_belongs_to():
    store = Store(source=Memory.ACT, length=1024, memory=0, local=0)
    crowd = [replace(store, memory=1024 * place) for place in range(14)]
    timing = time_program([*crowd, GEMM, Halt()], DEFAULT.replace(outstanding_bursts=1))
    seen = activity(timing)
    waits = (seen.unit == Unit.GEMM) & (seen.wait == Wait.QUEUE)
    assert waits.any()
    assert set(timing.links.unit[seen.by[waits]]) == {Unit.STORE}


def test_a_sweep_equals_single_runs():
    program, _ = random_program(PRESETS["8x16"], 5)
    timed = TimedProgram(program, PRESETS["8x16"])
    machines = [PRESETS["8x16"].replace(queue_depth=depth) for depth in (1, 2, 8)]
    memories = [MemoryModel(latency_cycles=n, beats=b, cycles=2) for n in (1, 90) for b in (1, 2)]
    chosen = [(machine, memory) for machine in machines for memory in memories]
    singles = [timed.run(memory, machine)[0] for machine, memory in chosen]
    for threads in (1, 3):
        assert timed.sweep(chosen, threads).tolist() == singles
    assert len(set(singles)) > 3


def test_a_program_can_be_timed_again_elsewhere():
    timer = Timer(random_program(DEFAULT, 1)[0], DEFAULT)
    slow, quick = timer.run(MemoryModel(latency_cycles=300)), timer.run(MemoryModel())
    assert slow.cycles > quick.cycles
    assert timer.run().cycles == quick.cycles


def test_an_empty_program_is_only_fetched():
    timing = time_program([Halt()], DEFAULT)
    assert timing.spans.tolist() == [[-1, -1]]
    assert timing.counters["FETCHED"] == 0
    assert [step.wait for step in critical_path(timing)] == [Wait.FETCH]
    assert timing.times.shape == (1, len(COLUMNS))


def test_syncs_retire_in_order_with_the_rest():
    program = [GEMM, Sync(target=Unit.GEMM), GEMM, Halt()]
    timing = time_program(program, DEFAULT)
    retired = timing.column("retired")[:3]
    assert retired[0] < retired[1] < retired[2]
    assert timing.column("start")[1] < retired[0]


def test_without_a_compiler_the_definition_tells_the_time(monkeypatch, capsys):
    expected = time_program([GEMM, Halt()], DEFAULT)
    monkeypatch.setenv("CXX", "no-such-compiler")
    from tilewright.sim.timing import native

    native.library.cache_clear()
    try:
        found = time_program([GEMM, Halt()], DEFAULT)
    finally:
        monkeypatch.undo()
        native.library.cache_clear()
    assert found.cycles == expected.cycles
    np.testing.assert_array_equal(found.times, expected.times)
    assert "timing in Python" in capsys.readouterr().err
