"""`tilewright verilog`: a file for other tools, or text on stdout."""

import json
from contextlib import nullcontext

import pytest

from tilewright.flows.cli.commands import verilog
from tilewright.flows.cli.main import main
from tilewright.flows.verilog import package, readable


@pytest.mark.slow
def test_a_file_and_stdout_hold_the_same_text(tilewright, tmp_path):
    path = tmp_path / "core.v"
    memories = tmp_path / "memories.json"
    said = tilewright("verilog", "--config", "tiny", "-o", path, "--memories", memories)
    assert said.startswith(f"{path}: ")
    assert "top module `core`, tiny (2x2 MACs a cycle" in said
    assert tilewright("verilog", "--config", "tiny") == path.read_text()
    rows = json.loads(memories.read_text())
    path = "act.bank_0.word_0.ram"
    assert next(row for row in rows if row["path"] == path) == {
        "path": path, "depth": 16, "width": 16, "granule": 8, "read_cycles": 1,
        "module": "tilewright_ram", "bits": 256,
    }  # fmt: skip


@pytest.mark.slow
def test_a_change_of_a_parameter_shows_in_the_header(tilewright):
    said = tilewright("verilog", "--config", "tiny", "--set", "token_bits=3")
    assert "//   token_bits = 3\n" in said
    assert "accelerator `tiny,token_bits=3`" in said


@pytest.mark.parametrize("target", [["--package", "core"], ["-o", "core.v"]])
def test_progress_is_told_while_the_core_is_generated(target, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    told = []
    monkeypatch.setattr(
        verilog, "progress_bar", lambda: nullcontext(lambda *step: told.append(step))
    )
    monkeypatch.setattr(readable, "write_core", lambda *given: ("module core; endmodule\n", []))
    monkeypatch.setattr(package, "write_core", readable.write_core)
    assert main(["verilog", "--config", "tiny", *target]) == 0
    assert told == [("generating the Verilog of `tiny`", 0, None)]
