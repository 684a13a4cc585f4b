"""Allocation of activations in main memory, from the producer to the last reader.

First fit over lifetimes: a value takes the lowest gap among the values alive at the same time.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ...aligned import align


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value of `size` bytes, alive from step `first` to step `last`, both included."""

    name: str
    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offset per value, total bytes, and the maximum bytes alive at any step."""

    offsets: Mapping[str, int]
    size: int
    lower_bound: int


def plan_memory(lifetimes: list[Lifetime]) -> MemoryPlan:
    """Place every value: larger values first, then in order of creation."""
    placed: list[tuple[Lifetime, int]] = []
    for value in sorted(lifetimes, key=lambda v: (-v.size, v.first, v.name)):
        taken = sorted(
            (offset, offset + align(other.size))
            for other, offset in placed
            if other.first <= value.last and value.first <= other.last
        )
        offset = 0
        for low, high in taken:
            if offset + align(value.size) <= low:
                break
            offset = max(offset, high)
        placed.append((value, offset))
    steps = {step for value in lifetimes for step in (value.first, value.last)}
    alive = [
        sum(align(v.size) for v in lifetimes if v.first <= step <= v.last) for step in sorted(steps)
    ]
    return MemoryPlan(
        {value.name: offset for value, offset in placed},
        max((offset + align(value.size) for value, offset in placed), default=0),
        max(alive, default=0),
    )
