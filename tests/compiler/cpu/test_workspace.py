"""Kernels share the memory of their buffers, but not while they run."""

import pytest

from tilewright.compiler.cpu.execution import workspace
from tilewright.compiler.cpu.execution.workspace import MIN_BYTES, Workspace, give_back, take


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_free", [])


def test_memory_that_is_given_back_is_taken_again() -> None:
    first = take(1000)
    give_back(first)
    assert take(MIN_BYTES) is first


def test_memory_in_use_is_nobody_elses() -> None:
    first, second = take(1000), take(1000)
    assert abs(first.address - second.address) >= MIN_BYTES
    assert first.address % 64 == second.address % 64 == 0


def test_the_smallest_that_fits_is_taken() -> None:
    large, small = take(3 * MIN_BYTES), take(1000)
    give_back(large)
    give_back(small)
    assert take(1000) is small
    assert take(2 * MIN_BYTES) is large
    assert take(1000) not in (small, large)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "MAX_BYTES", 2 * MIN_BYTES)
    give_back(take(3 * MIN_BYTES))
    assert not workspace._free
    for space in [take(1000) for _ in range(workspace.MAX_SPACES + 3)]:
        give_back(space)
    assert len(workspace._free) == workspace.MAX_SPACES


def test_memory_that_another_thread_takes_first_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Contended(list[Workspace]):
        def remove(self, value: Workspace) -> None:
            super().remove(value)
            if len(self) == 1:
                raise ValueError  # as if another thread had just taken it

    first, second = take(1000), take(1000)
    monkeypatch.setattr(workspace, "_free", Contended([first, second]))
    assert take(1000) is second
