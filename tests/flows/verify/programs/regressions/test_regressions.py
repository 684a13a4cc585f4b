"""Small programs that once failed, or that cover one corner, replayed on every machine.

A file is assembly below a header (`flows/verify/programs/cases.py`). The shrinker makes one from a
failing program (`flows/verify/programs/shrink_programs.py`).
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.flows.verify.programs.adversary import execute_adversarially, first_difference
from tilewright.flows.verify.programs.cases import ProgramCase, format_case, parse_case
from tilewright.isa.checker import check
from tilewright.isa.configuration import SCRATCHPADS, Memory
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.semantics import Machine
from tilewright.runtime.devices import open_device

FILES = sorted(Path(__file__).parent.glob("*.tw"))


def kept(path: Path) -> ProgramCase:
    return parse_case(path.read_text(), path.name)


def expected(case: ProgramCase) -> Machine:
    machine = Machine(case.configuration, case.image())
    machine.run(case.program)
    return machine


def assert_device_leaves(device: str, path: Path) -> None:
    case = kept(path)
    machine, dram = expected(case), case.image()
    with open_device(device, case.configuration, MemoryModel.of_parameters(case.memory)) as opened:
        opened.run(case.program, dram)
        scratchpads = opened.scratchpads()
    np.testing.assert_array_equal(dram, machine.memories[Memory.DRAM])
    for memory in SCRATCHPADS:
        np.testing.assert_array_equal(
            scratchpads[memory], machine.memories[memory], err_msg=memory.name
        )


def test_there_are_cases_and_each_says_why():
    assert len(FILES) > 20
    assert len({kept(path).why for path in FILES}) == len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_case_is_legal_small_and_written_as_it_would_be(path):
    case = kept(path)
    check(case.program, case.configuration, case.data_bytes)
    assert len(case.program) <= 12
    assert format_case(case) == path.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_order_gives_one_result(path):
    case = kept(path)
    for seed in range(4):
        got = execute_adversarially(case.program, case.configuration, case.image(), seed)
        assert first_difference(expected(case), got) is None, f"seed {seed}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_simulator_leaves_the_same_bytes(path):
    assert_device_leaves("sim", path)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_hardware_leaves_the_same_bytes(path):
    assert_device_leaves("rtl", path)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_timing_model_knows_every_cycle(path):
    case = kept(path)
    memory = replace(MemoryModel.of_parameters(case.memory), stall_probability=0.0)
    results = []
    for device in ("sim", "rtl"):
        with open_device(device, case.configuration, memory) as opened:
            results.append(opened.run(case.program, case.image()))
    sim, rtl = results
    assert sim.cycles == rtl.cycles
    assert sim.counters == rtl.counters
    np.testing.assert_array_equal(sim.spans, rtl.spans)
