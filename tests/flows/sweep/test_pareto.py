"""Fronts against their definition."""

import numpy as np
import pytest

from tilewright.flows.sweep.pareto import Front, front, hypervolume


def by_definition(values: np.ndarray) -> np.ndarray:
    beaten = [
        any((other <= one).all() and (other < one).any() for other in values) for one in values
    ]
    return ~np.array(beaten) & np.isfinite(values).all(axis=1)


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [1, 7, 700])
def test_a_front_is_what_its_definition_says(objectives, size):
    chance = np.random.default_rng(size + objectives)
    values = chance.integers(0, 30, (size, objectives)).astype(float)
    values[chance.random(values.shape) < 0.02] = np.inf
    if size < 100:
        assert front(values).tolist() == by_definition(values).tolist()
    else:
        some = front(values)
        assert some.tolist() == by_definition(values).tolist()
        assert 0 < some.sum() < size


def test_a_growing_front_is_the_front_of_what_it_took():
    values = np.random.default_rng(1).integers(0, 12, (200, 2)).astype(float)
    growing = Front(2)
    for value in values:
        growing.add(value.tolist())
    assert len(growing) == len(np.unique(values[front(values)], axis=0))
    for value in values:
        better = any((v <= value).all() and (v < value).any() for v in values)
        assert growing.rules_out(value) is better
    assert not Front(2).rules_out([0.0, 0.0])


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_hypervolume_counts_the_dominated_cells(objectives):
    values = np.random.default_rng(objectives).integers(0, 9, (12, objectives)).astype(float)
    reference = np.arange(5.0, 5 + objectives)
    cells = np.stack(np.meshgrid(*(np.arange(each) for each in reference)), axis=-1)
    dominated = sum(
        any((value <= cell).all() for value in values) for cell in cells.reshape(-1, objectives)
    )
    assert hypervolume(values, reference) == dominated > 0
    assert hypervolume(values[front(values)], reference) == dominated
    assert hypervolume(values + 9, reference) == 0
