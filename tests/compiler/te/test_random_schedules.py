"""Any legal schedule of any kernel computes, bit for bit, what the kernel means."""

import random
from collections import Counter

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.te.nodes import nodes
from tilewright.compiler.te.steps import STEPS
from tilewright.compiler.tensor import evaluate

from .random_schedules import TARGET, random_kernel, random_schedule

CASES, BATCH = 500, 125


def check_case(seed: int) -> tuple[te.Schedule, int]:
    """One kernel under one schedule; the schedule and the number of refused steps."""
    pick = random.Random(seed)
    kernel, inputs = random_kernel(pick)
    schedule, refused, harmful = random_schedule(pick, kernel, pick.randint(1, 30))
    assert not harmful, f"seed {seed}: {harmful[0]} was refused and changed the schedule"
    program = schedule.program()
    got = te.interpret(program, inputs, seed)
    expected = evaluate(kernel, inputs)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected, f"seed {seed}:\n{schedule}\n{program}")
    again = te.Schedule.parse(kernel, str(schedule), TARGET)
    assert again.program() == program, f"seed {seed}"
    assert str(again) == str(schedule)
    return schedule, refused


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_every_legal_schedule_keeps_the_meaning(first):
    taken, refusals = Counter(), 0
    for seed in range(first, first + BATCH):
        schedule, refused = check_case(seed)
        taken.update(step.name for step in schedule.steps)
        refusals += refused
    assert refusals > BATCH
    # `bind` is for GPUs, `carry` for softmaxes; other tests take them.
    assert min(taken[name] for name in STEPS if name not in ("bind", "carry")) > 3, taken


def test_random_schedules_reach_every_kind_of_program():
    """Tails, borders, transfers and instructions, so that the test above is about them."""
    kinds = Counter()
    for seed in range(200):
        pick = random.Random(seed)
        kernel, _ = random_kernel(pick)
        schedule, _, _ = random_schedule(pick, kernel, pick.randint(1, 30))
        for node in nodes(schedule.program().body):
            kinds[type(node).__name__] += 1
    assert all(kinds[name] > 30 for name in ("Guard", "Let", "TransferNest", "InstructionNest")), (
        kinds
    )
