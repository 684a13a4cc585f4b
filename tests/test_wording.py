"""Words that depend on numbers."""

import pytest

from tilewright.wording import counted


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 trials"), (1, "1 trial"), (2, "2 trials"), (12345, "12,345 trials")],
)
def test_a_noun_agrees_with_its_number(number, text):
    assert counted(number, "trial") == text
