"""The listings of docs/guide/integrate.md: its commands run, its code connects every port."""

import contextlib
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

from tilewright.flows.cli.main import main
from tilewright.flows.verilog.readable import core_ports
from tilewright.isa.configuration import PRESETS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "guide" / "integrate.md").read_text()
PORTS = {port.name: port.direction for port in core_ports(PRESETS["tiny"])}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
def test_the_commands_write_the_files_of_the_page(tmp_path, capsys):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with contextlib.chdir(tmp_path):
        for command in "".join(blocks("sh")).splitlines():
            program, *words = shlex.split(command)
            assert program == "tilewright"
            assert main(words) == 0
    table = set(re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE))
    assert {path.name for path in (tmp_path / "core").glob("[!.]*")} == table
    for name in ("memory.hex", "expected.hex", "runs.hex", "bench.v", "test_network.py", "core.v"):
        assert (tmp_path / "bench" / name).stat().st_size
    assert "bench" in capsys.readouterr().out


def test_the_verilog_connects_every_port():
    (text,) = blocks("verilog")
    assert sorted(re.findall(r"\.(\w+)\(", text)) == sorted(PORTS)


def test_the_litex_module_connects_every_port(monkeypatch):
    for name in ("migen", "litex", "litex.gen", "litex.soc", "litex.soc.interconnect"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    stub = ModuleType("litex.gen")
    stub.LiteXModule = type("LiteXModule", (), {"specials": []})  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "litex.gen", stub)
    text, system = blocks("python")
    compile(system, "docs/guide/integrate.md", "exec")
    namespace: dict = {}
    exec(compile(text, "docs/guide/integrate.md", "exec"), namespace)
    instance = namespace["Instance"]
    namespace["Tilewright"].__init__(MagicMock(), MagicMock())
    connected = instance.call_args.kwargs
    assert sorted(connected) == sorted(
        f"{'i' if direction == 'input' else 'o'}_{name}" for name, direction in PORTS.items()
    )
