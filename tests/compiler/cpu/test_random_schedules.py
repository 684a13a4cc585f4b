"""Any legal schedule of any kernel compiles to code that computes, bit for bit, what it means."""

import random
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.cpu import Declared, compile_kernel
from tilewright.compiler.cpu.target import LEVELS
from tilewright.compiler.te.target import REGISTER
from tilewright.compiler.tensor import evaluate

from ...processor import target_at
from ..te.random_schedules import random_kernel, random_step

CASES = 20


def random_steps(pick: random.Random, kernel, target) -> te.Schedule:
    """A schedule of legal steps for a processor; buffers in registers among them."""
    schedule = te.Schedule(kernel, target.processor)
    for _ in range(pick.randint(1, 30)):
        step = random_step(pick, schedule)
        if isinstance(step, te.CacheRead | te.CacheWrite | te.SetScope):
            step = replace(step, scope=pick.choice(["DRAM", REGISTER]))
        with suppress(te.ScheduleError):
            schedule.apply(step)
    return schedule


def check_case(seed: int, level: str, threads: int) -> None:
    pick = random.Random(seed)
    kernel, inputs = random_kernel(pick)
    target = target_at(level)
    schedule = random_steps(pick, kernel, target)
    compiled = compile_kernel(Declared(kernel, str(schedule)), target, threads)
    got = compiled(*(inputs[name] for name in kernel.inputs))
    expected = evaluate(kernel, inputs)
    message = f"seed {seed}:\n{schedule}\n{schedule.program()}"
    np.testing.assert_array_equal(got, expected, message)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("batch", range(2))
def test_code_of_any_schedule_computes_the_kernel(level: str, batch: int) -> None:
    for seed in range(batch * CASES, (batch + 1) * CASES):
        check_case(seed, level, threads=1 + seed % 2)
