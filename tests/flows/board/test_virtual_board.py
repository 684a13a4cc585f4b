"""The system on chip in Verilator behind a TCP port or a terminal, driven as a board is."""

import gc
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright import compile_graph, import_model
from tilewright.errors import DeviceError, HardwareError
from tilewright.flows.board.faults import NO_FAULTS, FaultRates
from tilewright.flows.board.server import TerminalPort
from tilewright.flows.cli.main import main
from tilewright.flows.execution.timed import time_segments
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.hardware.soc.block_memory import LATENCY_CYCLES
from tilewright.hardware.soc.system import System
from tilewright.isa.configuration import PRESETS
from tilewright.isa.link import REQUEST, Command, body_of, frame, request
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.registers import OFFSETS
from tilewright.isa.sdram import SDRAMS
from tilewright.runtime import Session, open_device
from tilewright.runtime.board import BoardDevice
from tilewright.runtime.link import Link
from tilewright.runtime.transports import Transport
from tilewright.sim.board import VirtualBoard

from ...runtime.stub_board import serve_in_background

pytestmark = pytest.mark.slow

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
RESNET8 = Path(__file__).parents[4] / "shared" / "models" / "ic_resnet8" / "ic_int8_qdq.onnx"
CLOCK_HZ = 25_000_000
MEMORY_BYTES = 1 << 20
SDRAM_CLOCK_HZ = 100_000_000


def served(name, divisor=None, port=None, rates=NO_FAULTS, seed=0, sdram=None):
    """Serve a virtual board of a preset while the block runs."""
    clock_hz = SDRAM_CLOCK_HZ if sdram else CLOCK_HZ
    board = VirtualBoard(PRESETS[name], MEMORY_BYTES, clock_hz, divisor, sdram)
    return serve_in_background(board, rates, seed, port)


def same_as_sim(configuration, board, seeds):
    """Bytes, cycles, counters and spans of random programs, which also read what is not written."""
    with open_device("sim", configuration, board.memory) as sim:
        for seed in seeds:
            program, image = random_program(configuration, seed)
            ours, theirs = image.copy(), image.copy()
            result, model = board.run(program, ours), sim.run(program, theirs)
            np.testing.assert_array_equal(ours, theirs)
            assert result.cycles == model.cycles
            assert result.counters == model.counters
            np.testing.assert_array_equal(result.spans, model.spans)


@pytest.mark.parametrize(("name", "count"), [("tiny", 40), ("4x4", 12)])
def test_random_programs_leave_the_bytes_of_sim_in_its_cycles(name, count):
    configuration = PRESETS[name]
    with served(name) as server, open_device(server.port.address, configuration) as board:
        assert board.memory.latency_cycles == LATENCY_CYCLES
        assert isinstance(board, BoardDevice)
        assert (board.memory_bytes, board.clock_hz) == (MEMORY_BYTES, CLOCK_HZ)
        same_as_sim(configuration, board, range(count))


@pytest.mark.parametrize(
    ("name", "chip", "has_masks", "count"),
    [("tiny", "sdr-x16", True, 40), ("4x4", "sdr-x32", True, 12), ("4x4", "sdr-x32", False, 40)],
)
def test_random_programs_take_the_cycles_of_an_sdram_refreshes_included(
    name, chip, has_masks, count
):
    configuration, sdram = PRESETS[name], replace(SDRAMS[chip], has_masks=has_masks)
    with (
        served(name, sdram=sdram) as server,
        open_device(server.port.address, configuration) as board,
    ):
        assert board.memory == MemoryModel.of_sdram(sdram, configuration, SDRAM_CLOCK_HZ)
        same_as_sim(configuration, board, range(count))


def test_a_board_behind_the_wires_of_a_serial_port_does_the_same():
    tiny = PRESETS["tiny"]
    with (
        served("tiny", 4, TerminalPort()) as server,
        open_device(server.port.address, tiny) as board,
    ):
        same_as_sim(tiny, board, range(2))


@pytest.fixture(scope="module")
def digits():
    return compile_graph(import_model(DIGITS / "digits_int8_qdq.onnx"), PRESETS["4x4"])


@pytest.fixture(scope="module")
def scans():
    with np.load(DIGITS / "test_digits.npz") as file:
        return file["inputs"][:10], file["outputs"][:10]


@pytest.mark.parametrize("chip", [None, "sdr-x16"])
def test_digits_run_on_a_board_as_on_sim(digits, scans, chip):
    inputs, outputs = scans
    with (
        served("4x4", sdram=SDRAMS.get(chip)) as server,
        open_device(server.port.address, PRESETS["4x4"]) as board,
        open_device("sim", PRESETS["4x4"], board.memory) as sim,
    ):
        ours, theirs = Session(digits, board), Session(digits, sim)
        for scan, output in zip(inputs, outputs, strict=True):
            run, model = ours.run(scan[None]), theirs.run(scan[None])
            np.testing.assert_array_equal(run.outputs["logits"].ravel(), output.ravel())
            for one, other in zip(run.results, model.results, strict=True):
                np.testing.assert_array_equal(one.dram, other.dram)
            assert run.profile.cycles == model.profile.cycles
            layers = [layer.cycles for layer in run.profile.layers]
            assert layers == [layer.cycles for layer in model.profile.layers]


