"""The C++ harness on a stand-in core that copies four words, or breaks a rule on request."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.isa.instructions import Unit
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.registers import OFFSETS
from tilewright.sim.harness import INTERRUPTED, SILENT, VIOLATED, Harness
from tilewright.sim.verilate import build_library

CONSTANTS = {"BUS_BYTES": 4, "BURST_BYTES": 4096, "CONTROL_OFFSET": OFFSETS["CONTROL"]}
DATA_BASE = 0x1000


@pytest.fixture(scope="module")
def library():
    verilog = Path(__file__).with_name("copy_core.v").read_text()
    return build_library(verilog, "copy_core", CONSTANTS, "copy_core")


@pytest.fixture
def harness(library):
    harness = Harness(library, MemoryModel())
    yield harness
    harness.close()


def run(harness, defect=0, memory=None):
    """Run the stand-in; returns outcome and memory."""
    data = np.arange(4096, dtype=np.uint32).astype(np.uint8)
    harness.set_memory(memory or MemoryModel())
    harness.map(1, DATA_BASE, data, writable=True)
    harness.write("DATA_BASE", DATA_BASE)
    harness.write("PROGRAM_BYTES", defect)
    harness.start()
    return harness.run(100_000, 1000), data


def test_a_burst_is_copied(harness):
    outcome, data = run(harness)
    assert outcome == INTERRUPTED
    assert harness.violation == ""
    np.testing.assert_array_equal(data[16:32], np.arange(16))
    np.testing.assert_array_equal(data[32:48], np.arange(32, 48))
    assert harness.beats() == (4, 4)


def test_events_are_logged_by_unit(harness):
    run(harness)
    starts = harness.events(Unit.LOAD, retirements=False)
    ends = harness.events(Unit.LOAD, retirements=True)
    assert starts.size == ends.size == 1
    assert 0 <= starts[0] < ends[0] <= harness.cycles
    assert harness.events(Unit.STORE, retirements=True).size == 0


def test_latency_counts_once_per_direction(harness):
    run(harness, memory=MemoryModel(latency_cycles=10))
    near = harness.cycles
    run(harness, memory=MemoryModel(latency_cycles=110))
    assert harness.cycles - near == 200


def test_bandwidth_spreads_the_beats(harness):
    run(harness, memory=MemoryModel(latency_cycles=10))
    full = harness.cycles
    run(harness, memory=MemoryModel(latency_cycles=10, beats=1, cycles=5))
    assert 2 * 3 * 4 <= harness.cycles - full <= 2 * 4 * 4


def test_stalls_repeat_with_their_seed(harness):
    cycles = []
    for seed in (5, 5, 6, 7, 8):
        outcome, data = run(harness, memory=MemoryModel(stall_probability=0.5, seed=seed))
        assert outcome == INTERRUPTED
        np.testing.assert_array_equal(data[16:32], np.arange(16))
        cycles.append(harness.cycles)
    assert cycles[0] == cycles[1]
    assert len(set(cycles)) > 1


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        (1, "AR changed or dropped before it was accepted (address 0x1004)"),
        (2, "wlast is not at the last beat (address 0x1010)"),
        (3, "AR: burst crosses a 4 KiB boundary (address 0x1ff8)"),
        (5, "W changed or dropped before it was accepted (address 0x1010)"),
        (6, "read outside of program and data (address 0x8000)"),
        (7, "write outside of the data window (address 0x8000)"),
        (8, "register port answers without a request"),
    ],
)
def test_a_broken_rule_is_reported(harness, defect, message):
    slow = MemoryModel(stall_probability=0.6, seed=3)
    outcome, _ = run(harness, defect, slow)
    assert outcome == VIOLATED
    assert harness.violation == message


def test_a_failed_assertion_is_reported(harness):
    outcome, _ = run(harness, defect=9)
    assert outcome == VIOLATED
    lines = Path(__file__).with_name("copy_core.v").read_text().splitlines()
    place = next(number for number, line in enumerate(lines, 1) if "assert (" in line)
    assert harness.violation == (f"an assertion failed at line {place} of the Verilog, see above")
    assert run(harness)[0] == INTERRUPTED


def test_silence_is_noticed(harness):
    outcome, _ = run(harness, defect=4)
    assert outcome == SILENT
    assert 1000 < harness.cycles < 1200


def test_memory_arrays_can_be_read_and_changed(harness):
    arrays = harness.arrays()
    words, bits = arrays["copy_core__DOT__words"]
    assert bits == 32
    run(harness)
    np.testing.assert_array_equal(words.reshape(-1), np.arange(16))
    words[:] = 0
    assert not harness.arrays()["copy_core__DOT__words"][0].any()


def test_a_second_build_is_found(library, capfd):
    verilog = Path(__file__).with_name("copy_core.v").read_text()
    assert build_library(verilog, "copy_core", CONSTANTS, "copy_core") == library
    assert capfd.readouterr().err == ""
