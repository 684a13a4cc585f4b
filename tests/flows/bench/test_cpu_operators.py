"""The bench of single operators: networks that onnxruntime takes, ratios, and kernels for each."""

import json

import onnx
import pytest

from tilewright.compiler.cpu import host
from tilewright.compiler.frontend import import_model
from tilewright.compiler.host.select import select_steps
from tilewright.flows.bench.cpu_operators import cases, main

MODELS = {model.graph.name: model for model in cases()}

NUMPY = ("DFT", "GridSample nearest", "GridSample cubic", "MaxUnpool")
"""Operators of which NumPy computes a part; SSE2 cannot convert float16 either."""


@pytest.mark.cpu_kernels
def test_an_operator_is_compared_with_onnxruntime(tmp_path, capsys) -> None:
    figures = tmp_path / "figures.json"
    arguments = ["--only", "Cast float-float16 1x128", "--turns", "1", "--json", str(figures)]
    assert main(arguments) == 0
    assert "Cast float-float16" in capsys.readouterr().out
    (row,) = json.loads(figures.read_text(encoding="utf-8"))["rows"]
    assert row["largest_difference"] == 0
    assert (row["kernels"], row["numpy"]) == (1, 0)
    assert row["ratio"] == pytest.approx(row["peer_s"] / row["ours_s"])


def test_unknown_operators_are_named(capsys) -> None:
    assert main(["--only", "Cosine"]) == 2
    assert "`--only Cosine`: expected a part of an operator's name, got none of MaxPool, " in (
        capsys.readouterr().err
    )


@pytest.mark.processor
@pytest.mark.parametrize("name", MODELS)
def test_operators_are_machine_code(name: str, tmp_path) -> None:
    path = tmp_path / "operator.onnx"
    onnx.save(MODELS[name], path)
    graph = import_model(path)
    steps = select_steps(graph, graph.nodes, host())
    taken = {node.outputs[0].name for step in steps for node in step.nodes}
    left = {node.op for node in graph.nodes if node.outputs[0].name not in taken}
    in_numpy = (*NUMPY, "Cast float") if host().level == "sse2" else NUMPY
    assert bool(left - {"reshape"}) == name.startswith(in_numpy), left
