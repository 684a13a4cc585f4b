"""One interface, several devices: what they share and what they refuse."""

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS
from tilewright.isa.encoding import encode_program
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import open_device

SMALL = PRESETS["4x4"]


def test_reference_and_sim_agree_on_everything():
    program, image = random_program(SMALL, 1)
    with open_device("reference", SMALL) as reference, open_device("sim", SMALL) as sim:
        expected = reference.run(program, image.copy())
        got = sim.run(encode_program(program, SMALL), image.copy())
        np.testing.assert_array_equal(got.dram, expected.dram)
        for memory, contents in reference.scratchpads().items():
            np.testing.assert_array_equal(sim.scratchpads()[memory], contents)


def test_sim_without_a_compiler_leaves_the_same_bytes(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    program, image = random_program(SMALL, 6)
    with open_device("reference", SMALL) as reference, open_device("sim", SMALL) as sim:
        expected = reference.run(program, image.copy()).dram
        for form in (program, encode_program(program, SMALL)):
            np.testing.assert_array_equal(sim.run(form, image.copy()).dram, expected)


def test_a_list_of_instructions_may_change_between_runs():
    one, image = random_program(SMALL, 7)
    other, _ = random_program(SMALL, 8)
    program = list(one)
    with open_device("reference", SMALL) as reference, open_device("sim", SMALL) as sim:
        sim.run(program, image.copy())
        program[:] = other
        expected = reference.run(other, image.copy()).dram
        result = sim.run(program, image.copy())
    np.testing.assert_array_equal(result.dram, expected)
    assert result.spans is not None
    assert len(result.spans) == len(other)


def test_the_data_window_changes_in_place():
    program, image = random_program(SMALL, 2)
    before = image.copy()
    with open_device("sim", SMALL) as sim:
        result = sim.run(program, image)
    assert result.dram is image
    assert not np.array_equal(image, before)


def test_every_run_starts_from_zeroed_scratchpads():
    program, image = random_program(SMALL, 3)
    with open_device("sim", SMALL) as sim:
        first = sim.run(program, image.copy()).dram
        other_program, other_image = random_program(SMALL, 4)
        sim.run(other_program, other_image)
        np.testing.assert_array_equal(sim.run(program, image.copy()).dram, first)


def test_sim_is_exact_unless_memory_stalls_at_random():
    program, image = random_program(SMALL, 5)
    with open_device("sim", SMALL, MemoryModel(stall_probability=0.1)) as sim:
        assert not sim.run(program, image.copy()).exact
    with open_device("sim", SMALL, MemoryModel(latency_cycles=8)) as sim:
        result = sim.run(program, image)
    assert result.exact
    assert result.cycles is not None
    assert result.cycles > 0
    assert result.spans is not None
    assert result.spans.shape == (len(program), 2)
    assert sum(result.counters[f"{unit}_INSTRUCTIONS"] for unit in
               ("LOAD", "GEMM", "VECTOR", "STORE")) == len(program) - 1  # fmt: skip


def test_reference_knows_no_time():
    program, image = random_program(SMALL, 5)
    with open_device("reference", SMALL) as reference:
        assert reference.run(program, image).cycles is None


def test_an_unknown_device_is_refused():
    with pytest.raises(DeviceError) as refused:
        open_device("fpga", SMALL)
    assert str(refused.value) == (
        "device `fpga`: unknown; expected one of reference, sim, rtl, gate, host, gpu, or the "
        "address of a board, `serial://...`, `tcp://...` or `zynq://...`, or `remote://AGENT/DEVICE`"
    )


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("simm", "; did you mean `sim`?"),
        ("CPU", "; `host` is this computer's processor"),
        ("cuda", "; `gpu` is this computer's GPU"),
    ],
)
def test_a_device_by_another_name_is_answered_with_ours(name, end):
    with pytest.raises(DeviceError) as refused:
        open_device(name)
    assert str(refused.value).endswith(f"`remote://AGENT/DEVICE`{end}")


def test_options_of_another_device_are_refused():
    with pytest.raises(DeviceError) as refused:
        open_device("sim", SMALL, trace="wave.fst")
    assert str(refused.value) == "device `sim`: has no option `trace`; it takes none"
    with pytest.raises(DeviceError) as refused:
        open_device("gate", SMALL, trace="wave.fst")
    assert str(refused.value) == (
        "device `gate`: has no option `trace`; expected one of technology, max_cycles"
    )


def test_a_netlist_of_cells_without_models_is_refused():
    with pytest.raises(DeviceError) as refused:
        open_device("gate", SMALL, technology="xilinx7")
    assert str(refused.value) == (
        "device `gate`: technology `xilinx7`: expected one of ecp5, gowin, ice40; choose one"
    )


def test_a_data_window_of_the_wrong_kind_is_refused():
    program, image = random_program(SMALL, 1)
    with open_device("sim", SMALL) as sim:
        with pytest.raises(DeviceError) as refused:
            sim.run(program, image.view(np.int8))
        assert str(refused.value) == (
            "sim: data window: expected contiguous uint8[bytes], got int8[16384]"
        )
        image.flags.writeable = False
        with pytest.raises(DeviceError) as refused:
            sim.run(program, image)
        assert str(refused.value) == "sim: data window: the array is read-only; pass a copy"


@pytest.mark.slow
def test_rtl_agrees_and_knows_the_time():
    tiny = PRESETS["tiny"]
    with open_device("reference", tiny) as reference, open_device("rtl", tiny) as rtl:
        for seed in range(3):
            program, image = random_program(tiny, seed)
            expected = reference.run(program, image.copy())
            got = rtl.run(program, image.copy())
            np.testing.assert_array_equal(got.dram, expected.dram)
            for memory, contents in reference.scratchpads().items():
                np.testing.assert_array_equal(rtl.scratchpads()[memory], contents)
            assert got.exact
            assert got.cycles is not None
            assert got.spans is not None
            assert got.spans.max() <= got.cycles
            assert got.counters["FETCHED"] == len(program) - 1
