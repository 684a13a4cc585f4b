"""Tools are found by the environment, and their errors are quoted."""

import sys

import pytest

from tilewright.errors import HardwareError, ToolError
from tilewright.sim.gate import tools
from tilewright.sim.gate.tools import VERSION, YOSYS, find_tool, run_in_new_folder, tool_version


def test_the_environment_names_tools(monkeypatch):
    monkeypatch.setenv("YOSYS", sys.executable)
    assert find_tool(YOSYS) == sys.executable
    monkeypatch.setenv("YOSYS", "no-such-yosys")
    with pytest.raises(ToolError, match="`YOSYS` is `no-such-yosys`, which is not a program"):
        find_tool(YOSYS)


def test_what_a_tool_rejects_is_quoted(monkeypatch):
    monkeypatch.setenv("YOSYS", sys.executable)
    code = "import sys; print('fine'); print('a.v:3: ERROR: no such module'); sys.exit(1)"
    with pytest.raises(HardwareError, match=r"`yosys` rejected the design: a\.v:3: ERROR: no such"):
        run_in_new_folder(YOSYS, {}, ["-c", code], "out")


def test_of_many_errors_the_first_are_quoted(monkeypatch):
    monkeypatch.setenv("YOSYS", sys.executable)
    code = "import sys; [print(f'ERROR: cell {n}') for n in range(5000)]; sys.exit(1)"
    with pytest.raises(HardwareError) as problem:
        run_in_new_folder(YOSYS, {}, ["-c", code], "out")
    assert str(problem.value) == (
        "`yosys` rejected the design: ERROR: cell 0 / ERROR: cell 1 / ERROR: cell 2 / "
        "ERROR: cell 3 / 4,996 more errors"
    )


def test_output_is_followed_line_by_line(monkeypatch):
    monkeypatch.setenv("YOSYS", sys.executable)
    code = "print('one\\ntwo'); open('out', 'w').write(open('in').read() + '!')"
    lines: list[str] = []
    assert run_in_new_folder(YOSYS, {"in": "x"}, ["-c", code], "out", lines.append) == "x!"
    assert lines == ["one\n", "two\n"]


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_tool_that_prepares_itself_does_so_aloud(monkeypatch, tmp_path, capsys, seconds):
    tool = tmp_path / "yosys"
    tool.write_text(f"#!/bin/sh\nsleep {seconds}\necho Yosys 0.70\n", "utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("YOSYS", str(tool))
    monkeypatch.setattr(tools, "SILENT_S", 0.5)
    assert tool_version(YOSYS) == "0.70"
    told = "tools: `yosys` prepares itself for its first use\n"
    assert capsys.readouterr().err == told * seconds


def test_versions_are_numbers():
    assert VERSION.fullmatch(tool_version(YOSYS))
