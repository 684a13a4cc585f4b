"""`tilewright what-if`: what is asked for, and nothing that another program would be needed for."""

import json

import pytest

from tilewright.flows.cli.main import main
from tilewright.flows.execution.retiming import VARIABLE, RetimedMachine, retime, settings
from tilewright.isa.configuration import PRESETS
from tilewright.isa.encoding import encode_program
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import load
from tilewright.sim.timing import time_program

CHANGED = {"queue_depth": 2, "outstanding_bursts": 4, "bus_bits": 128, "burst_beats": 8}


def rows(tilewright, *arguments) -> dict:
    return json.loads(tilewright("what-if", *arguments, "--json"))


def test_a_table_has_a_row_for_each_combination(tilewright, artifact):
    said = tilewright("what-if", artifact, "--latency", "16,200", "--bandwidth", "1/2,1")
    lines = [line.split() for line in said.splitlines()]
    assert ["latency", "bandwidth", "cycles", "ms", "ratio"] in lines
    assert "other hardware, same program (not recompiled):" in said
    assert [line[:2] for line in lines[-4:]] == [
        ["16", "1/2"], ["16", "1/1"], ["200", "1/2"], ["200", "1/1"],
    ]  # fmt: skip
    assert "baseline " in said
    assert "100 MHz with the memory that the program was made for: latency=64,bandwidth=1/1" in said


def test_without_a_question_latency_and_bandwidth_are_tried(tilewright, artifact):
    found = rows(tilewright, artifact)
    assert len(found["rows"]) == 9
    (same,) = (row for row in found["rows"] if (row["latency"], row["bandwidth"]) == (64, "1/1"))
    assert same["cycles"] == found["base"]["cycles"]
    assert same["ratio"] == 1


def test_every_row_is_what_a_run_of_that_machine_would_take(tilewright, artifact):
    module = load(artifact)
    found = rows(
        tilewright, artifact, "--latency", 30, "--outstanding", "1,64", "--queue-depth", "1,8",
        "--vary", "bus_bits=32,128", "--vary", "burst_beats=4",
    )["rows"]  # fmt: skip
    assert len(found) == 8
    assert len({row["cycles"] for row in found}) > 4
    for row in found:
        machine = module.configuration.replace(**{name: row[name] for name in VARIABLE})
        memory = MemoryModel(latency_cycles=30, outstanding_bursts=row["outstanding"])
        cycles = sum(time_program(s.program, machine, memory).cycles for s in module.segments)
        assert row["cycles"] == cycles


@pytest.mark.parametrize("name", VARIABLE)
def test_what_may_be_varied_leaves_the_words_as_they_are(artifact, name):
    module = load(artifact)
    machine = module.configuration.replace(**{name: CHANGED[name]})
    for segment in module.segments:
        words = encode_program(segment.program, module.configuration)
        assert encode_program(segment.program, machine) == words


def test_without_a_compiler_the_table_is_the_same(artifact, monkeypatch, tmp_path):
    module = load(artifact)
    chosen = settings(module.configuration, MemoryModel(), {"latency": [20, 90]}, {})
    quick = retime(module, [RetimedMachine({}, module.configuration, MemoryModel()), *chosen])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    assert (
        retime(module, [RetimedMachine({}, module.configuration, MemoryModel()), *chosen]) == quick
    )


def test_the_configuration_of_the_model_is_chosen_first(tilewright, model):
    found = rows(tilewright, model, "--config", "8x8", "--set", "queue_depth=16")
    assert found["configuration"] == "8x8,queue_depth=16"
    assert found["base"]["queue_depth"] == 16
    assert PRESETS["8x8"].queue_depth != 16


def test_a_combination_that_breaks_a_rule_is_told_and_the_others_are_timed(tilewright, model):
    asked = model, "--config", "4x4", "--vary", "bus_bits=64,128,256", "--latency", "3"
    reason = (
        "configuration `4x4`: `bus_bits` = 256 moves over four activation rows of 4 bytes a beat; "
        "lower it or raise `lanes_in`"
    )
    found = rows(tilewright, *asked)
    assert [row["bus_bits"] for row in found["rows"]] == [64, 128]
    assert found["rejected"] == [{"chosen": "bus_bits=256", "reason": reason}]
    said = tilewright("what-if", *asked).splitlines()
    assert said[-1] == f"rejected       bus_bits=256: {reason}"


def test_nothing_is_left_if_every_combination_breaks_a_rule(model, capsys):
    assert main(["what-if", str(model), "--config", "4x4", "--vary", "bus_bits=256"]) == 1
    assert capsys.readouterr().err.endswith("a beat; lower it or raise `lanes_in`\n")


def test_a_board_gives_the_memory_from_which_others_differ(
    tilewright, model, artifact, capsys, tmp_path
):
    board = "--board", "ULX3S-25F"
    printed = tilewright("compile", model, *board, "-o", tmp_path / "digits.tw")
    found = rows(tilewright, model, *board, "--latency", "12,64")
    assert found["configuration"] == "ecp5-25"
    assert found["program_for"].startswith("latency=12,bandwidth=1/2,")
    same, slower = (row["cycles"] for row in found["rows"])
    assert found["base"]["cycles"] == same < slower
    assert f"{same:,} cycles" in printed
    for options in ([str(artifact)], [str(model), "--program-for", "latency=9"]):
        assert main(["what-if", *options, *board]) == 2
        assert "expected a model without `--program-for`" in capsys.readouterr().err
