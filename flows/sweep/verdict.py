"""The answer of a sweep in words: the best machine, or what excluded the others and the nearest."""

import math
from collections import Counter
from collections.abc import Iterator

from ...wording import counted, three_digits
from .expressions import of_network
from .figures import CLOCK, heading_of
from .outcome import EXCLUDED, FAILED, OPEN, PointResult, SweepOutcome

MIN_MULTIPLE = 10
"""Misses from so many times the limit on are said as multiples, smaller ones in per cent."""


LEAST = {
    "cycles": "fewest cycles",
    "ms": "shortest time",
    "energy_uj": "least energy",
    "multipliers": "fewest multipliers",
    "ram": "fewest block RAMs",
    "lut": "fewest look-up tables",
    "ff": "fewest flip-flops",
    "gates": "fewest gates",
    "ram_bits": "fewest bits of RAM",
}
"""The property of the best point in an objective; without one, the smallest figure."""


def exclusion_sentence(outcome: SweepOutcome) -> str:
    """Say which conditions excluded how many points, each counted once; empty if none did."""
    counts = Counter(
        " and ".join(f"`{condition}`" for condition, _ in result.misses)
        for result in outcome.results
        if result.state == EXCLUDED
    )
    return ", ".join(f"{count:,} by {causes}" for causes, count in counts.most_common())


def verdict(outcome: SweepOutcome) -> list[str]:
    """Return the answer to the question that the conditions and objectives ask."""
    if outcome.front:
        within = " of those that meet every condition" if outcome.where else ""
        least = _least(outcome.objectives[0])
        left, failed = outcome.counts[OPEN], outcome.counts[FAILED]
        best = {id(result.point.setting): result for result in reversed(outcome.front)}
        first, *others = reversed(best.values())  # of each main memory, in the order of the space
        lines = [f"verdict: {name_of(first)} has the {least}{within}: {_times(first, outcome)}"]
        lines += [f"         {name_of(each)}: {_times(each, outcome)}" for each in others]
        if outcome.where and not others:  # who states what is enough may want the cheapest
            lines += _best_in_others(first, outcome)
        lines = [f"{line};" for line in lines[:-1]] + lines[-1:]
        lines[-1] += f"; {counted(left, 'point')} left to decide" if left else ""
        lines[-1] += f"; {counted(failed, 'point')} failed" if failed else ""
        return lines
    return list(_no_machine(outcome))


def _least(objective: str) -> str:
    return LEAST.get(objective) or f"smallest {heading_of(objective).partition(',')[0]}"


def _best_in_others(first: PointResult, outcome: SweepOutcome) -> Iterator[str]:
    """For each objective in which other points are better than the first, name the best one."""
    best: dict[str, list[str]] = {}
    for name in outcome.objectives[1:]:
        winner = min(outcome.front, key=lambda each: each.figures[name])
        if winner.figures[name] < first.figures[name]:
            line = f"{name_of(winner)} has the {{}}: {_times(winner, outcome)}"
            best.setdefault(line, []).append(_least(name))
    for line, figures in best.items():
        yield f"         {line.format(' and the '.join(figures))}"


def _no_machine(outcome: SweepOutcome) -> Iterator[str]:
    if left := outcome.counts[OPEN]:
        yield f"verdict: none yet, {counted(left, 'point')} left to decide"
        return
    count, failed = len(outcome.results), outcome.counts[FAILED]
    also = f", {failed:,} failed" if failed else ""
    compiled = "" if any(result.cycles for result in outcome.results) else "; nothing was compiled"
    yield f"verdict: no machine meets every condition, of {count:,} tried{also}{compiled}"
    excluded = [result for result in outcome.results if result.state == EXCLUDED]
    if excluded:
        # Machines that are small enough come first: of the others, times are not even bounded.
        nearest = min(
            excluded, key=lambda each: (not each.bounds, max(miss for _, miss in each.misses))
        )
        yield f"nearest: {name_of(nearest)} {_missed(nearest)}"
        if nearest.bounds:
            yield f"         it needs {_times(nearest, outcome)}"


def name_of(result: PointResult) -> str:
    """Return the values that a point chooses, as options write them."""
    chosen = result.point.chosen
    return ",".join(f"{name}={value}" for name, value in chosen.items()) or "the base"


def _missed(result: PointResult) -> str:
    exactness = "" if result.cycles else "at least "
    parts = []
    for condition, miss in result.misses:
        by = f"{miss:.1%}" if miss < MIN_MULTIPLE else f"{miss:,.0f} times the limit"
        known = f" by {exactness}{by}" if 0 < miss < math.inf else ""
        parts.append(f"misses `{condition}`{known}")
    return " and ".join(parts)


def _times(result: PointResult, outcome: SweepOutcome) -> str:
    """Return the milliseconds of each network, and the clock at which they hold."""
    least = "" if result.cycles else "at least "
    ms = {each.name: result.figures[of_network("ms", each.name)] for each in outcome.networks}
    times = [f"{least}{three_digits(value)} ms for {name}" for name, value in ms.items()]
    return f"{', '.join(times)}, at {result.figures[CLOCK]:.4g} MHz"
