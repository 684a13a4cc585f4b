"""Schedules of a layer are judged: verdict, exact cycles, what binds, and the result."""

import io
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest

from tilewright import PRESETS, LayerBench, MemoryModel, compile_graph, import_model
from tilewright.errors import UsageError
from tilewright.flows.cli.main import main

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"
SLOW = MemoryModel(latency_cycles=300)


@pytest.fixture(scope="module", params=[MemoryModel(), SLOW], ids=["default", "slow"])
def module(request):
    return compile_graph(import_model(DIGITS), PRESETS["8x8"], memory=request.param)


@pytest.fixture(scope="module")
def bench():
    return LayerBench(compile_graph(import_model(DIGITS), PRESETS["8x8"]), "conv2")


def test_a_schedule_without_steps_is_told(bench):
    answer = bench.evaluate("")
    assert answer.verdict == "no program"
    assert answer.message.endswith(": expected steps, got none")


@pytest.mark.parametrize("index", range(5))
def test_the_compilers_schedule_takes_the_cycles_of_the_report(module, index):
    layers = [layer for segment in module.segments for layer in segment.layers]
    row, bench = module.report["layers"][index], LayerBench(module, layers[index].name)
    answer = bench.evaluate(bench.default)
    assert answer.verdict == "ok"
    assert answer.cycles == answer.default_cycles == row["cycles"]
    assert (answer.bound, answer.bound_by) == (row["bound"], row["unit"])
    assert answer.limits is not None
    assert sum(answer.limits.values()) == answer.cycles


def test_another_memory_is_timed_on_request(bench):
    slow = LayerBench(compile_graph(import_model(DIGITS), PRESETS["8x8"]), "conv2", SLOW)
    found = slow.evaluate(bench.default).cycles
    assert found is not None
    assert found > bench.gap.cycles


def test_an_illegal_step_is_named_with_its_line_and_the_loops_there(bench):
    lines = bench.default.splitlines()
    lines.insert(4, "# a comment\nsplit(conv2.qconv, k, 4)")
    answer = bench.evaluate("\n".join(lines))
    assert (answer.verdict, answer.step, answer.line) == ("illegal", "split(conv2.qconv, k, 4)", 6)
    assert answer.loops["acc"] == ("n", "y", "x", "o", "i", "ky", "kx")
    assert answer.cycles is None
    assert answer.message.startswith("split(conv2.qconv, k, 4): ")
    broken = bench.evaluate("arena()\nno step")
    assert (broken.verdict, broken.step, broken.line) == ("illegal", None, 2)


@pytest.mark.parametrize(
    "text", ["", "# nothing", "arena()", "# part 2\narena()", "set_scope(acc, ACC)"]
)
def test_steps_that_make_no_program_say_why(bench, text):
    answer = bench.evaluate(text)
    assert answer.verdict == "no program"
    assert answer.message
    assert answer.cycles is None


def test_too_large_tiles_make_no_program():
    machine = PRESETS["8x8"].replace(acc_depth=8)
    bench = LayerBench(compile_graph(import_model(DIGITS), machine), "conv2")
    text = re.sub(r"split\(conv2.qconv, (\w), \d+\)", r"split(conv2.qconv, \1, 8)", bench.default)
    answer = bench.evaluate(text)
    assert answer.verdict == "no program"
    assert "acc_depth" in answer.message


def test_a_wrong_result_is_told_from_a_right_one(bench):
    other = LayerBench(compile_graph(import_model(DIGITS), PRESETS["8x8"]), "conv2")
    output = other._grouped.groups[0].output
    values = dict(other.values)
    values[output] = values[output] ^ np.int8(1)
    other.__dict__["values"] = values
    answer = other.evaluate(bench.default)
    assert answer.verdict == "wrong result"
    assert "differ from the definition" in answer.message


def test_random_edits_get_an_answer_and_never_beat_the_bound(bench):
    draw, seen = random.Random(1), set()
    for _ in range(60):
        lines = bench.default.splitlines()
        at = draw.randrange(len(lines))
        edit = draw.choice(("drop", "swap", "number"))
        if edit == "drop":
            del lines[at]
        elif edit == "swap":
            other = draw.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            lines[at] = re.sub(r"\d+\)", f"{draw.choice((0, 1, 3, 8, 10**9))})", lines[at])
        answer = bench.evaluate("\n".join(lines))
        seen.add(str(answer.verdict))
        assert answer.cycles is None or answer.cycles >= answer.bound
        json.dumps(answer.to_json())
    assert seen == {"ok", "illegal", "no program"}


def test_unknown_and_ambiguous_layers_are_refused(bench):
    module = compile_graph(import_model(DIGITS), PRESETS["8x8"])
    with pytest.raises(UsageError, match=r"did you mean `conv3`, `conv2`, `conv1`\?$"):
        LayerBench(module, "conv9")


def test_an_artifact_is_refused(artifact, capsys):
    assert main(["evaluate", str(artifact), "--layer", "conv2"]) == 2
    assert "expected a compiled model, got an artifact" in capsys.readouterr().err


def test_the_command_answers_people_and_machines(tilewright, model, tmp_path, capsys):
    said = tilewright("evaluate", model, "--layer", "conv2")
    steps = tmp_path / "steps.txt"
    steps.write_text(said)
    assert "the result equals the definition" in tilewright(
        "evaluate", model, "--layer", "conv2", "--schedule", steps
    )
    many = tmp_path / "many.txt"
    many.write_text(f"# layer conv1\narena()\n# layer conv2\n{steps.read_text()}")
    asked = ("evaluate", model, "--layer", "conv2", "--schedule", many, "--json")
    (answer,) = json.loads(tilewright(*asked))["answers"]
    assert answer["verdict"] == "ok"
    assert answer["cycles"] == answer["default_cycles"]
    many.write_text("# layer conv1\narena()\n")
    assert main([str(word) for word in asked]) == 2
    assert "has no schedule of layer `conv2`; did you mean `conv1`?" in capsys.readouterr().err
    for nothing in ("\n", "# nothing but a remark\n"):
        many.write_text(nothing)
        assert main([str(word) for word in asked]) == 2
        assert f"`{many}` has no steps; write one on each line" in capsys.readouterr().err
    steps.write_text("split(acc, zz, 2)\n")
    refused = tilewright("evaluate", model, "--layer", "conv2", "--schedule", steps)
    assert f"{steps}: illegal, line 1: split(acc, zz, 2): " in refused
    assert "  loops of acc: n, y, x, o, i, ky, kx\n" in refused


def test_a_stream_answers_every_line(tilewright, model, monkeypatch):
    lines = ['{"id": 7, "schedule": "arena()"}', "", "nonsense", "[" * 100_000, '{"schedule": 3}']
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    said = tilewright("evaluate", model, "--layer", "conv2", "--stream")
    answers = [json.loads(line) for line in said.splitlines()]
    verdicts = [answer["verdict"] for answer in answers]
    assert verdicts == ["no program", "no request", "no request", "no request"]
    assert answers[0]["id"] == 7
