"""The edges of the command line: closed streams, other locales, huge numbers and many axes."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tilewright.flows.cli.main import main

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8_qdq.onnx"


def call(words: str, *, shell: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} -m tilewright.flows.cli.main {words} {shell}"
    environment = {**os.environ, **more}
    return subprocess.run(
        command, shell=True, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_dropped(closed):
    done = call("config list", shell=closed)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_locale_of_ascii_changes_no_file(tmp_path):
    page = tmp_path / "page.html"
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = call(f"report {DIGITS} --config 4x4 -o {page}", **plain)
    assert done.returncode == 0, done.stderr
    assert not page.read_text("utf-8").isascii()


def test_text_is_read_and_written_as_utf8_everywhere():
    """Whatever the locale is; a file of text names its encoding."""
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).parts
        if parts[0] in ("tests", "examples", "docs") or parts[0].startswith("."):
            continue
        for one in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(one, ast.Call) or not isinstance(one.func, ast.Attribute):
                continue
            if one.func.attr in ("read_text", "write_text"):
                given = len(one.args) - (one.func.attr == "write_text")
                assert given or one.keywords, f"{path}:{one.lineno}: name the encoding"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("cycles < " + "9" * 400, "expected a condition with"),
        ("cycles < " + "9" * 5000, "expected at most 1,000 characters, got 5,009"),
        ("not " * 240 + "cycles < 1", "every condition"),
        ("(" * 300 + "cycles" + ")" * 300 + " < 1", "expected a condition with"),
        ("cycles < 1e400", "expected a condition with"),
        ("cycles < True", "expected a condition with"),
    ],
)
def test_huge_conditions_are_one_sentence(tmp_path, capsys, condition, expected):
    database = str(tmp_path / "it.db")
    words = ["sweep", str(DIGITS), "--vary", "lanes=4x4", "--where", condition]
    code = main([*words, "--workers", "0", "--database", database])
    said = capsys.readouterr()
    assert code == (0 if "every condition" in expected else 2)
    assert expected in said.out + said.err


@pytest.mark.parametrize("rank", [33, 64, 65, 200])
def test_a_tensor_of_many_axes_is_one_sentence(tmp_path, capsys, rank):
    ends = [helper.make_tensor_value_info(name, 1, [1] * rank) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    assert main(["run", str(path)]) == 1
    assert f"a tensor of {rank} axes: expected at most 32; reshape it" in capsys.readouterr().err


def test_long_arguments_and_deep_files_are_one_sentence(tmp_path, capsys):
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    assert main(["config", "show", str(deep)]) == 1
    assert "brackets nested too deeply" in capsys.readouterr().err
    assert main(["config", "show", "[" * 100_000]) == 1
    assert len(capsys.readouterr().err) < 5_000
    space = tmp_path / "deep.toml"
    space.write_text("a = " + "[" * 100_000)
    assert main(["sweep", str(DIGITS), "--space", str(space)]) == 2
    assert "not readable as TOML" in capsys.readouterr().err
