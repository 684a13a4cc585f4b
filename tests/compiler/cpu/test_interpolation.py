"""Weighted sums along one axis, against their definition."""

import numpy as np
import pytest

from tilewright.compiler.cpu import CpuTarget, compile_kernel, host
from tilewright.compiler.graph.operators import Interpolate
from tilewright.compiler.host.interpolations import windows_of

from ...processor import VECTOR_LEVELS, target_at
from .arrays import GENERATOR, normal

EXTENTS = {
    "whole blocks": (12, 96),
    "a block cut off": (33, 129),
    "smaller": (50, 21),
    "no even ratio": (37, 64),
    "from one element": (1, 9),
    "to one element": (9, 1),
}
AROUND = {"along rows": (5, 1), "rows as vectors": (2, 20), "short rows": (3, 3)}


def linear(size: int, extent: int) -> tuple[np.ndarray, np.ndarray]:
    """Places and weights of each element between its neighbours."""
    centres = np.clip((np.arange(extent) + 0.5) * size / extent - 0.5, 0, size - 1)
    below = np.floor(centres).astype(np.int64)
    share = (centres - below).astype(np.float32)
    places = np.stack([below, np.minimum(below + 1, size - 1)], axis=1)
    return places, np.stack([1 - share, share], axis=1)


def assert_agrees(
    outer: int, size: int, inner: int, places: np.ndarray, weights: np.ndarray, target: CpuTarget
) -> None:
    kernel, table = windows_of(places, weights, outer, size, inner, target.lanes)
    x = normal(outer, size, inner)
    got = compile_kernel(kernel, target).bind(weights=table)(x)
    expected = Interpolate(1).compute(x, places, weights)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("extents", EXTENTS)
def test_between_neighbours(extents: str, around: str, level: str) -> None:
    (size, extent), (outer, inner) = EXTENTS[extents], AROUND[around]
    assert_agrees(outer, size, inner, *linear(size, extent), target_at(level))


@pytest.mark.parametrize("around", AROUND)
def test_any_places_in_any_order(around: str) -> None:
    """Places may repeat and lie far apart, and weights may be 0."""
    outer, inner = AROUND[around]
    places = GENERATOR.integers(0, 11, (29, 4))
    weights = normal(29, 4) * (GENERATOR.random((29, 4)) < 0.7)
    weights[3] = 0
    assert_agrees(outer, 11, inner, places, weights.astype(np.float32), host())


@pytest.mark.parametrize("around", AROUND)
def test_what_is_not_finite_reaches_its_own_neighbours_alone(around: str) -> None:
    outer, inner = AROUND[around]
    x = normal(outer, 12, inner)
    x[:, 4], x[:, 9] = np.inf, np.nan
    places, weights = linear(12, 36)
    target = host()
    kernel, table = windows_of(places, weights, outer, 12, inner, target.lanes)
    got = compile_kernel(kernel, target).bind(weights=table)(x)
    spoilt = ((weights != 0) & np.isin(places, (4, 9))).any(axis=1)
    assert kernel.taps > 2
    np.testing.assert_array_equal(np.isfinite(got).all(axis=(0, 2)), ~spoilt)


def test_the_windows_of_even_steps_are_short() -> None:
    kernel, _ = windows_of(*linear(64, 128), 1, 64, 32, 16)
    assert (kernel.block, kernel.advance, kernel.first, kernel.taps) == (2, 1, -1, 3)
