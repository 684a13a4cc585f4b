"""Each test draws the same arrays, whichever ran before it."""

import pytest

from . import arrays


@pytest.fixture(autouse=True)
def same_arrays() -> None:
    """Start the generator anew."""
    arrays.GENERATOR = arrays.new_generator()
