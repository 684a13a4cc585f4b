"""The clearing program leaves zeros everywhere, and is a program like any other."""

import numpy as np
import pytest

from tilewright.flows.verify.programs.random_configurations import verification_configurations
from tilewright.isa.checker import check
from tilewright.isa.clearing import clearing_program
from tilewright.isa.configuration import PRESETS, SCRATCHPADS
from tilewright.isa.semantics import Machine

MACHINES = {**PRESETS, **verification_configurations()}


@pytest.mark.parametrize("name", MACHINES)
def test_every_byte_is_zero_afterwards_whatever_was_there(name):
    configuration = MACHINES[name]
    program = clearing_program(configuration)
    check(program, configuration, data_bytes=0)
    machine = Machine(configuration, np.zeros(0, np.uint8))
    for memory in SCRATCHPADS:
        machine.memories[memory][:] = 0xA7
    machine.run(program)
    for memory in SCRATCHPADS:
        assert not machine.memories[memory].any(), memory
