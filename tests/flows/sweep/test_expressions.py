"""Conditions: exact on known figures, and never wrong on figures that are still open."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import UsageError
from tilewright.flows.sweep.expressions import Interval, exactly, read_condition

NAMES = ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a <= 4", True),
        ("a < 4", False),
        ("not a < 4", True),
        ("1 < a <= 4 and b == 3", True),
        ("a != 4 or b > a - 2", True),
        ("a * b - 2 / (a - 3) >= 10", True),
        ("-a > -4", False),
    ],
)
def test_known_figures_decide(text, holds):
    figures = {"a": exactly(4), "b": exactly(3), "c": exactly(0)}
    assert read_condition(text, NAMES, "here").may_hold(figures) is holds


CONDITIONS = (
    "a + b < c", "a * b > c and not b == 2", "a - b <= c / 2 or a > 3", "1 / c < a", "a != b",
    "a / b >= c", "-a * b < c * c",
)  # fmt: skip


ENDS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=3, max_size=3)


@given(st.sampled_from(CONDITIONS), ENDS)
def test_an_interval_never_rules_out_what_a_value_in_it_fulfils(text, ends):
    condition = read_condition(text, NAMES, "here")
    ranges = {name: (min(pair), max(pair)) for name, pair in zip(NAMES, ends, strict=True)}
    intervals: dict[str, Interval] = {**ranges}
    values = itertools.product(*(range(low, high + 1) for low, high in ranges.values()))
    if any(
        condition.may_hold({n: exactly(v) for n, v in zip(NAMES, each, strict=True)})
        for each in values
    ):
        assert condition.may_hold(intervals)


def test_a_lower_bound_decides_what_no_program_can_reach():
    condition = read_condition("a * 2 < 100 and b <= 3", NAMES, "here")
    assert not condition.may_hold({"a": (50, math.inf), "b": exactly(3)})
    assert condition.may_hold({"a": (49, math.inf), "b": exactly(3)})
    assert not condition.may_hold({"a": (49, math.inf), "b": exactly(math.inf)})


@pytest.mark.parametrize(
    "text",
    ["a", "a +", "a < 'x'", "print(a) < 1", "a.b < 1", "a if b else c", "", "a = 1", "(a, b) < 1",
     "True", "a < True", "a < 1j", "1 < 2", "a" * 10000 + "(" * 5000],
)  # fmt: skip
def test_what_is_not_a_condition_is_refused(text):
    with pytest.raises(UsageError, match=r"^here: expected (a condition|at most)"):
        read_condition(text, NAMES, "here")


def test_an_unknown_figure_is_named():
    with pytest.raises(UsageError) as caught:
        read_condition("multiplier <= 4", ("multipliers", "ram"), "here")
    assert str(caught.value) == (
        "here: unknown figure `multiplier`; known are multipliers, ram; did you mean `multipliers`?"
    )


@pytest.mark.parametrize("text", ["ms(kws) < 20", "ms('kws') < 20", "20 > ms(kws)"])
def test_a_network_has_figures_of_its_own(text):
    condition = read_condition(text, ("ms(kws)",), "here")
    assert condition.names == {"ms(kws)"}
    assert not condition.may_hold({"ms(kws)": (25.0, math.inf)})
    assert condition.may_hold({"ms(kws)": (5.0, math.inf)})
    with pytest.raises(UsageError, match=r"known are ms\(ic\); choose `ms\(ic\)`$"):
        read_condition(text, ("ms(ic)",), "here")


def test_the_start_of_a_networks_name_will_do():
    known = ("ms(kws_int8_qdq)", "ms(ic)", "ms(ic_float)", "cycles(kws_int8_qdq)")
    for text, figure in (("ms(kws) < 20", "ms(kws_int8_qdq)"), ("ms(ic) < 20", "ms(ic)")):
        assert read_condition(text, known, "here").names == {figure}
    with pytest.raises(UsageError, match=r"choose `ms\(ic\)` or `ms\(ic_float\)`"):
        read_condition("ms(i) < 20", known, "here")


@pytest.mark.parametrize(
    "text", ["ms() < 1", "ms(a, b) < 1", "ms(1) < 1", "ms(x=a) < 1", "a(b)(c) < 1"]
)
def test_other_calls_are_no_figures(text):
    with pytest.raises(UsageError, match="expected a condition"):
        read_condition(text, NAMES, "here")


@pytest.mark.parametrize(
    ("text", "miss"),
    [
        ("a < 20", 0.25),
        ("20 >= a", 0.25),
        ("a >= 20", 0.0),
        ("b >= 10", 0.6),
        ("a < 20 and b > 3", math.inf),
        ("a < 30 or b > 3", 0.0),
    ],
)
def test_a_miss_is_the_least_share_of_the_limit(text, miss):
    figures: dict[str, Interval] = {"a": (25.0, math.inf), "b": (2.0, 4.0), "c": exactly(0)}
    assert read_condition(text, NAMES, "here").miss(figures) == pytest.approx(miss)
