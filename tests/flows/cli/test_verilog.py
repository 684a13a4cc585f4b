"""`tilewright verilog`: a file for other tools, or text on stdout."""

import json

import pytest


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
