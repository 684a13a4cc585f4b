"""A memory whose reads and writes share a bus, on the command line."""

import json

import pytest

from tilewright.flows.cli.main import main
from tilewright.flows.cli.memory_options import memory_options
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.sdram import SDRAMS
from tilewright.runtime import load
from tilewright.sim.timing import time_program

MEMORY = MemoryModel.of_sdram(SDRAMS["sdr-x16"], PRESETS["8x8"], 100_000_000)
OPTIONS = memory_options(MEMORY).split()


def cycles_of(path, memory: MemoryModel) -> int:
    module = load(path)
    segments = module.segments
    return sum(time_program(each.program, module.configuration, memory).cycles for each in segments)


def test_the_options_of_an_sdram():
    assert OPTIONS == ["--latency", "14", "--bandwidth", "1/4", "--shared-bus", "6,7,7,781"]


def test_schedules_are_chosen_for_the_memory(tilewright, model, tmp_path):
    usual, ours = tmp_path / "usual.tw", tmp_path / "ours.tw"
    tilewright("compile", model, "--config", "8x8", "-o", usual)
    said = json.loads(
        tilewright("compile", model, "--config", "8x8", "-o", ours, "--json", *OPTIONS)
    )
    assert said["cycles"] == cycles_of(ours, MEMORY)
    assert cycles_of(ours, MEMORY) <= cycles_of(usual, MEMORY)
    assert said["cycles"] != cycles_of(usual, MemoryModel())


def test_a_run_takes_the_cycles_of_the_memory(tilewright, model, tmp_path):
    target = tmp_path / "digits.tw"
    tilewright("compile", model, "--config", "8x8", "-o", target)
    said = json.loads(tilewright("run", target, "--json", *OPTIONS))
    layers = [layer["cycles"] for layer in said["layers"]]
    assert sum(filter(None, layers)) == cycles_of(target, MEMORY)


@pytest.mark.parametrize(
    ("bus", "code", "message"),
    [
        (
            "6,7",
            2,
            "error: `--shared-bus 6,7`: expected 4 numbers such as `6,7,7,781`; correct it",
        ),
        (
            "6,7,7,10",
            2,
            "error: `--shared-bus 6,7,7,10`: `refresh_interval_cycles` must be from 14 to 1048576, "
            "not 10",
        ),
    ],
)
def test_a_bus_that_no_memory_has(model, capsys, bus, code, message):
    assert main(["run", str(model), "--shared-bus", bus]) == code
    assert capsys.readouterr().err.strip() == message


def test_a_bus_has_no_effect_on_a_board(model, capsys):
    assert main(["run", str(model), "--device", "host", "--shared-bus", "6,7,7,781"]) == 2
    said = capsys.readouterr().err
    assert "`--shared-bus`: expected `--device sim`, `rtl` or `gate`, got `host`" in said
