"""The RTL device: what a run reports, and what it says when something is wrong."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS, SCRATCHPADS, Memory
from tilewright.isa.encoding import encode_program
from tilewright.isa.instructions import Gemm, Halt, Load, Loop, Store, Sync, Unit
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.semantics import Machine
from tilewright.sim.hardware_sources import ROOT, hardware_sources
from tilewright.sim.rtl import RtlCore, build_core

TINY = PRESETS["tiny"]
DATA_BYTES = 4096


@pytest.fixture(scope="module")
def core():
    core = RtlCore(TINY)
    yield core
    core.close()


def run(core, program, dram=None, memory=None):
    core.memory = memory or MemoryModel()
    dram = np.zeros(DATA_BYTES, dtype=np.uint8) if dram is None else dram
    return core.run(encode_program(program, TINY), dram, program)


def load(**changes):
    return Load(destination=Memory.ACT, length=8, memory=0, local=0, **changes)


def test_a_program_leaves_what_its_definition_says(core):
    program, image = random_program(TINY, 3)
    machine = Machine(TINY, image.copy())
    machine.run(program)
    run(core, program, image)
    np.testing.assert_array_equal(image, machine.memories[Memory.DRAM])
    scratchpads = core.scratchpads()
    for memory in SCRATCHPADS:
        np.testing.assert_array_equal(scratchpads[memory], machine.memories[memory])


def test_scratchpads_are_zero_at_the_start_of_each_run(core):
    ones = np.full(DATA_BYTES, 0xFF, dtype=np.uint8)
    run(core, [load(), Halt()], ones)
    assert core.scratchpads()[Memory.ACT][:8].all()
    run(core, [Halt()])
    assert not any(contents.any() for contents in core.scratchpads().values())


def test_equal_runs_take_equal_cycles(core):
    program, image = random_program(TINY, 5)
    stalls = MemoryModel(stall_probability=0.4, seed=9)
    first = run(core, program, image.copy(), stalls).cycles
    run(core, program, image.copy(), replace(stalls, seed=10))
    assert run(core, program, image.copy(), stalls).cycles == first


def test_every_instruction_has_its_span(core):
    program, image = random_program(TINY, 7)
    result = run(core, program, image)
    spans = result.spans(program)
    assert (spans[-1] == -1).all()
    assert (spans[:-1, 0] > 0).all()
    assert (spans[:-1, 1] > spans[:-1, 0]).all()
    assert spans.max() <= result.cycles
    for unit in Unit:
        assert result.counters[f"{unit.name}_INSTRUCTIONS"] == result.retirements[unit].size
    assert result.counters["FETCHED"] == len(program) - 1


def test_a_missing_token_is_explained(core):
    gemm = Gemm(act=0, wgt=0, acc=0, wait=frozenset({Unit.LOAD}))
    with pytest.raises(DeviceError) as hang:
        run(core, [load(), gemm, Halt()])
    assert str(hang.value).startswith("rtl: hang, no event and no beat for ")
    assert "GEMM waits for a token of LOAD to start instruction 1 (gemm)" in str(hang.value)
    assert "LOAD is idle" in str(hang.value)
    assert "FETCH has dispatched 2 of 3 instructions" in str(hang.value)


def test_a_full_token_counter_is_explained(core):
    signals = [Sync(target=Unit.LOAD, signal=frozenset({Unit.STORE}))] * (TINY.token_limit + 1)
    with pytest.raises(DeviceError) as hang:
        run(core, [*signals, Halt()])
    assert (
        "LOAD waits to signal (a token counter is full) to retire "
        f"instruction {TINY.token_limit} (sync)"
    ) in str(hang.value)


def test_a_core_recovers_after_a_hang(core):
    with pytest.raises(DeviceError):
        run(core, [Sync(target=Unit.GEMM, wait=frozenset({Unit.LOAD})), Halt()])
    ones = np.full(DATA_BYTES, 0xFF, dtype=np.uint8)
    run(core, [load(), Halt()], ones)
    assert core.scratchpads()[Memory.ACT][:8].all()


def test_a_memory_that_never_answers_is_explained(core):
    deaf = MemoryModel(latency_cycles=1 << 20)
    core.max_cycles, kept = 5000, core.max_cycles
    try:
        with pytest.raises(DeviceError) as late:
            run(core, [load(), Halt()], memory=deaf)
    finally:
        core.max_cycles = kept
    assert str(late.value).startswith("rtl: not done after `max_cycles` = 5000 cycles; ")
    assert "FETCH has dispatched 0 of 2 instructions" in str(late.value)
    core.harness.reset()


def test_errors_of_the_machine_are_named(core):
    store = Store(source=Memory.ACT, length=8, local=0, memory=DATA_BYTES - 4)
    with pytest.raises(DeviceError) as stopped:
        run(core, [store, Halt()])
    assert str(stopped.value).startswith("rtl: the core stopped with error `OUT_OF_WINDOW` after ")
    with pytest.raises(DeviceError, match="error `NO_HALT`"):
        run(core, [load()])
    run(core, [Halt()])


def test_programs_that_do_not_fit_the_address_space_are_refused(core):
    with pytest.raises(DeviceError) as refused:
        run(core, [Halt()], np.zeros(1 << 20, dtype=np.uint8))
    assert str(refused.value).startswith("rtl: data window of 1048576 bytes and program of ")
    assert "do not fit the 1048576 bytes that `address_bits` = 20 reaches" in str(refused.value)


def test_a_second_start_needs_no_build(core, capfd):
    build_core(TINY)
    assert capfd.readouterr().err == ""


def test_a_waveform_needs_a_folder(tmp_path):
    path = tmp_path / "missing" / "wave.fst"
    with pytest.raises(DeviceError) as refused:
        RtlCore(TINY, trace=path)
    assert str(refused.value) == f"rtl: waveform `{path}`: its folder does not exist; create it"


@pytest.mark.slow
def test_a_waveform_is_written(tmp_path):
    path = tmp_path / "wave.fst"
    core = RtlCore(TINY, trace=path)
    rows = Loop(4, (8, 8))
    core.run(
        encode_program([load(loops=(rows,)), Halt()], TINY), np.zeros(DATA_BYTES, dtype=np.uint8)
    )
    core.close()
    fst_header_block, header_bytes = 0, 329
    contents = path.read_bytes()
    assert contents[0] == fst_header_block
    assert int.from_bytes(contents[1:9], "big") == header_bytes
    assert len(contents) > 2000


def test_verilog_follows_from_the_hardware_and_what_it_imports():
    names = {path.relative_to(ROOT).as_posix() for path in hardware_sources()}
    assert {"hardware/core.py", "isa/configuration.py", "isa/instructions/store.py"} <= names
    assert {"isa/encoding.py", "isa/registers.py"} <= names
    assert not {"isa/checker.py", "errors.py", "file_access.py"} & names
