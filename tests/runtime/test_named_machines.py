"""The Python interface takes a configuration, and says so to those who give its name."""

from typing import Any, cast

import pytest

import tilewright as tw
from tilewright.errors import ConfigurationError

NAME = cast(Any, "8x8")


@pytest.mark.parametrize(
    "call", [lambda: tw.open_device("sim", NAME), lambda: tw.compile_graph(cast(Any, None), NAME)]
)
def test_a_name_is_no_configuration(call):
    with pytest.raises(ConfigurationError) as refusal:
        call()
    assert str(refusal.value) == (
        "configuration: expected a `Configuration`, got '8x8'; "
        "`tilewright.load_configuration('8x8')` makes one"
    )
