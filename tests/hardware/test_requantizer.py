"""The block equals the NumPy definition, through Verilator on millions of totals."""

import numpy as np
import pytest
from amaranth.hdl import Shape
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.hardware.multiplier import Multiplier
from tilewright.hardware.requantizer import Requantizer
from tilewright.isa.numbers import quantise_output

CONSTANTS = [(0, -128, 127), (-128, -128, 127), (127, -128, 127), (-7, -7, 90), (3, 60, -60)]


@pytest.fixture(scope="module")
def requantizer(compile_block):
    return compile_block(Requantizer())


def stimuli(rng: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw totals and scale patterns: a third near ties, a third of useful size, a third any."""
    kinds = rng.integers(0, 3, pairs)
    sizes = rng.integers(0, 2**31, pairs) >> rng.integers(0, 31, pairs)
    totals = sizes * rng.choice([-1, 1], pairs)
    useful = 135 - np.frexp(sizes + 0.5)[1] + rng.integers(-11, 2, pairs)
    exponents = np.where(kinds == 2, rng.integers(0, 256, pairs), np.clip(useful, 1, 254))
    significands = rng.integers(2**23, 2**24, pairs)

    target = (rng.integers(0, 260, pairs) + 0.5) * 2.0 ** (150 - exponents)
    magnitudes = np.clip(target / significands, 1, 2**24 - 1).astype(np.int64)
    nearest = np.rint(target / magnitudes) + rng.integers(-1, 2, pairs)
    near = (kinds == 0) & (nearest >= 2**23) & (nearest < 2**24)
    totals = np.where(near, magnitudes * np.sign(totals + 0.5).astype(np.int64), totals)
    significands = np.where(near, nearest, significands).astype(np.int64)
    signs = (rng.random(pairs) < 0.1).astype(np.int64) << 31
    return totals, signs | exponents << 23 | significands & 0x7FFFFF


def assert_block_is_the_definition(block, rng, pairs: int, constants, scaled: bool = True) -> None:
    zero_point, low, high = constants
    totals, patterns = stimuli(rng, pairs)
    flush = (0, Requantizer.LATENCY)
    outputs = block.run(
        pairs + Requantizer.LATENCY,
        total=np.pad(totals, flush),
        scale=np.pad(patterns, flush),
        scaled=int(scaled),
        zero_point=zero_point,
        low=low,
        high=high,
    )
    scales = patterns.astype(np.uint32).view(np.float32) if scaled else None
    expected = quantise_output(totals.astype(np.int32), scales, zero_point, low, high)
    np.testing.assert_array_equal(outputs["result"][Requantizer.LATENCY :], expected)


@pytest.mark.parametrize("constants", CONSTANTS)
def test_block_equals_the_definition(requantizer, constants):
    rng = np.random.default_rng(sum(constants) & 0xFF)
    assert_block_is_the_definition(requantizer, rng, 200_000, constants)


def test_unscaled_totals_pass_saturated(requantizer):
    rng = np.random.default_rng(11)
    assert_block_is_the_definition(requantizer, rng, 100_000, (5, -100, 127), scaled=False)


@pytest.mark.slow
def test_block_equals_the_definition_on_twenty_million_pairs(requantizer):
    rng = np.random.default_rng(12)
    for zero_point in [-128, -64, 0, 64, 127] * 2:  # the outer ones show totals beyond int8
        assert_block_is_the_definition(requantizer, rng, 2_000_000, (zero_point, -128, 127))


@settings(max_examples=20, deadline=None)
@given(
    st.integers(2, 33), st.integers(2, 24), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1)
)
def test_multiplier_multiplies_exactly(left_width, right_width, left_signed, right_signed, seed):
    left, right = Shape(left_width, left_signed), Shape(right_width, right_signed)
    block = Multiplier(left, right)
    rng = np.random.default_rng(seed)

    def pick(shape):
        low = -(1 << (shape.width - 1)) if shape.signed else 0
        corners = [low, low + (1 << shape.width) - 1, 0]
        return corners + [low + int(rng.integers(0, 1 << shape.width)) for _ in range(5)]

    pairs = list(zip(pick(left), pick(right), strict=True))
    products = []

    async def bench(context):
        for operands in pairs + [(0, 0)] * Multiplier.LATENCY:
            context.set(block.left, operands[0])
            context.set(block.right, operands[1])
            await context.tick()
            products.append(context.get(block.product))

    simulator = Simulator(block)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    first = Multiplier.LATENCY - 1
    assert products[first : first + len(pairs)] == [a * b for a, b in pairs]
