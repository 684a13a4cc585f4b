"""The order in which instructions are issued."""

from itertools import combinations

import numpy as np
import pytest

from tilewright.compiler.scheduling.issue_order import issue, reorder_loads
from tilewright.compiler.scheduling.load_order import WINDOW, LoadOrder, Span
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.checker import check
from tilewright.isa.configuration import PRESETS, Configuration, Memory
from tilewright.isa.footprints import (
    Footprint,
    Region,
    Shape,
    data_conflict,
    footprint,
    footprints_conflict,
)
from tilewright.isa.instructions import Gemm, Instruction, Load, Loop, Store, Unit
from tilewright.isa.semantics import Machine
from tilewright.sim.timing import ExactMeasure, time_program

NONE: frozenset[Unit] = frozenset()


def plain(seed: int, configuration: Configuration) -> list[Instruction]:
    """The instructions of a random program, without tokens."""
    program, _ = random_program(configuration, seed)
    return [one.with_tokens(NONE, NONE) for one in program[:-1] if not one.only_tokens]


@pytest.mark.parametrize("depth", [1, 2, 8])
@pytest.mark.parametrize("seed", range(12))
def test_dependent_instructions_keep_their_order(seed, depth):
    configuration = PRESETS["tiny"].replace(queue_depth=depth)
    instructions = plain(seed, configuration)
    before = issue(instructions, configuration, None)
    after = issue(instructions, configuration, ExactMeasure())
    assert sorted(after.order) == list(before.order)
    if list(after.order) == list(before.order):
        assert after.program == before.program
    place = {index: number for number, index in enumerate(after.order)}
    for one, other in combinations(range(len(instructions)), 2):
        first, second = (footprint(instructions[i], configuration) for i in (one, other))
        same = instructions[one].home is instructions[other].home
        if same or footprints_conflict(first, second):
            assert place[one] < place[other]
    assert after.cycles == time_program(after.program, configuration).cycles
    assert after.cycles <= time_program(before.program, configuration).cycles


@pytest.mark.parametrize("seed", range(12))
def test_loads_that_pass_others_leave_results_unchanged(seed):
    configuration, measure = PRESETS["tiny"], ExactMeasure()
    program, image = random_program(configuration, seed)
    instructions = plain(seed, configuration)
    before = issue(instructions, configuration, measure)
    after = reorder_loads(instructions, before, configuration, measure)
    assert sorted(after.order) == list(range(len(instructions)))
    place = {index: number for number, index in enumerate(after.order)}
    used = [footprint(one, configuration) for one in instructions]
    for one, other in combinations(range(len(instructions)), 2):
        same = used[one].unit is used[other].unit is not Unit.LOAD
        if same or data_conflict(used[one], used[other]):
            assert place[one] < place[other]
    assert after.cycles == time_program(after.program, configuration).cycles <= before.cycles
    check(after.program, configuration, image.size)
    assert memory_after(after.program, image) == memory_after(program, image)


def memory_after(program, image: np.ndarray) -> bytes:
    dram = image.copy()
    Machine(PRESETS["tiny"], dram).run(program)
    return dram.tobytes()


def test_weights_pass_an_activation_that_is_not_stored_yet():
    """Its store, at byte 0, waits for a long load of what is stored."""
    configuration, measure = PRESETS["16x16"], ExactMeasure()
    activation = Load(destination=Memory.ACT, memory=0, local=0, length=64)
    weights = Load(destination=Memory.WGT, memory=8192, local=0, length=4096)
    instructions = [
        Load(destination=Memory.ACT, memory=4096, local=16384, length=2048),
        Store(source=Memory.ACT, memory=0, local=16384, length=2048),
        activation,
        weights,
        Gemm(act=0, wgt=0, acc=0),
    ]
    before = issue(instructions, configuration, measure)
    after = reorder_loads(instructions, before, configuration, measure)
    assert list(before.order) == [0, 1, 2, 3, 4]
    assert list(after.order).index(3) < list(after.order).index(2)
    assert after.cycles < before.cycles - 256


def test_a_product_passes_a_store_that_would_hold_its_bank():
    """The products behind it have another bank, so the store takes place beside them."""
    configuration, measure = PRESETS["16x16"], ExactMeasure()
    rows = (Loop(1000, (1, 1)),)
    instructions = [
        Load(destination=Memory.ACT, memory=0, local=0, length=4096),
        Load(destination=Memory.WGT, memory=8192, local=0, length=256),
        Store(source=Memory.ACT, memory=16384, local=0, length=4096),
        Gemm(act=0, wgt=0, acc=0),
        Gemm(act=configuration.act_depth, wgt=0, acc=16, row_loops=rows),
    ]
    before = issue(instructions, configuration, measure)
    after = reorder_loads(instructions, before, configuration, measure)
    assert list(after.order).index(3) < list(after.order).index(2)
    assert after.cycles < before.cycles - 400


def test_no_more_loads_pass_than_may():
    """Of what is further ahead, dependences are not known."""
    place = Region(Memory.ACC, 0, 15, Shape(16, ()), "acc", writes=True, row=16)
    gemm = Footprint(Unit.GEMM, 0, 2, (), (place,), 0, -1)
    waits = Footprint(Unit.LOAD, 2, 0, (place._replace(writes=False),), (), 0, -1)
    other = Footprint(Unit.LOAD, 0, 0, (), (), 0, -1)
    used = [gemm, waits, *[other] * 200]
    spans = [Span(0, 0, 9999, 9999), *[Span(0, 0, 9, 9)] * 201]
    loads = LoadOrder(range(202), used, spans, {})
    assert loads.passing(1 << 30) == [0, *range(2, 2 + WINDOW), 1, *range(2 + WINDOW, 202)]
