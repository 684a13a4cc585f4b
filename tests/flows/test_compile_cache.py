"""Compiled networks are kept, and compiled again when anything that they follow from changes."""

from pathlib import Path

import pytest

from tilewright.errors import CompileError
from tilewright.flows import arguments
from tilewright.flows.arguments import compile_model
from tilewright.isa.configuration import PRESETS

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"


@pytest.fixture
def compilations(monkeypatch, tmp_path):
    """Names of the machines that models were compiled for, in a cache of the test's own."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    seen = []
    compile_graph = arguments.compile_graph

    def count(graph, configuration, *rest, **named):
        seen.append(configuration.name)
        return compile_graph(graph, configuration, *rest, **named)

    monkeypatch.setattr(arguments, "compile_graph", count)
    return seen


def test_a_model_is_compiled_once(compilations):
    first = compile_model(MODEL, PRESETS["8x8"])
    again = compile_model(MODEL, PRESETS["8x8"])
    assert compilations == ["8x8"]
    assert again.segments == first.segments
    assert again.steps == first.steps


def test_another_machine_or_another_wish_is_compiled(compilations):
    compile_model(MODEL, PRESETS["8x8"])
    compile_model(MODEL, PRESETS["16x16"])
    compile_model(MODEL, PRESETS["8x8"], keep_all=True)
    assert compilations == ["8x8", "16x16", "8x8"]


def test_another_model_of_the_same_name_is_compiled(compilations, tmp_path):
    copy = tmp_path / MODEL.name
    copy.write_bytes(MODEL.read_bytes())
    compile_model(MODEL, PRESETS["8x8"])
    compile_model(copy, PRESETS["8x8"])
    assert compilations == ["8x8"]
    copy.write_bytes(MODEL.read_bytes() + b"\x72\x00")
    compile_model(copy, PRESETS["8x8"])
    assert compilations == ["8x8", "8x8"]


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"", bytes.upper])
def test_a_damaged_file_is_replaced(compilations, tmp_path, damage):
    whole = compile_model(MODEL, PRESETS["8x8"])
    (kept,) = (tmp_path / "cache" / "networks").iterdir()
    kept.write_bytes(damage(kept.read_bytes()))
    assert compile_model(MODEL, PRESETS["8x8"]).segments == whole.segments
    assert compilations == ["8x8", "8x8"]
    compile_model(MODEL, PRESETS["8x8"])
    assert compilations == ["8x8", "8x8"]


def test_a_cache_that_cannot_be_written_costs_time_only(compilations, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(blocked))
    assert compile_model(MODEL, PRESETS["8x8"]).segments
    assert compilations == ["8x8"]


def test_a_refusal_is_not_kept(compilations):
    small = PRESETS["tiny"].replace(name="small", wgt_depth=8, act_depth=8)
    for _ in range(2):
        with pytest.raises(CompileError, match="no tile fits"):
            compile_model(MODEL, small)
    assert compilations == ["small", "small"]
