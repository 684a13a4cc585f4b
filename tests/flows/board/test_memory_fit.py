"""Measuring a memory: its parameters come back, and a wrong description is noticed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tilewright import compile_graph, import_model
from tilewright.errors import DeviceError
from tilewright.flows.board.memory_fit import Probe, fit, layer_errors, measure, probes
from tilewright.flows.cli.main import main
from tilewright.isa.checker import check
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.sdram import SDRAMS
from tilewright.isa.tokens import beginning
from tilewright.runtime import open_device
from tilewright.sim.board import VirtualBoard

from ...runtime.stub_board import serve_in_background

TINY = PRESETS["tiny"]
CLOCK_HZ = 80_000_000
SDRAM = MemoryModel.of_sdram(SDRAMS["sdr-x16"], TINY, CLOCK_HZ)
BLOCK_RAM = MemoryModel(latency_cycles=5)


@pytest.fixture(scope="module")
def programs() -> list[Probe]:
    return probes(TINY)


def cycles_of(programs: list[Probe], memory: MemoryModel) -> list[int]:
    return [probe.cycles(memory) for probe in programs]


@pytest.mark.parametrize(
    "memory",
    [BLOCK_RAM, MemoryModel(latency_cycles=9, cycles=3), SDRAM],
    ids=["block RAM", "slow", "SDRAM"],
)
def test_the_parameters_of_a_memory_come_back(programs, memory):
    found = fit(programs, cycles_of(programs, memory))
    assert (found.memory, found.error_cycles) == (memory, 0)


@pytest.mark.slow
def test_a_wrong_description_gives_way_to_the_measurement(programs):
    assert SDRAM.bus
    wrong = replace(SDRAM, latency_cycles=30, bus=replace(SDRAM.bus, write_gap_cycles=1))
    assert fit(programs, cycles_of(programs, SDRAM), wrong).memory == SDRAM


@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize(
    "name",
    ["read_gap_cycles", "write_gap_cycles", "refresh_cycles", "refresh_interval_cycles"],
)
def test_every_parameter_shows_in_the_cycles_of_some_program(programs, name, step):
    assert SDRAM.bus
    bus = replace(SDRAM.bus, **{name: getattr(SDRAM.bus, name) + step})
    for other in replace(SDRAM, bus=bus), replace(SDRAM, latency_cycles=12 + 2 * step):
        assert cycles_of(programs, other) != cycles_of(programs, SDRAM)


def test_a_right_description_is_kept_without_a_search(programs):
    def refuse(text: str) -> None:
        pytest.fail(text)

    odd = replace(SDRAM, seed=3)
    assert fit(programs, cycles_of(programs, SDRAM), odd, refuse).memory is odd


@pytest.mark.parametrize("machine", ["ecp5-25", "ecp5-85", "gowin20"])
def test_the_memory_of_every_machine_is_measured(machine):
    configuration = PRESETS[machine]
    programs = probes(configuration)
    memory = MemoryModel.of_sdram(SDRAMS["sdr-x16"], configuration, CLOCK_HZ)
    assert fit(programs, cycles_of(programs, memory), memory).memory is memory


@pytest.mark.slow
def test_cycles_that_no_memory_explains_leave_an_error(programs):
    cycles = cycles_of(programs, BLOCK_RAM)
    cycles[3] += 7
    found = fit(programs, cycles, BLOCK_RAM)
    assert 0 < found.error_cycles <= 7


def test_layers_of_a_device_add_up_to_its_cycles(model):
    machine = PRESETS["4x4"]
    memory = MemoryModel.of_sdram(SDRAMS["sdr-x16"], machine, CLOCK_HZ)
    module = compile_graph(import_model(model), machine, memory=memory)
    (segment,) = module.segments
    for end in range(len(segment.program)):  # an agent's checker refuses tokens left over
        check(beginning(segment.program, end), machine, segment.data_bytes)
    names = [layer.name for layer in segment.layers]
    with open_device("sim", machine, memory) as sim:
        told: list[tuple[str, int, int | None]] = []
        right = layer_errors(sim, segment, names, memory, lambda *step: told.append(step))
        wrong = layer_errors(sim, segment, names, BLOCK_RAM)
        whole = sim.run(segment.program, np.zeros(segment.data_bytes, np.uint8))
    assert [each.name for each in right] == names
    assert told[1] == (f"timing the program up to {names[1]}", 1, len(names))
    assert all(each.measured == each.modelled for each in right)
    assert sum(each.measured for each in right) == whole.cycles
    late = [each.measured - each.modelled for each in wrong]
    assert late[0] > 0 <= min(late)  # layers whose values stay on chip may move nothing


def test_a_device_without_counters_is_refused(programs):
    with (
        open_device("reference", TINY) as device,
        pytest.raises(DeviceError, match="does not count cycles; choose a configuration with"),
    ):
        measure(device, programs)


def test_the_command_wants_a_board(capsys):
    assert main(["measure", "sim"]) == 2
    assert capsys.readouterr().err == (
        "error: `measure sim`: expected the address of a board: `serial://...`, `tcp://...` or "
        "`remote://AGENT/BOARD`; start a virtual one with `tilewright board --virtual`\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("chip", [None, "sdr-x16"])
def test_a_board_is_measured_as_it_is(chip, model, tilewright, programs, capsys):
    board = VirtualBoard(TINY, 1 << 20, CLOCK_HZ, None, SDRAMS.get(chip))
    expected = SDRAM if chip else BLOCK_RAM
    with serve_in_background(board) as server:
        address = server.port.address
        capsys.readouterr()  # the simulator's build
        told = json.loads(tilewright("measure", address, model, "--json"))
        assert (told["configuration"], told["agrees"]) == ("tiny", True)
        assert told["error_cycles"] == 0
        assert all(layer["measured"] == layer["modelled"] for layer in told["layers"])
        said = tilewright("measure", address)
        assert said.startswith("configuration  tiny (2x2 MACs a cycle")
        assert "measured       the same" in said
        with open_device(address, TINY) as device:
            assert fit(programs, measure(device, programs)).memory == expected
