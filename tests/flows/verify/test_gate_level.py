"""The netlist of a core runs random programs like the definition and the timing model."""

import pytest

from tilewright.errors import HardwareError
from tilewright.flows.verify.gate_level import build_gates, main, verify_gates
from tilewright.isa.configuration import PRESETS


@pytest.mark.slow
def test_random_programs_on_the_netlist(capsys):
    """Bytes of main memory, ACT and ACC, and every cycle."""
    assert main(["--programs", "20", "--device", "ecp5-25"]) == 0
    assert "20 programs, " in capsys.readouterr().out


@pytest.mark.slow
def test_the_netlist_of_another_machine_is_refused():
    tiny = PRESETS["tiny"]
    library = build_gates(tiny)
    with pytest.raises(HardwareError, match="hash"):
        next(verify_gates(tiny.replace(token_bits=3), library, [1], 40))


def test_a_number_of_programs_below_one(capsys):
    assert main(["--programs", "0"]) == 2
    assert "`--programs` and `--length` must be at least 1" in capsys.readouterr().err
