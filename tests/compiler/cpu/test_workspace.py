"""Kernels share the memory of their buffers, but not while they run."""

from tilewright.compiler.cpu.workspace import LEAST_BYTES, give_back, take


def test_memory_that_is_given_back_is_taken_again() -> None:
    first = take(1000, 64)
    give_back(first)
    assert take(LEAST_BYTES, 64) is first
    give_back(first)


def test_memory_in_use_is_nobody_elses() -> None:
    first, second = take(1000, 64), take(1000, 64)
    assert first is not second
    assert abs(first.address - second.address) >= LEAST_BYTES
    give_back(first)
    give_back(second)


def test_larger_memory_replaces_what_is_too_small() -> None:
    small = take(1000, 64)
    give_back(small)
    large = take(2 * LEAST_BYTES, 64)
    assert large is not small
    assert large.size >= 2 * LEAST_BYTES
    assert large.address % 64 == 0
    give_back(large)
    assert take(1000, 64) is large
    give_back(large)
