"""TopK equals a stable sort, and ArgMax NumPy's, for tensors large enough for other algorithms."""

import numpy as np
import pytest

from tilewright.compiler.graph.operators import Reduce, TopK
from tilewright.compiler.graph.operators.reductions import LINE, LONG, PLANE, POSITIONS


def first(row: list[float], count: int, largest: bool) -> list[int]:
    """Return the indices by Python's stable sort; NaN is the largest element."""

    def key(index: int) -> tuple[bool, float]:
        value, none = row[index], row[index] != row[index]
        number = 0.0 if none else value
        return (not none, -number) if largest else (none, number)

    return sorted(range(len(row)), key=key)[:count]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("values", ["distinct", "equal", "NaN", "bytes"])
def test_the_elements_of_long_rows_come_as_from_a_stable_sort(values: str, largest: bool) -> None:
    chance = np.random.default_rng(0)
    x = chance.standard_normal((LONG + 9, 3)).astype(np.float32)
    if values != "distinct":
        x = np.round(x)
    if values == "NaN":
        x[chance.random(x.shape) < 0.1] = np.nan
        x[:, 2] = np.nan
    if values == "bytes":
        x = x.astype(np.int8)
    for count in (0, 1, 90, 200, LONG, LONG + 9):
        elements, indices = TopK(0, count, largest).compute(x)
        expected = np.array([first(row, count, largest) for row in x.T.tolist()], np.int64).T
        np.testing.assert_array_equal(indices, expected)
        np.testing.assert_array_equal(elements, np.take_along_axis(x, expected, axis=0))
        assert (elements.dtype, indices.dtype) == (x.dtype, np.int64)


@pytest.mark.parametrize("largest", [True, False])
def test_short_and_long_rows_are_ranked_alike(largest: bool, monkeypatch) -> None:
    monkeypatch.setattr("tilewright.compiler.graph.operators.reductions.LONG", 1)
    chance = np.random.default_rng(0)
    for _ in range(100):
        shape = tuple(chance.integers(1, 8, chance.integers(1, 4)))
        axis = int(chance.integers(len(shape)))
        x = chance.integers(0, 5, shape).astype(np.float16)
        x[x == 0] = np.nan
        operator = TopK(axis, int(chance.integers(0, shape[axis] + 1)), largest)
        _, indices = operator.compute(x)
        rows = np.moveaxis(x, axis, -1).reshape(-1, shape[axis]).tolist()
        expected = [first(row, operator.count, largest) for row in rows]
        found = np.moveaxis(indices, axis, -1).reshape(len(rows), operator.count)
        assert found.tolist() == expected


@pytest.mark.parametrize("kind", POSITIONS)
@pytest.mark.parametrize("values", ["float32", "int8", "NaN"])
def test_the_extremes_of_large_planes_are_found_in_numpys_places(kind: str, values: str) -> None:
    chance = np.random.default_rng(0)
    x = chance.integers(-2, 3, (2, 5, PLANE // LINE, LINE))
    x = x.astype(np.int8 if values == "int8" else np.float32)
    if values == "NaN":
        x[chance.random(x.shape) < 0.1] = np.nan
    find = np.argmax if kind.endswith("ArgMax") else np.argmin
    for axis in (0, 1):
        expected = find(x, axis=axis, keepdims=True)
        if kind.startswith("Last"):
            expected = (
                len(np.moveaxis(x, axis, 0)) - 1 - find(np.flip(x, axis), axis, keepdims=True)
            )
        found = Reduce(kind, (axis,), True).compute(x)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.int64
        found = Reduce(kind, (axis,), False).compute(x)
        np.testing.assert_array_equal(found, np.squeeze(expected, axis))
