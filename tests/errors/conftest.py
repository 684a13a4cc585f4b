"""Fixtures for the tests of user mistakes: the command line, and faulty files."""

import re
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tilewright.flows.cli.main import main

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture
def model() -> Path:
    """A good model."""
    return DIGITS / "digits_int8_qdq.onnx"


@pytest.fixture
def fail(capsys) -> Callable[..., tuple[int, str]]:
    """Run a command line; its exit code and all that it says on stderr, nothing on stdout."""

    def call(*arguments: object) -> tuple[int, str]:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert said.out == ""
        *others, error = said.err.splitlines()
        progress = re.compile(r"\d+ s: ")  # of work that is long on a busy machine
        assert all(map(progress.match, others)), "an error is one line"
        return code, error

    return call


@pytest.fixture
def spoilt(model, tmp_path) -> Callable[[Callable[[onnx.ModelProto], None]], Path]:
    """The good model with a change, as a file `spoilt.onnx`."""

    def spoil(change: Callable[[onnx.ModelProto], None]) -> Path:
        proto = onnx.load(model)
        change(proto)
        onnx.save(proto, tmp_path / "spoilt.onnx")
        return tmp_path / "spoilt.onnx"

    return spoil
