"""`tilewright passes` follows a model through the front end."""

import json
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend import RECIPE, import_model, recognise_layers
from tilewright.compiler.graph import print_graph
from tilewright.compiler.importers import import_onnx
from tilewright.flows.cli.commands.passes import follow
from tilewright.flows.cli.main import main
from tilewright.flows.verify.fuzz.random_models import random_model

DIGITS = Path(__file__).parents[3] / "examples/digits/digits_int8_qdq.onnx"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "small.onnx"
    path.write_bytes(random_model(4))
    return path


def test_every_pass_has_its_row(model, capsys):
    assert main(["passes", str(model), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["import", *(step.__name__ for step in RECIPE)]
    assert rows[0]["accelerated"] == 0 < rows[-1]["accelerated"]
    assert all(row["difference"] is None for row in rows)


def test_comparing_shows_the_pass_that_changes_values(monkeypatch):
    graph = import_onnx(DIGITS)
    inputs = {graph.inputs[0].name: np.ones(graph.inputs[0].type.shape, np.float32)}
    honest, _ = follow(graph, inputs)
    assert [result.difference for result in honest[:8]] == [0.0] * 8

    def forget_constants(graph):
        constants = [type(c)(c.name, np.zeros_like(c.data)) for c in graph.constants]
        return type(graph)(graph.name, graph.inputs, graph.outputs, graph.nodes, tuple(constants))

    module = recognise_layers.__globals__
    monkeypatch.setitem(module, "RECIPE", (RECIPE[0], forget_constants, *RECIPE[1:7]))
    spoilt, _ = follow(graph, inputs, 3)
    assert [bool(result.difference) for result in spoilt] == [False, False, True, True]


def test_the_graph_after_a_pass_is_printed(model, capsys):
    assert main(["passes", str(model), "--print-after", "merge_duplicates"]) == 0
    assert capsys.readouterr().out.rstrip() == print_graph(import_model(model)).rstrip()
    assert main(["passes", str(model), "--print-after", "0"]) == 0
    assert capsys.readouterr().out.rstrip() == print_graph(import_onnx(model)).rstrip()


def test_a_pass_that_comes_twice_is_printed_after_its_last_turn(model, capsys):
    last = max(i for i, step in enumerate(RECIPE, 1) if step.__name__ == "fold_constants")
    assert main(["passes", str(model), "--print-after", "fold_constants"]) == 0
    named = capsys.readouterr().out
    assert main(["passes", str(model), "--print-after", str(last)]) == 0
    assert capsys.readouterr().out == named


def test_an_unknown_pass(model, capsys):
    assert main(["passes", str(model), "--print-after", "magic"]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: `--print-after magic`: expected a position from 0 to {len(RECIPE)} or one of "
        "`import`, `eliminate_dead_code`, "
    )
