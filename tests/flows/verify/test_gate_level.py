"""The netlist of a core runs random programs like the definition and the timing model."""

import json
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import DeviceError, HardwareError
from tilewright.flows.cli.main import main as command
from tilewright.flows.verify.gate_level import main, verify_gates
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import Memory
from tilewright.isa.instructions import Halt, Store
from tilewright.runtime import open_device
from tilewright.sim.gate.build import build_gates
from tilewright.sim.gate.cell_models import MODELS

from ...gate_machine import MACHINE, OPTION

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


@pytest.mark.slow
def test_random_programs_on_the_netlist(capsys):
    """Bytes of main memory, ACT and ACC, and every cycle."""
    assert main(["--programs", "20", "--chip", "ecp5-25", "--config", OPTION]) == 0
    assert "20 programs, " in capsys.readouterr().out


@pytest.mark.slow
def test_the_netlist_of_another_machine_is_refused():
    library = build_gates(MACHINE, MODELS["ecp5"], MODELS["ecp5"].multipliers)
    with pytest.raises(HardwareError, match="hash"):
        next(verify_gates(MACHINE.replace(token_bits=3), library, [1], 40))


@pytest.mark.slow
def test_the_device_equals_sim_and_each_run_is_a_power_up():
    size = MACHINE.size_bytes(Memory.ACT)
    stored = [Store(source=Memory.ACT, length=size, local=0, memory=0), Halt()]
    with open_device("sim", MACHINE) as sim, open_device("gate", MACHINE) as gate:
        for seed in range(2):
            program, image = random_program(MACHINE, seed)
            expected, got = sim.run(program, image.copy()), gate.run(program, image.copy())
            np.testing.assert_array_equal(got.dram, expected.dram)
            np.testing.assert_array_equal(got.spans, expected.spans)
            assert (got.cycles, got.counters) == (expected.cycles, expected.counters)
            assert not gate.run(stored, np.ones(size, np.uint8)).dram.any()
        with pytest.raises(DeviceError, match="cannot be read"):
            gate.scratchpads()


@pytest.mark.slow
def test_the_digits_network_on_the_netlist(capsys):
    """Every layer equals the integer reference, the data window and every cycle those of `sim`."""
    cycles = {}
    for device in ("sim", "gate"):
        words = ["run", str(DIGITS / "digits_int8_qdq.onnx"), "--config", OPTION, "--compare"]
        words += ["--input", str(DIGITS / "test_digits.npz"), "--samples", "1", "--json"]
        assert command([*words, "--device", device]) == 0
        found = json.loads(capsys.readouterr().out)
        cycles[device] = found["totals"]["cycles"], [each["cycles"] for each in found["layers"]]
    assert cycles["gate"] == cycles["sim"]
    assert found["comparison"]["equal"]


def test_a_number_of_programs_below_one(capsys):
    assert main(["--programs", "0"]) == 2
    assert "`--programs` and `--length` must be at least 1" in capsys.readouterr().err
