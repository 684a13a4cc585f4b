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
from tilewright.flows.execution.compile_graph import compile_graph
from tilewright.flows.execution.stages import STAGE_NAMES
from tilewright.flows.verify.fuzz.random_models import random_model
from tilewright.isa.assembly import parse_program
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel

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
    honest = follow(graph, inputs)
    assert [result.difference for result in honest[:8]] == [0.0] * 8

    def forget_constants(graph):
        constants = [type(c)(c.name, np.zeros_like(c.data)) for c in graph.constants]
        return type(graph)(graph.name, graph.inputs, graph.outputs, graph.nodes, tuple(constants))

    module = recognise_layers.__globals__
    monkeypatch.setitem(module, "RECIPE", (RECIPE[0], forget_constants, *RECIPE[1:7]))
    spoilt = follow(graph, inputs, 3)
    assert [bool(result.difference) for result in spoilt] == [False, False, True, True]


def test_the_graph_after_a_pass_is_printed(model, capsys):
    assert main(["passes", str(model), "--until", "merge_duplicates"]) == 0
    assert capsys.readouterr().out.rstrip() == print_graph(import_model(model)).rstrip()
    assert main(["passes", str(model), "--until", "0"]) == 0
    assert capsys.readouterr().out.rstrip() == print_graph(import_onnx(model)).rstrip()


def test_a_pass_that_comes_twice_is_printed_after_its_last_turn(model, capsys):
    last = max(i for i, step in enumerate(RECIPE, 1) if step.__name__ == "fold_constants")
    assert main(["passes", str(model), "--until", "fold_constants"]) == 0
    named = capsys.readouterr().out
    assert main(["passes", str(model), "--until", str(last)]) == 0
    assert capsys.readouterr().out == named


def test_the_program_is_printed_for_the_machine_and_memory(capsys):
    machine = ["--config", "8x8", "--latency", "200"]
    assert main(["passes", str(DIGITS), "--until", "linked", *machine]) == 0
    program = parse_program(capsys.readouterr().out)
    memory = MemoryModel(latency_cycles=200)
    module = compile_graph(import_model(DIGITS), PRESETS["8x8"], memory=memory, cache=False)
    assert tuple(program) == module.segments[0].program


def test_differences_have_the_stage_as_their_heading(capsys):
    assert main(["passes", str(DIGITS), "--diff", "--layer", "conv3", "--json"]) == 0
    stages = json.loads(capsys.readouterr().out)
    assert [stage["stage"].split()[1] for stage in stages] == list(STAGE_NAMES[1:])
    changed = [stage["stage"].split()[1] for stage in stages if stage["lines"]]
    assert changed == [
        "recognise_convolutions", "arrange_layout", "placed", "grouped", "scheduled", "lowered",
        "linked",
    ]  # fmt: skip
    assert main(["passes", str(DIGITS), "--diff", "--layer", "conv3"]) == 0
    text = capsys.readouterr().out
    position = STAGE_NAMES.index("recognise_convolutions")
    start = f"== {position} recognise_convolutions\n...\n-%conv3.out : float32"
    assert text.startswith(start)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--until", "magic"],
            f"`--until magic`: expected a position from 0 to {len(STAGE_NAMES) - 1} or one of "
            "`import`, `eliminate_dead_code`, ",
        ),
        (["--layer", "jonquil"], "`--layer jonquil`: expected the name of a node; choose one of `"),
        (["--layer", "dens"], "`--layer dens`: expected the name of a node; did you mean `dense`"),
        (["--layer", "onv"], "`--layer onv`: expected the name of a node; did you mean `conv1`, "),
        (["--place", "conv1=host"], "`--place`: expected a stage in which layers have a side"),
        (["--placement", "host", "--until", "import"], "`--placement`: expected a stage in which "),
        (["--diff", "--compare"], "`--compare`: expected no --until, --layer or --diff; leave it "),
    ],
)
def test_usage_errors(options, message, capsys):
    assert main(["passes", str(DIGITS), *options]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
