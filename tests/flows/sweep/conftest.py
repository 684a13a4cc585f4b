"""A small network, and sweeps of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.compiler.frontend import import_model
from tilewright.flows.sweep import Database, Space, SweepOutcome, sweep
from tilewright.flows.sweep.expressions import read_condition
from tilewright.flows.sweep.figures import FIGURES
from tilewright.flows.sweep.outcome import SweepNetwork

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"

VARY = {"lanes": "4x4,8x8,16x16", "bus_bits": "32,128"}


@pytest.fixture(autouse=True)
def machines_compiled_once(compiled_once) -> None:
    """Compile each machine once in this process: sweeps are tested here, not the compiler."""


@pytest.fixture(scope="session")
def digits() -> SweepNetwork:
    return SweepNetwork("digits", import_model(DIGITS))


@pytest.fixture(scope="session")
def kept(digits, tmp_path_factory) -> Path:
    """A database in which every machine of `VARY` is compiled."""
    path = tmp_path_factory.mktemp("sweep") / "kept.db"
    with Database(path) as database:
        sweep([digits], Space.of(VARY), database, exhaustive=True)
    return path


@pytest.fixture
def swept(digits) -> Callable[..., SweepOutcome]:
    """Sweep the digits network; conditions are texts."""

    def call(vary=VARY, database=None, where=(), **options) -> SweepOutcome:
        conditions = [read_condition(text, FIGURES, "where") for text in where]
        space = vary if isinstance(vary, Space) else Space.of(vary)
        return sweep([digits], space, database, where=conditions, **options)

    return call
