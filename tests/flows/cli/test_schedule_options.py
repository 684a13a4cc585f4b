"""Schedules are printed, edited and given back on the command line."""

import json
import re
from argparse import Namespace

import pytest

from tilewright.compiler.graph import Graph, Node, TensorType, Value
from tilewright.compiler.graph.operators import Unary
from tilewright.compiler.module import Layer, Module, Segment
from tilewright.errors import UsageError
from tilewright.flows.cli.arguments import compile_model
from tilewright.flows.cli.main import main
from tilewright.flows.cli.schedule_options import by_whole_name, change_sentences, chosen_schedules
from tilewright.isa.configuration import DEFAULT
from tilewright.runtime import load


def test_compile_prints_schedules_and_takes_them_back(tilewright, model, tmp_path):
    """The whole file, and one layer edited."""
    target, text = tmp_path / "digits.tw", tmp_path / "schedules.txt"
    asked = ("compile", model, "--config", "8x8", "-o", target, "--schedules")
    said = tilewright(*asked)
    assert re.match(
        r"# layer conv1\n# configuration 8x8\n# [\d,]+ cycles, lower bound [\d,]+\narena\(\)\n",
        said,
    )
    program = load(target).segments[0].program
    text.write_text(said)
    assert tilewright(*asked, "--schedule", text) == said
    assert load(target).segments[0].program == program
    conv2 = said[said.index("# layer conv2") : said.index("# layer conv3")]
    text.write_text(re.sub(r"split\(conv2.qconv, y, \d+\)", "split(conv2.qconv, y, 1)", conv2))
    assert "split(conv2.qconv, y, 1)" in tilewright(*asked, "--schedule", f"conv2={text}")
    assert load(target).segments[0].program != program


@pytest.mark.parametrize("command", ["compile", "run", "report", "evaluate"])
def test_a_schedule_for_another_machine_is_noted(command, tilewright, capsys, model, tmp_path):
    text = tmp_path / "conv2.txt"
    text.write_text(tilewright("evaluate", model, "--config", "4x4", "--layer", "conv2"), "utf-8")
    given = ("--layer", "conv2", "--schedule", text)
    if command != "evaluate":
        given = ("--schedule", f"conv2={text}", "--json" if command == "run" else "-o")
        given += () if command == "run" else (tmp_path / ("page.html", "net.tw")[command < "d"],)
    for machine in ("8x8", "4x4"):
        capsys.readouterr()
        main([command, str(model), "--config", machine, *map(str, given)])
        said = capsys.readouterr().err
        assert ("printed for configuration `4x4`, not `8x8`" in said) == (machine == "8x8")


def test_passes_show_a_given_schedule(tilewright, capsys, model, tmp_path):
    asked, text = ("--config", "8x8"), tmp_path / "conv2.txt"
    steps = tilewright("evaluate", model, *asked, "--layer", "conv2")
    text.write_text(re.sub(r"split\(conv2.qconv, y, \d+\)", "split(conv2.qconv, y, 1)", steps))
    shown = ("passes", model, *asked, "--until", "scheduled", "--layer", "conv2")
    given = ("--schedule", f"conv2={text}")
    assert "split(conv2.qconv, y, 1)" not in tilewright(*shown)
    assert "split(conv2.qconv, y, 1)" in tilewright(*shown, *given)
    assert main(["passes", str(model), *given]) == 2
    assert "`--schedule`: expected a stage in which layers have" in capsys.readouterr().err


def test_what_a_given_schedule_changed_is_said(tilewright, model, tmp_path):
    """By `compile`, `run` and `report`, with the cycles that they print without it."""
    target, text, asked = tmp_path / "digits.tw", tmp_path / "conv2.txt", (model, "--config", "8x8")
    said = tilewright("compile", *asked, "-o", target, "--schedules")
    before = json.loads(tilewright("compile", *asked, "-o", target, "--json"))
    conv2 = said[said.index("# layer conv2") : said.index("# layer conv3")]
    text.write_text(re.sub(r"split\(conv2.qconv, y, \d+\)", "split(conv2.qconv, y, 1)", conv2))
    given = ("--schedule", text)
    after = json.loads(tilewright("compile", *asked, "-o", target, "--json", *given))
    assert after["cycles_before"] == before["cycles"] != after["cycles"]
    assert after["schedules_given"] == ["conv2"]
    change = {row["name"]: row for row in after["layers_changed"]}["conv2"]
    rows = [{row["name"]: row["cycles"] for row in each["layers"]} for each in (before, after)]
    assert [change["before"], change["after"]] == [each["conv2"] for each in rows]
    line = (
        f"schedule of `conv2` given: {before['cycles']:,} cycles before, {after['cycles']:,} now\n"
    )
    page = tmp_path / "page.html"
    for words in (
        ("compile", *asked, "-o", target),
        ("run", *asked),
        ("report", *asked, "-o", page),
    ):
        assert line in tilewright(*words, *given)
    ran = json.loads(tilewright("run", *asked, "--json", *given))
    assert ran["totals"]["cycles"] == after["cycles"]
    assert ran["cycles_before"] == before["cycles"]


