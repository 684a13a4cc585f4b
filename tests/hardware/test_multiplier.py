"""The multiplier in every description: portable, from logic, and from the cells of technologies."""

import numpy as np
import pytest
from amaranth.hdl import Fragment, Shape
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.hardware.multiplier import Multiplier
from tilewright.hardware.technology import Technology
from tilewright.hardware.wide_multiplier import WideMultiplier

from .conftest import Batch


def operands(shape: Shape, rng: np.random.Generator, count: int) -> np.ndarray:
    """Random integers, corners among them."""
    low = -(1 << (shape.width - 1)) if shape.signed else 0
    high = low + (1 << shape.width) - 1
    values = rng.integers(low, high, count, endpoint=True)
    corners = rng.choice([low, high, 0, low + 1, high - 1], count)
    return np.where(rng.random(count) < 0.1, corners, values)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 18),
    st.integers(2, 18),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_products_are_exact(left_width, right_width, left_signed, right_signed, in_fabric, seed):
    shapes = Shape(left_width, left_signed), Shape(right_width, right_signed)
    block = Multiplier(*shapes, in_fabric=in_fabric)
    rng = np.random.default_rng(seed)
    pairs = list(zip(*(operands(shape, rng, 20).tolist() for shape in shapes), strict=True))
    products = []

    async def bench(context):
        for left, right in pairs + [(0, 0)] * Multiplier.LATENCY:
            context.set(block.left, left)
            context.set(block.right, right)
            await context.tick()
            products.append(context.get(block.product))

    simulator = Simulator(Fragment.get(block, None))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    first = Multiplier.LATENCY - 1
    assert products[first : first + len(pairs)] == [left * right for left, right in pairs]


SHAPES = [(18, 16, True, False)]
SLOW = [(18, 18, True, True), (17, 17, False, False), (9, 18, False, True), (8, 9, False, True)]
SLOW += [(8, 8, True, True)]
MAPPED = [each for each in Technology if each is not Technology.SIMULATION]


@pytest.mark.parametrize(
    "shapes", [*SHAPES, *(pytest.param(s, marks=pytest.mark.slow) for s in SLOW)], ids=str
)
@pytest.mark.parametrize("in_fabric", [False, True], ids=["cell", "logic"])
@pytest.mark.parametrize("technology", MAPPED, ids=str)
def test_cells_multiply_exactly(technology, shapes, in_fabric, tmp_path):
    left, right = Shape(shapes[0], shapes[2]), Shape(shapes[1], shapes[3])
    block = Multiplier(left, right, in_fabric=in_fabric)
    rng = np.random.default_rng(shapes[0])
    count = 200_000
    stimuli = {"left": operands(left, rng, count), "right": operands(right, rng, count)}
    product = Batch(block, tmp_path, technology).run(count, **stimuli)["product"]
    latency = Multiplier.LATENCY
    expected = stimuli["left"] * stimuli["right"]
    np.testing.assert_array_equal(product[latency:], expected[:-latency])


@pytest.mark.parametrize(
    "technology", [Technology.ECP5, Technology.ICE40, Technology.XILINX7], ids=str
)
def test_the_product_of_wide_operands_is_exact(technology, tmp_path):
    rng, count = np.random.default_rng(4), 200_000
    stimuli = {name: operands(Shape(24), rng, count) for name in ("left", "right")}
    block = WideMultiplier(24, 17)
    product = Batch(block, tmp_path, technology).run(count, **stimuli)["product"]
    expected = stimuli["left"] * stimuli["right"]
    np.testing.assert_array_equal(product[block.LATENCY :], expected[: -block.LATENCY])
