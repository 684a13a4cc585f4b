"""`tilewright verilog`: a file for other tools, or text on stdout."""

import pytest


@pytest.mark.slow
def test_a_file_and_stdout_hold_the_same_text(tilewright, tmp_path):
    path = tmp_path / "core.v"
    said = tilewright("verilog", "--config", "tiny", "-o", path)
    assert said.startswith(f"{path}: ")
    assert "top module `core`, tiny (2x2 MACs a cycle" in said
    assert tilewright("verilog", "--config", "tiny") == path.read_text()


@pytest.mark.slow
def test_a_change_of_a_parameter_shows_in_the_header(tilewright):
    said = tilewright("verilog", "--config", "tiny", "--set", "token_bits=3")
    assert "//   token_bits = 3\n" in said
    assert "accelerator `tiny,token_bits=3`" in said
