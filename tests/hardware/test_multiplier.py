"""The multiplier in every description: portable, from logic, and from the cells of technologies."""

import numpy as np
import pytest
from amaranth.back import rtlil
from amaranth.hdl import Fragment, Shape
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.hardware.multiplier import Multiplier
from tilewright.hardware.technology import Technology
from tilewright.hardware.wide_multiplier import WideMultiplier

from .conftest import Batch, Several


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


QUICK = [(18, 16, True, False)]
SLOW = [(18, 18, True, True), (17, 17, False, False), (9, 18, False, True), (8, 9, False, True)]
SLOW += [(8, 8, True, True)]
MAPPED = [each for each in Technology if each is not Technology.SIMULATION]
EQUAL_CELLS = (Technology.GATEMATE, Technology.CYCLONE5, Technology.ASIC)
EQUAL_LOGIC = tuple(each for each in MAPPED if each is not Technology.ECP5)
COMPARED = [each for each in MAPPED if each not in EQUAL_CELLS[1:]]
"""The first technology stands for all those with equal RTLIL."""
of_shapes = pytest.mark.parametrize(
    "shapes", [QUICK, pytest.param(SLOW, marks=pytest.mark.slow)], ids=["widest", "others"]
)


@of_shapes
@pytest.mark.parametrize("technology", COMPARED, ids=str)
def test_cells_multiply_exactly(technology, shapes, tmp_path):
    rng, count = np.random.default_rng(18), 200_000
    blocks, inputs = {}, {}
    for index, (left, right, left_signed, right_signed) in enumerate(shapes):
        ports = {"left": Shape(left, left_signed), "right": Shape(right, right_signed)}
        for kind, in_fabric in (("cell", False), ("logic", True)):
            if in_fabric and technology in EQUAL_LOGIC and technology is not EQUAL_CELLS[0]:
                continue
            name = f"{kind}{index}"
            blocks[name] = Multiplier(*ports.values(), in_fabric=in_fabric)
            for port, shape in ports.items():
                inputs[f"{name}__{port}"] = operands(shape, rng, count)
    outputs = Batch(Several(blocks), tmp_path, technology).run(count, **inputs)
    for name in blocks:
        expected = inputs[f"{name}__left"] * inputs[f"{name}__right"]
        np.testing.assert_array_equal(
            outputs[f"{name}__product"][Multiplier.LATENCY :], expected[: -Multiplier.LATENCY], name
        )


@of_shapes
@pytest.mark.parametrize("technologies", [EQUAL_CELLS, EQUAL_LOGIC], ids=["cell", "logic"])
def test_equal_multipliers_are_compared_once(technologies, shapes):
    for left, right, left_signed, right_signed in shapes:
        ports = Shape(left, left_signed), Shape(right, right_signed)
        block = Multiplier(*ports, in_fabric=technologies is EQUAL_LOGIC)
        texts = {rtlil.convert(block, name="block", platform=each) for each in technologies}
        assert len(texts) == 1


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
