"""Words that differ where nothing looks mean the same program, to the decoder and the hardware."""

import numpy as np
import pytest

from tilewright.flows.verify.programs.equivalent_words import equivalent_words
from tilewright.flows.verify.programs.random_configurations import (
    random_memory_parameters,
    verification_configurations,
)
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS, SCRATCHPADS, Memory
from tilewright.isa.encoding import decode_program, encode_program
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.semantics import Machine
from tilewright.sim.rtl import RtlCore

NAMED = verification_configurations()


@pytest.mark.parametrize("name", NAMED)
def test_words_with_garbage_are_read_as_the_same_program(name):
    for seed in range(3):
        program, _ = random_program(NAMED[name], seed)
        words = equivalent_words(program, NAMED[name], seed)
        assert decode_program(words, NAMED[name]) == program
        assert words == equivalent_words(program, NAMED[name], seed)
        plain = encode_program(program, NAMED[name])
        assert len(words) == len(plain)
        changed = np.frombuffer(words, np.uint8) != np.frombuffer(plain, np.uint8)
        assert changed.mean() > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "4x4", "16x8"])
def test_the_hardware_looks_at_nothing_that_it_should_not(name):
    configuration = PRESETS[name]
    core = RtlCore(configuration)
    for seed in range(60):
        program, image = random_program(configuration, seed)
        expected = Machine(configuration, image.copy())
        expected.run(program)
        core.memory = MemoryModel.of_parameters(random_memory_parameters(seed))
        dram = image.copy()
        core.run(equivalent_words(program, configuration, seed), dram, program)
        np.testing.assert_array_equal(
            dram, expected.memories[Memory.DRAM], err_msg=f"seed {seed}: DRAM"
        )
        scratchpads = core.scratchpads()
        for memory in SCRATCHPADS:
            np.testing.assert_array_equal(
                scratchpads[memory],
                expected.memories[memory],
                err_msg=f"seed {seed}: {memory.name}",
            )
    core.close()
