"""Words that depend on numbers."""

import pytest

from tilewright.wording import counted, three_digits


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 trials"), (1, "1 trial"), (2, "2 trials"), (12345, "12,345 trials")],
)
def test_a_noun_agrees_with_its_number(number, text):
    assert counted(number, "trial") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.14318, "0.143"), (13.998, "14.0"), (99.96, "100"), (1234.6, "1,235")],
)
def test_a_figure_has_three_digits(number, text):
    assert three_digits(number) == text