def test_a_layer_is_called_by_its_short_name(tmp_path):
    """The steps stand under the long name that exporters give a node."""
    path = tmp_path / "steps.txt"
    names = ["net/relu;net/conv_1/Conv2D_prequant", "net/conv_2/Conv2D_prequant"]
    path.write_text("".join(f"# layer {name}\narena()\n" for name in names))
    for word in ("conv_2", "conv_2/Conv2D_prequant", names[1]):
        assert list(chosen_schedules(Namespace(given=[f"{word}={path}"]))) == names[1:]
    with pytest.raises(
        UsageError, match=r"has no schedule of layer `conv`; did you mean `conv_1`, `c"
    ):
        chosen_schedules(Namespace(given=[f"conv={path}"]))


def test_an_unknown_layer_is_told_before_the_search(model, tmp_path, monkeypatch, capsys):
    """`conv1` of the file is no layer of this network; the search of a long one takes minutes."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))

    def search(*_, **__):
        raise AssertionError("searched for schedules")

    monkeypatch.setattr("tilewright.compiler.pipeline.compile.group", search)
    text = tmp_path / "steps.txt"
    text.write_text("arena()\n")
    for name, hint in (("conv9", "conv3`, `conv2`, `conv1"), ("conv3 + residual + poll", "conv3")):
        assert main(["compile", str(model), "--schedule", f"{name}={text}"]) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"error: there is no layer `{name}` on the accelerator; ")
        assert hint in said
    for name in ("conv3 + residual", "conv1#2", "residual", "conv2"):
        with pytest.raises(AssertionError, match="searched"):
            compile_model(model, DEFAULT, schedules={name: "arena()"})


def test_an_artifact_takes_no_schedule(artifact, tmp_path, capsys):
    text = tmp_path / "steps.txt"
    text.write_text("# layer conv1\narena()\n")
    assert main(["run", str(artifact), "--schedule", str(text)]) == 2
    assert "`--schedule`: expected a model, got the artifact" in capsys.readouterr().err


def test_steps_without_a_layer_are_a_mistake_of_usage(model, tmp_path, capsys):
    text = tmp_path / "steps.txt"
    text.write_text("arena()\n")
    assert main(["compile", str(model), "--schedule", str(text)]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith("stand under no line `# layer NAME`; name the layer as LAYER=FILE")
    )


def test_a_file_without_the_layer_is_a_mistake_of_usage(model, tmp_path, capsys):
    text = tmp_path / "steps.txt"
    text.write_text("# layer conv1\narena()\n")
    assert main(["compile", str(model), "--schedule", f"conv2={text}"]) == 2
    said = capsys.readouterr().err
    assert f"`{text}` has no schedule of layer `conv2`; did you mean `conv1`?" in said


def test_a_change_names_layers_briefly_and_says_which_cycles_they_are():
    long = "net/conv2d/BiasAdd/ReadVariableOp/resource;net/conv2d/BiasAdd;net/conv2d/Conv2D1"
    report = {
        "cycles": 1010,
        "cycles_before": 1000,
        "schedules_given": [long],
        "layers_changed": [{"name": long, "before": 400, "after": 390}],
    }
    assert change_sentences(report) == [
        "schedule of `conv2d/Conv2D1` given: 1,000 cycles before, 1,010 now",
        "  conv2d/Conv2D1, without its neighbours: 400 before, 390 now",
    ]


def test_schedules_of_shortened_names_belong_to_the_layers(monkeypatch):
    layers = {
        "net/relu;net/conv/Conv2D": "v0", "net/dense/MatMul;net/dense/BiasAdd": "v1",
        "one/head/MatMul": "v2", "two/head/MatMul": "v3",
    }  # fmt: skip
    found = [Layer(name, "conv", output, 0, "", ()) for name, output in layers.items()]
    nodes = (
        Node(name, Unary("Relu"), ("x",), (Value(output, TensorType("int8", (1, 4))),))
        for name, output in layers.items()
    )
    graph = Graph("net", (), (), tuple(nodes), ())
    segment = Segment((), (), tuple(found), (), (), (), b"", 0, 0)
    module = Module("net", DEFAULT, graph, (0,), (segment,), {})
    given = {"conv": "a", "dense/BiasAdd": "b", "v2": "c", "unknown": "d"}
    whole, bias = list(layers)[:2]
    assert by_whole_name(module, given) == {whole: "a", bias: "b", "v2": "c", "unknown": "d"}
    with pytest.raises(
        UsageError, match="which means `one/head/MatMul`, `two/head/MatMul`; choose one"
    ):
        by_whole_name(module, {"head": "e"})
