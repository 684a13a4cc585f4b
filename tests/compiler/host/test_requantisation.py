"""The contract's requantisation on the host's vectors: ties, ends of the range, all sums."""

import numpy as np
import pytest

from tilewright.compiler.cpu import (
    LEVELS,
    Convolution,
    MatrixProduct,
    Requantisation,
    compile_kernel,
)
from tilewright.compiler.host.integer_bounds import are_narrow, fits, is_plain, largest_sums
from tilewright.isa.numbers import EXACT_LIMIT, quantise_output

from ...processor import target_at
from .agreement import is_guarded, selected
from .integer_graphs import assert_same, of_layer, qconv

POWERS = [1 << power for power in range(31)]
EDGES = sorted({sign * (p + d) for p in POWERS for d in (-2, -1, 0, 1, 2) for sign in (-1, 1)})
EDGES += [-(1 << 31), (1 << 31) - 1, 255, 257, 3 << 22, 0xFFFFFF, -0xFFFFFF]
HALVES = [2.0**-power for power in (1, 2, 3, 7, 15, 16, 17, 24, 31, 126)]
NEXT = [float(np.nextafter(np.float32(half), np.float32(0))) for half in HALVES]
OTHERS = [1 / 3, 0.1, 1.0, 1.0000001, 255.0, 256.0, 511.9999, 1e9, 3e38, -0.5, -3e-6, 1e-40]
SCALES = np.array([*HALVES, *(1.5 * half for half in HALVES), *NEXT, *OTHERS], np.float32)
WILD = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45], np.float32)


def pairs(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every edge with every scale; and for each scale, the accumulators next to its ties."""
    totals = [np.array(EDGES, np.int64)] * len(scales)
    for index, scale in enumerate(scales):
        if np.isfinite(scale) and scale != 0:
            ties = (np.arange(-140, 141) + 0.5) / float(scale)
            near = np.floor(ties[np.abs(ties) < EXACT_LIMIT]).astype(np.int64)
            totals[index] = np.concatenate([totals[index], near - 1, near, near + 1])
    chosen = np.concatenate(totals)
    factors = np.concatenate(
        [np.full(len(part), scale) for part, scale in zip(totals, scales, strict=True)]
    )
    inside = (chosen >= -(1 << 31) + 1) & (chosen < 1 << 31)
    return chosen[inside].astype(np.int32), factors[inside].astype(np.float32)


def layer_of(totals: np.ndarray, scales: np.ndarray, zero_point: int):
    """A layer whose accumulators are these, whatever its input."""
    w = np.zeros((1, 1, 1, len(totals)), np.int8)
    operator = qconv(zero_point_y=zero_point, low=-128, high=120)
    return of_layer(operator, [(1, 1, 1, 1)], w, totals, scales)


def guarded(graph) -> bool:
    (kernel,) = selected(graph)
    return is_guarded(kernel.description)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("zero_point", [-128, 3, 127])
def test_the_plain_form_has_the_bits_wherever_it_is_taken(zero_point: int, level: str) -> None:
    totals, scales = pairs(SCALES)
    sizes = np.abs(totals.astype(np.int64))
    plain = np.array([is_plain(*pair) for pair in zip(sizes, scales, strict=True)])
    assert plain.sum() > 10000
    graph = layer_of(totals[plain], scales[plain], zero_point)
    assert not guarded(graph)
    assert len(np.unique(assert_same(graph, level))) > 100


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("zero_point", [-128, 3, 127])
def test_the_guarded_form_has_the_bits_for_all_totals_and_scales(zero_point, level) -> None:
    graph = layer_of(*pairs(np.concatenate([SCALES, WILD])), zero_point)
    assert guarded(graph)
    assert_same(graph, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scale", [2.0**-9, 1 / 300, 5e-5])
def test_all_accumulators_below_2_to_the_24(scale: float, level: str) -> None:
    """256 bytes times 1, plus a multiple of 256 for each channel."""
    bias = np.arange(-EXACT_LIMIT + 256, EXACT_LIMIT - 128, 256, dtype=np.int32)
    scales = np.full(len(bias), scale, np.float32)
    epilogue = Requantisation("int8", -7).epilogue()
    w = np.ones((1, 1, 1, len(bias)), np.int8)
    assert is_plain(largest_sums(w, bias), scales)
    x = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 256, 1)
    layer = Convolution(1, 1, 256, 1, len(bias), dtype="int8", epilogue=epilogue)
    got = compile_kernel(layer, target_at(level)).bind(w=w, bias=bias, scale=scales)(x)
    near = np.flatnonzero(np.abs(bias) * scale < 400)
    totals = x.reshape(-1, 1).astype(np.int32) + bias[near]
    np.testing.assert_array_equal(got[0, 0][:, near], quantise_output(totals, scales[near], -7))
    high, low = got[0, 0][:, bias * scale >= 400], got[0, 0][:, bias * scale <= -400]
    assert np.all(high == 127)
    assert np.all(low == -128)


def test_the_plain_form_is_wrong_beyond_its_limits() -> None:
    """So that the guarded form is not there for nothing."""
    for total, scale in [(1 << 24, 2.0**-18), (1 << 23, 300.0)]:
        assert not is_plain(total, scale)
        epilogue = Requantisation("int8").epilogue()
        kernel = compile_kernel(MatrixProduct(1, 1, 1, "int8", epilogue))
        bound = kernel.bind(
            w=np.zeros((1, 1), np.int8),
            bias=np.array([total], np.int32),
            scale=np.array([scale], np.float32),
        )
        got = bound(np.zeros((1, 1), np.int8)).item()
        assert got != quantise_output(np.array([total]), np.float32(scale), 0).item()


def test_bounds_are_reached() -> None:
    w = np.array([[1, -3], [127, -128], [-128, 0]], np.int8).reshape(3, 1, 1, 2)
    bias = np.array([5, -7], np.int32)
    high = 5 + 128 * 127 + 128 * 128
    assert largest_sums(w, bias).tolist() == [high, max(7 + 131 * 127, 131 * 128 - 7)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("narrow", [True, False])
def test_float32_adds_what_it_holds_exactly(narrow: bool, level: str) -> None:
    """Depthwise, at the limit: 900 taps of 127, and a bias up to 2**24."""
    w = np.full((30, 30, 1, 2), -127, np.int8)
    limit = EXACT_LIMIT - 900 * 127 * 128 - narrow
    bias = np.array([limit, -limit], np.int32)
    assert are_narrow(w, bias) == narrow
    operator = qconv(2, zero_point_x=100, zero_point_y=-10)
    graph = of_layer(operator, [(1, 31, 34, 2)], w, bias, np.full(2, 2.0**-16, np.float32))
    (kernel,) = selected(graph, target_at(level))
    assert isinstance(kernel.description, Convolution)
    assert kernel.description.is_depthwise
    assert kernel.description.narrow == narrow
    assert_same(graph, level)


def test_accumulators_that_may_leave_int32_have_no_kernel() -> None:
    w, scale = np.full((1, 1, 1, 1), 127, np.int8), np.ones(1, np.float32)
    for bias, expected in (((1 << 31) - 1 - 127 * 127, 1), ((1 << 31) - 127 * 127, 0)):
        constants = (w, np.array([bias], np.int32), scale)
        graph = of_layer(qconv(), [(1, 1, 1, 1)], *constants)
        assert fits(largest_sums(w, constants[1])) == bool(expected)
        assert len(selected(graph)) == expected
