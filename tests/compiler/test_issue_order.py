"""The order in which instructions are issued."""

from itertools import combinations

import pytest

from tilewright.compiler.scheduling.issue_order import issue
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.footprints import footprint, footprints_conflict
from tilewright.isa.instructions import Instruction, Unit
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
