"""Laws are read as they are written, mean what Python makes of them, and stay in their bounds."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import IsaError
from tilewright.flows.verify.programs.random_configurations import EXTRA_OPERATIONS
from tilewright.isa.expressions import Call, Literal, Op, Slot
from tilewright.isa.laws import ARRAYS, RANGES, Range, evaluate
from tilewright.isa.read_law import read_law
from tilewright.isa.vector_operations import NAMES, OPERATIONS

from .python_laws import law_by_python

A, B = NAMES["a"], NAMES["b"]
ENDS = [-(1 << 31), (1 << 31) - 1, -1, 0, 1, -128, 127]
LAWS = [
    *(operation.law for operation in OPERATIONS),
    *(text.partition(" = ")[2] for text in EXTRA_OPERATIONS),
    "-(a - b) - 3",
    "a | 1 if a != b else ~b >> 2",
    "max(a, b, 5) - min(7, a, b)",
    "(a <= b) + 2 * (a >= 3) + 4 * (b < a)",
    "abs(a) + abs(b - a << 3)",
]
words = st.one_of(st.sampled_from(ENDS), st.integers(-(1 << 31), (1 << 31) - 1))


def given_values(a, b, p, q):
    return {"a": a, "b": b, "a_multiplier": p, "b_multiplier": q}


@pytest.mark.parametrize("law", LAWS)
@given(
    a=words,
    b=st.integers(-128, 127),
    p=st.integers(-(1 << 15), (1 << 15) - 1),
    q=st.integers(-(1 << 15), (1 << 15) - 1),
)
def test_a_law_means_what_python_makes_of_it(law, a, b, p, q):
    values = given_values(a, b, p, q)
    arrays = {name: np.array([value], dtype=np.int32) for name, value in values.items()}
    tree = read_law(law, NAMES)
    (result,) = np.broadcast_to(evaluate(tree, arrays, ARRAYS), 1)
    assert result.dtype == np.int32
    assert result == law_by_python(law, values)
    exact = {name: Range(value, value) for name, value in values.items()}
    bound = evaluate(tree, exact, RANGES)
    assert bound.low <= result <= bound.high


@given(st.data())
def test_ranges_hold_all_values_between_their_ends(data):
    law = data.draw(st.sampled_from(LAWS))
    ranges, values = {}, {}
    for name in NAMES:
        low, high = sorted(data.draw(st.tuples(words, words)))
        ranges[name] = Range(low, high)
        values[name] = np.array([data.draw(st.integers(low, high))], dtype=np.int32)
    tree = read_law(law, NAMES)
    bound = evaluate(tree, ranges, RANGES)
    (result,) = np.broadcast_to(evaluate(tree, values, ARRAYS), 1)
    assert bound.low <= result <= bound.high


def test_differences_and_absolute_values_are_sums_and_maxima():
    minus_b = Call(Op.MULTIPLY, (B, Literal(-1)))
    difference = Call(Op.ADD, (A, minus_b))
    assert read_law("a - b", NAMES) == difference
    negative = Call(Op.MULTIPLY, (difference, Literal(-1)))
    assert read_law("abs(a - b)", NAMES) == Call(Op.MAXIMUM, (difference, negative))
    assert read_law("a - 3", NAMES) == Call(Op.ADD, (A, Literal(-3)))
    assert isinstance(A, Slot)


FORMS = (
    "write it with whole numbers, `+ - *`, `>>` and `<<` by a number, `& | ^ ~`, `max`, `min`, "
    "`abs`, `wrap(x, bits)` for the low bits of `x` as a signed number, comparisons, and "
    "`x if condition else y`"
)
REFUSED = [
    ("a +", f"law `a +`: not an expression; {FORMS}"),
    ("wrap(a, b)", f"law `wrap(a, b)`: cannot read `wrap(a, b)`; {FORMS}"),
    ("wrap(a, 32)", f"law `wrap(a, 32)`: cannot read `wrap(a, 32)`; {FORMS}"),
    ("", f"law ``: not an expression; {FORMS}"),
    ("c + a", "law `c + a`: unknown name `c`; known are a, b, a_multiplier, b_multiplier"),
    ("a << b", f"law `a << b`: cannot read `a << b`; {FORMS}"),
    ("a >> 31", f"law `a >> 31`: cannot read `a >> 31`; {FORMS}"),
    ("a / b", f"law `a / b`: cannot read `a / b`; {FORMS}"),
    ("max(a)", f"law `max(a)`: cannot read `max(a)`; {FORMS}"),
    ("a.real", f"law `a.real`: cannot read `a.real`; {FORMS}"),
    ("0 < a < b", f"law `0 < a < b`: cannot read `0 < a < b`; {FORMS}"),
    ("a in b", f"law `a in b`: cannot read `a in b`; {FORMS}"),
    ("a + 1.5", f"law `a + 1.5`: cannot read `1.5`; {FORMS}"),
    ("a + True", f"law `a + True`: cannot read `True`; {FORMS}"),
    (
        "a + 2147483648",
        "law `a + 2147483648`: 2147483648 does not fit 32 bits (-2147483648 to 2147483647)",
    ),
]


@pytest.mark.parametrize(("law", "sentence"), REFUSED)
def test_what_is_no_law_is_refused_in_one_sentence(law, sentence):
    with pytest.raises(IsaError, match=f"^{re.escape(sentence)}$"):
        read_law(law, NAMES)


@pytest.mark.parametrize("law", ["abs(" * 12 + "a" + ")" * 12, "a" + "+a" * 80, "a" + " + a" * 80])
def test_a_law_that_grows_is_refused(law):
    with pytest.raises(IsaError, match="too long; at most 300 characters, and 100 names"):
        read_law(law, NAMES)
