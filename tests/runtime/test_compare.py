"""Distances between arrays, also for NaNs and infinities."""

import numpy as np
import pytest

from tilewright.runtime.compare import TOLERANCE, Tally, relative_distance

INF, NAN = np.inf, np.nan


def numbers(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("got", "expected", "distance"),
    [
        (1.0, 1.0, 0.0),
        (1.5, 1.0, 0.5),
        (NAN, NAN, 0.0),
        (INF, INF, 0.0),
        (0.0, NAN, INF),
        (NAN, 1.0, INF),
        (INF, 1.0, INF),
        (1e30, INF, INF),
        (-INF, -2.9e38, INF),
        (-INF, NAN, INF),
    ],
)
def test_distances_of_single_numbers(got: float, expected: float, distance: float) -> None:
    ours, wanted = numbers(got, 0.0), numbers(expected, 1.0 if expected == 1.0 else 0.0)
    assert relative_distance(ours, wanted)[0] == distance


def test_a_tally_tells_the_first_number_beyond_the_tolerance() -> None:
    tally = Tally("layer", tolerance=TOLERANCE)
    expected = numbers(4.0, 3.0, NAN)
    tally.add(numbers(4.0, 3.0 + 2 * TOLERANCE, NAN), expected, "sample 0")
    assert not tally.differing
    tally.add(numbers(4.0, 3.01, 0.0), expected, "sample 1")
    assert (tally.differing, tally.values) == (2, 6)
    assert tally.first.startswith("sample 1: at [1] expected 3.0, got 3.0")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nans_of_any_payload_are_equal(dtype: str) -> None:
    quiet = np.array([1, NAN], np.dtype(dtype))
    other = quiet.copy()
    other.view(f"u{quiet.dtype.itemsize}")[1] += 1
    tally = Tally("layer")
    tally.add(other, quiet, "sample 0")
    assert not tally.differing
