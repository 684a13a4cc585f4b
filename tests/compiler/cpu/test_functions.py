"""Errors of the elementary functions against correctly rounded results, in ULP."""

import numpy as np
import pytest
from scipy import special

from tilewright.compiler.cpu import Elementwise, compile_kernel

from ...processor import VECTOR_LEVELS, target_at

COUNT = 1 << 20
SPANS = {
    "exp": (-104, 89),
    "decay": (-87.68, 0),
    "log": None,
    "tanh": (-10, 10),
    "erf": (-5, 5),
    "sigmoid": (-86.98, 88),
    "sin": (-200, 200),
    "cos": (-200, 200),
}
EXACT = {
    "exp": np.exp,
    "decay": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": special.erf,
    "sigmoid": special.expit,
    "sin": np.sin,
    "cos": np.cos,
    "gelu": lambda x: x * special.ndtr(x),
}
LIMITS = {"exp": 1.01, "decay": 1.01, "log": 1.0, "tanh": 3.0, "erf": 2.0, "sigmoid": 3.0}
LIMITS |= {"sin": 2.0, "cos": 2.0}


def computed(name: str, x: np.ndarray, level: str) -> np.ndarray:
    chain = Elementwise((1, x.size), (("x", "float32"),), (name, "x"))
    return compile_kernel(chain, target_at(level))(x.reshape(1, -1)).reshape(-1)


def dense(span: tuple[float, float] | None) -> np.ndarray:
    """Numbers all over a span and, on a logarithmic scale, around zero; all positive without."""
    bits = np.linspace(1, 0x7F7FFFFF, COUNT).astype(np.int32).view(np.float32)
    if span is None:
        return bits
    near = bits[bits < 1]
    even = np.linspace(*span, COUNT, dtype=np.float32)
    numbers = np.concatenate([even, near, -near])
    return numbers[(span[0] <= numbers) & (numbers <= span[1])]


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units in the last place of the rounded result."""
    rounded = exact.astype(np.float32)
    unit = np.spacing(np.abs(rounded)).astype(np.float64)
    inside = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~inside], rounded[~inside])
    return float(np.max(np.abs(got.astype(np.float64) - exact)[inside] / unit[inside]))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("name", SPANS)
def test_error_is_within_what_the_docstring_says(name: str, level: str) -> None:
    x = dense(SPANS[name])
    with np.errstate(all="ignore"):
        error = ulps(computed(name, x, level), EXACT[name](x.astype(np.float64)))
    assert error <= LIMITS[name]


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_of_large_numbers_are_as_exact(name: str, level: str) -> None:
    """Also near multiples of a quadrant, where most digits cancel, and in vectors of both kinds."""
    quadrants = (np.arange(1, 1 << 18) * (np.pi / 2)).astype(np.float32)
    positive = np.concatenate([dense(None), quadrants, 1e30 * quadrants])
    x = np.concatenate([positive, -positive])
    for numbers in (x, np.random.default_rng(3).permutation(x)):
        error = ulps(computed(name, numbers, level), EXACT[name](numbers.astype(np.float64)))
        assert error <= LIMITS[name]


@pytest.mark.parametrize("level", VECTOR_LEVELS)
def test_gelu_is_near_in_absolute_terms(level: str) -> None:
    x = dense((-10, 10))
    got, exact = computed("gelu", x, level), EXACT["gelu"](x.astype(np.float64))
    assert np.max(np.abs(got - exact) / np.maximum(np.abs(x), 1)) <= 1.5e-7


@pytest.mark.parametrize("level", VECTOR_LEVELS)
def test_ends_of_the_range_are_ieee(level: str) -> None:
    infinity, nothing = np.float32("inf"), np.float32("nan")
    cases = {
        "exp": [(infinity, infinity), (-infinity, 0), (nothing, nothing), (0, 1), (100, infinity)],
        "decay": [(-infinity, 0), (-87.69, 0), (nothing, nothing), (0, 1)],
        "log": [(infinity, infinity), (0, -infinity), (-1, nothing), (nothing, nothing), (1, 0)],
        "tanh": [(infinity, 1), (-infinity, -1), (nothing, nothing), (0, 0), (-0.0, -0.0)],
        "erf": [(infinity, 1), (-infinity, -1), (nothing, nothing), (0, 0), (-0.0, -0.0)],
        "sigmoid": [(infinity, 1), (-infinity, 0), (-86.99, 0), (nothing, nothing), (0, 0.5)],
        "sin": [(infinity, nothing), (nothing, nothing), (0, 0), (-0.0, -0.0), (1e-45, 1e-45)],
        "cos": [(-infinity, nothing), (nothing, nothing), (0, 1), (-0.0, 1)],
        "sqrt": [(infinity, infinity), (-1, nothing), (4, 2), (0, 0)],
    }
    for name, pairs in cases.items():
        x, expected = (np.array(part, np.float32) for part in zip(*pairs, strict=True))
        got = computed(name, x, level)
        np.testing.assert_array_equal(got, expected, name)
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]), name)
