"""Plans of products: parts of long sums, the order of blocks, and the space of all answers."""

import random
from functools import partial

import numpy as np
import pytest

from tilewright import te
from tilewright.compiler.cpu import MatrixProduct, Requantisation
from tilewright.compiler.cpu.kernels.choices import Choice, Choices, choice_of
from tilewright.compiler.gpu import GpuTarget, compile_kernel, compile_program, default_schedule
from tilewright.compiler.gpu.product_plans import ProductPlan
from tilewright.compiler.gpu.schedules import product_plan
from tilewright.compiler.tensor import Kernel, evaluate
from tilewright.errors import CompileError
from tilewright.runtime.gpu.opencl import OpenClDriver

from .kernels import product
from .running import Runner, drawn, run_module, run_opencl, run_schedule

OPENCL = GpuTarget("opencl")
TWO_ORDERS = "together", "descending"


def check(kernel: Kernel, target: GpuTarget, text: str, driver: OpenClDriver | None = None) -> None:
    schedule = default_schedule(kernel, target, Choices(choice_of(text)))
    given = drawn(kernel)
    expected = np.asarray(evaluate(kernel, given))
    close = np.testing.assert_array_equal
    if expected.dtype.kind == "f":
        close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    runs: list[Runner] = [partial(run_module, order=order) for order in TWO_ORDERS]
    if driver is not None:
        runs = [partial(run_opencl, driver)]
    for run in runs:
        close(run_schedule(schedule, given, run), expected)


def plan(kernel: Kernel, target: GpuTarget, choice: Choice = ()) -> ProductPlan:
    found = product_plan(kernel, target, Choices(choice))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("sizes", "dtype", "level"),
    [
        ((64, 40, 192), "int8", "sm80"),
        ((128, 40, 192), "float16", "sm90a"),  # copies by tensor maps
        ((50, 20, 51), "float32", "sm80"),
    ],
)
def test_parts_of_sums_and_groups_of_blocks_are_exact(
    sizes: tuple[int, int, int], dtype: str, level: str
):
    kernel, target = product(*sizes, dtype), GpuTarget(level)
    text = "split=3,group=2"
    found = plan(kernel, target, choice_of(text))
    assert (found.parts, found.group) == (3, 2)
    check(kernel, target, text)
    schedule = default_schedule(kernel, target, Choices(choice_of(text)))
    module = compile_program(schedule.program(), target)
    first, last = module.kernels
    assert first.grid == (found.blocks // 3, 1, 3)
    assert (first.tensors, last.tensors[-1]) == (("a", "b", "c.parts"), "c")
    if dtype == "int8":  # what follows the sums stays in the kernel that completes them
        assert last.tensors == ("c.parts", "scale", "c")


def test_parts_of_sums_are_interpreted_alike():
    for dtype in ("int8", "float32"):
        kernel = product(18, 17, 48, dtype)
        schedule = default_schedule(kernel, GpuTarget(), Choices((("split", 3),)))
        given = drawn(kernel)
        found, expected = te.interpret(schedule.program(), given), evaluate(kernel, given)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 if dtype != "int8" else 0)


@pytest.mark.opencl
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_parts_and_groups_run_on_other_gpus(dtype: str):
    check(product(50, 20, 64, dtype), OPENCL, "split=4,group=2", OpenClDriver())


def test_deep_sums_with_few_blocks_are_split():
    target = GpuTarget("sm80")
    deep = plan(product(49, 512, 4608, "float16"), target)
    assert deep.product.blocks(deep.tile) * 2 < target.multiprocessors
    assert deep.parts == 3
    assert deep.blocks <= target.multiprocessors
    assert plan(product(49, 512, 4608, "float16"), GpuTarget("sm80", units=48)).parts == 1
    assert plan(product(49, 512, 256, "float16"), target).parts == 1  # parts would be short
    assert plan(product(4096, 4096, 4096, "float16"), target).parts == 1


def test_more_blocks_than_multiprocessors_run_in_groups():
    assert plan(product(4096, 4096, 4096, "int8"), GpuTarget("sm80")).group == 8
    assert plan(product(4096, 128, 4096, "int8"), GpuTarget("sm80")).group == 1
    assert plan(product(256, 256, 4096, "int8"), GpuTarget("sm80")).group == 1


def drawn_point(kernel: Kernel, target: GpuTarget, seed: int) -> Choice:
    """A random point of the space."""
    draw, known = random.Random(seed), {}
    while True:
        choices = Choices(tuple(known.items()))
        product_plan(kernel, target, choices)
        name = next((one for one in choices.asked if one not in known), None)
        if name is None:
            return tuple(known.items())
        known[name] = draw.choice(choices.asked[name])


@pytest.mark.parametrize("level", ["sm80", "sm90a", "opencl"])
def test_every_answer_gives_a_legal_schedule(level: str):
    kernel = product(150, 140, 512, "int8")
    for seed in range(6):
        point = drawn_point(kernel, GpuTarget(level), seed)
        schedule = default_schedule(kernel, GpuTarget(level), Choices(point))
        GpuTarget(level).complete(schedule.program())


@pytest.mark.parametrize("seed", range(3))
def test_any_answers_compute_the_same(seed: int):
    kernel, target = product(70, 40, 128, "int8"), GpuTarget("sm80")
    point = drawn_point(kernel, target, seed)
    check(kernel, target, ",".join(f"{name}={value}" for name, value in point))


def test_wrong_answers_are_refused():
    kernel = MatrixProduct(64, 64, 128, "int8", Requantisation("int8", 3).epilogue())
    for text, message in (
        ("split=7", "`split=7`: expected one of 1, 2"),
        ("wings=2", "unknown choice `wings`"),
    ):
        with pytest.raises(CompileError, match=message):
            compile_kernel(kernel.with_choice(choice_of(text)), GpuTarget())