@pytest.mark.skipif(not RESNET8.is_file(), reason=f"no shared models: `{RESNET8}`")
def test_a_network_keeps_an_sdram_busy_in_the_cycles_of_sim():
    machine = PRESETS["8x8"]
    module = compile_graph(import_model(RESNET8), machine)
    with np.load(RESNET8.with_suffix(".npz")) as file:
        sample = file["inputs"][:1]
    with (
        served("8x8", sdram=SDRAMS["sdr-x16"]) as server,
        open_device(server.port.address, machine) as board,
        open_device("sim", machine, board.memory) as sim,
    ):
        (ours,), (theirs,) = (Session(module, each).run(sample).results for each in (board, sim))
    np.testing.assert_array_equal(ours.dram, theirs.dram)
    assert ours.cycles == theirs.cycles
    assert ours.counters == theirs.counters


class Nosy(Transport):
    """A transport that adds reads and writes of memory behind each start of a program."""

    def __init__(self, transport, place):
        super().__init__(transport.address, transport._file)
        self.transport, self.place = transport, place

    def send(self, data):
        head = REQUEST.unpack_from(body_of(data[1:-1]) or b"")
        if (head[0], head[2]) == (Command.WRITE_REGISTERS, OFFSETS["CONTROL"]):
            other_tag, generator = head[1] ^ 0x8000, np.random.default_rng(1)
            for size in range(1, 200, 20):
                bodies = (
                    request(
                        Command.WRITE_MEMORY, other_tag, self.place, size, generator.bytes(size)
                    ),
                    request(Command.READ_MEMORY, other_tag, 0, 4 * size),
                )
                data += b"".join(map(frame, bodies))
        super().send(data)

    def close(self):
        self.transport.close()


def test_the_host_may_use_memory_while_a_program_runs(digits, scans):
    inputs, outputs = scans
    with (
        served("4x4", sdram=SDRAMS["sdr-x16"]) as server,
        BoardDevice(PRESETS["4x4"], server.port.address) as board,
        open_device("sim", PRESETS["4x4"], board.memory) as sim,
    ):
        assert isinstance(board, BoardDevice)
        assert isinstance(board._link, Link)
        board._link.transport = Nosy(board._link.transport, MEMORY_BYTES - 4096)
        run = Session(digits, board).run(inputs[0][None])
        model = Session(digits, sim).run(inputs[0][None])
    np.testing.assert_array_equal(run.outputs["logits"].ravel(), outputs[0].ravel())
    np.testing.assert_array_equal(run.results[0].dram, model.results[0].dram)
    # The host's accesses delayed the program, which waits for this memory, so the model's times are
    # not claimed.
    assert (run.results[0].cycles or 0) > (model.results[0].cycles or 0)
    assert run.results[0].spans is None


FAULTS = {
    "lost bytes": FaultRates(lose=0.001),
    "flipped bits": FaultRates(flip=0.001),
    "pauses": FaultRates(pause=0.001, pause_s=0.005),
    "resets": FaultRates(reset=0.00002),
    "unplugged": FaultRates(unplug=0.00002),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_digits_survive_a_bad_link_or_end_with_a_sentence(digits, scans, kind):
    inputs, outputs = scans
    with served("4x4", rates=FAULTS[kind], seed=1) as server:
        address, sentences = f"{server.port.address}?timeout=0.05", []
        for scan, output in zip(inputs, outputs, strict=True):
            try:
                with open_device(address, PRESETS["4x4"]) as board:
                    run = Session(digits, board).run(scan[None])
            except DeviceError as problem:
                sentences.append(str(problem))
                continue
            np.testing.assert_array_equal(run.outputs["logits"].ravel(), output.ravel())
    assert server.faults.tally.total()
    assert all(sentence.startswith(f"device `{address}`: ") for sentence in sentences)
    assert len(sentences) <= 5


def test_run_and_report_compile_for_the_memory_of_a_board(capsys, tmp_path):
    model, page = str(DIGITS / "digits_int8_qdq.onnx"), tmp_path / "page.html"
    sdram = SDRAMS["sdr-x16"]
    memory = MemoryModel.of_sdram(sdram, PRESETS["4x4"], SDRAM_CLOCK_HZ)
    best = compile_graph(import_model(model), PRESETS["4x4"], memory=memory)
    with served("4x4", sdram=sdram) as server:
        device = ["--config", "4x4", "--device", server.port.address]
        assert main(["run", model, *device, "--json", "-"]) == 0
        measured = json.loads(capsys.readouterr().out)
        assert main(["report", model, *device, "-o", str(page), "--json", "-"]) == 0
        explained = json.loads(capsys.readouterr().out)
    assert measured["device"] == server.port.address
    assert measured["memory"]["latency_cycles"] == memory.latency_cycles
    timed = [each.timing.cycles for each in time_segments(best, memory)]
    assert measured["totals"]["cycles"] == explained["summary"]["cycles"] == sum(timed)
    assert explained["device"] == server.port.address
    assert page.is_file()


def test_the_command_prints_an_address_and_stops_when_interrupted():
    command = [sys.executable, "-m", "tilewright.flows.cli.main", "board", "--virtual"]
    command += ["--config", "tiny", "--memory-kib", str(MEMORY_BYTES // 1024)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            lines = [next(process.stdout) for _ in range(4)]
            address = next(line.split()[1] for line in lines if line.startswith("address"))
            with open_device(address, PRESETS["tiny"]) as board:
                same_as_sim(PRESETS["tiny"], board, [1])
        finally:
            process.send_signal(signal.SIGINT)
        out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert out.startswith("stopped        after ")
    assert "rror" not in errors


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_a_memory_that_no_address_reaches_is_refused():
    with pytest.raises(HardwareError, match="expected a multiple of 4096 bytes up to the 1048576"):
        System(PRESETS["tiny"], 1 << 21, CLOCK_HZ)
    gc.collect()  # while the warning is off
