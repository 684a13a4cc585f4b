"""The command line as a function, and the files that it is given."""

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.flows.area import provenance
from tilewright.flows.cli.main import main
from tilewright.flows.execution.compile_cache import CompileCache

from .browser import open_page

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
PROGRESS = re.compile(r"\d+ s: |rtl: (generating|compiling)")
"""Start of the lines of long work: every few seconds without a terminal, and for a core's code."""

COMPILER = importlib.import_module("tilewright.flows.execution.compile_graph")
"""The module, whose name in its package is also that of a function."""

COMPILE = COMPILER.compile_request

_KEPT: dict[object, object] = {}


@pytest.fixture
def compiled_once(monkeypatch) -> None:
    """Compile each request once in this process, however often the test asks for it."""

    def compile_once(request, progress, *, measure, store):
        key = CompileCache.of_request(request).path.name, request.lean, store is None
        if key not in _KEPT:
            _KEPT[key] = COMPILE(request, progress, measure=measure, store=store)
        return _KEPT[key]

    monkeypatch.setattr(COMPILER, COMPILE.__name__, compile_once)


@pytest.fixture
def compiled_anew(monkeypatch, compiled_once) -> None:
    """Compile each time, as users do, where the folder's tests have `compiled_once`."""
    monkeypatch.setattr(COMPILER, COMPILE.__name__, COMPILE)


@pytest.fixture
def model() -> Path:
    return DIGITS / "digits_int8_qdq.onnx"


@pytest.fixture
def scans() -> Path:
    return DIGITS / "test_digits.npz"


@pytest.fixture
def tilewright(capsys) -> Callable[..., str]:
    """Run a command line that succeeds; what it prints."""

    def call(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 0
        said = capsys.readouterr()
        wrong = [line for line in said.err.splitlines() if not PROGRESS.match(line)]
        assert not wrong, "stderr is for what goes wrong, and for the progress of long work"
        return said.out

    return call


@pytest.fixture
def browse() -> Callable[..., tuple[str, list[str]]]:
    """Open a page in a headless browser; return its final document and its requests."""
    return open_page


@pytest.fixture
def artifact(tilewright, model, tmp_path) -> Path:
    path = tmp_path / "digits.tw"
    tilewright("compile", model, "-o", path, "--config", "8x8", "--keep-all")
    return path


@pytest.fixture(scope="session")
def sources_file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("sources") / provenance.SOURCES.name


@pytest.fixture(autouse=True)
def measured_sources(monkeypatch, sources_file):
    """Kept figures are of these sources, as after `synth --ledger`; else commands add a note."""
    kinds = (provenance.LEDGER, provenance.MODEL)
    sources_file.write_text(json.dumps(dict.fromkeys(kinds, provenance.source_hash())), "utf-8")
    monkeypatch.setattr(provenance, "SOURCES", sources_file)
