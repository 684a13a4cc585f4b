"""Boards as devices: right bytes or a sentence, whatever happens to the link."""

import os
import socket
import threading

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.flows.board.faults import FaultRates
from tilewright.flows.board.server import TcpPort, TerminalPort
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS
from tilewright.isa.encoding import encode_program
from tilewright.isa.instructions import Store
from tilewright.isa.link import BOARD_OFFSETS, REQUEST, Command
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.registers import OFFSETS
from tilewright.runtime import open_device
from tilewright.runtime.board import BoardDevice, joined_ranges, stored_ranges
from tilewright.runtime.link import Link, SilenceError
from tilewright.runtime.transports import Address

from .stub_board import LATENCY_CYCLES, StubBoard, serve_in_background

SMALL = PRESETS["tiny"]
QUICK = "?timeout=0.02"


def programs(count):
    """Programs that read scratchpads which they have not written, too."""
    return [random_program(SMALL, seed) for seed in range(count)]


def expected(program, image):
    with open_device("reference", SMALL) as reference:
        return reference.run(program, image.copy()).dram


def test_a_board_leaves_the_same_bytes_and_takes_the_models_time():
    memory = MemoryModel(latency_cycles=LATENCY_CYCLES)
    with (
        serve_in_background(StubBoard(SMALL)) as server,
        open_device("sim", SMALL, memory) as sim,
        open_device(server.port.address, SMALL) as board,
    ):
        assert board.memory == memory
        for program, image in programs(6):
            ours, theirs = image.copy(), image.copy()
            result, model = board.run(program, ours), sim.run(program, theirs)
            assert result.dram is ours
            np.testing.assert_array_equal(ours, theirs)
            assert (result.cycles, result.exact) == (model.cycles, True)
            assert result.counters == model.counters
            np.testing.assert_array_equal(result.spans, model.spans)


def test_a_counter_that_the_model_does_not_know_leaves_no_spans():
    program, image = random_program(SMALL, 1)
    board = StubBoard(SMALL)
    write = board._start

    def one_more():
        write()
        board.registers[0x84] += 1

    board._start = one_more
    with serve_in_background(board) as server, open_device(server.port.address, SMALL) as device:
        result = device.run(program, image)
    assert result.exact
    assert result.spans is None


def test_what_the_board_has_is_not_sent_again():
    program, image = random_program(SMALL, 3)
    words = encode_program(program, SMALL)
    stub = StubBoard(SMALL)
    with serve_in_background(stub) as server, open_device(server.port.address, SMALL) as board:
        board.run(words, image.copy())
        first, stub.written = stub.written, 0
        again = image.copy()
        again[40] ^= 255
        board.run(words, again)
        np.testing.assert_array_equal(again, expected(program, _changed(image, 40)))
        stored = sum(end - start for start, end in stored_ranges(program, SMALL, image.size))
        assert first >= image.size + len(words)
        assert 0 < stub.written <= stored + 64


def _changed(image, place):
    copy = image.copy()
    copy[place] ^= 255
    return copy


def test_more_programs_than_fit_take_turns():
    most = max(image.size + len(program) * 64 for program, image in programs(4))
    stub = StubBoard(SMALL, -(-(most + 3 * 4096) // 4096) * 4096)
    with serve_in_background(stub) as server, open_device(server.port.address, SMALL) as board:
        for _ in range(2):
            for program, image in programs(4):
                got = board.run(program, image.copy()).dram
                np.testing.assert_array_equal(got, expected(program, image))


def test_a_program_that_is_too_large_is_refused():
    program, _ = random_program(SMALL, 1)
    size = len(encode_program(program, SMALL))
    with (
        serve_in_background(StubBoard(SMALL, 1 << 14)) as server,
        open_device(server.port.address, SMALL) as board,
        pytest.raises(DeviceError) as refused,
    ):
        board.run(program, np.zeros(1 << 14, np.uint8))
    assert str(refused.value) == (
        f"device `{server.port.address}`: data window of 16,384 bytes and program of {size:,} "
        "bytes do not fit the board's 16,384 bytes of memory; use a smaller model or a board with "
        "more"
    )


FAULTS = {
    "lost bytes": FaultRates(lose=0.002),
    "flipped bits": FaultRates(flip=0.002),
    "both": FaultRates(lose=0.001, flip=0.001, pause=0.001, pause_s=0.001),
    "resets": FaultRates(reset=0.00005),
    "unplugged": FaultRates(unplug=0.00005),
    "everything": FaultRates(lose=0.0005, flip=0.0005, reset=0.00002, unplug=0.00002),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_every_run_ends_with_the_right_bytes_or_a_sentence(kind):
    faults, sentences = 0, []
    for seed, (program, image) in enumerate(programs(3)):
        with serve_in_background(StubBoard(SMALL), FAULTS[kind], seed) as server:
            address = server.port.address + QUICK
            for _ in range(4):
                given = image.copy()
                try:
                    with open_device(address, SMALL) as board:
                        board.run(program, given)
                except DeviceError as problem:
                    # The caller's data are as they were.
                    np.testing.assert_array_equal(given, image)
                    sentences.append(str(problem).removeprefix(f"device `{address}`: "))
                    continue
                np.testing.assert_array_equal(given, expected(program, image))
        faults += server.faults.tally.total()
    assert faults >= 4
    assert len(sentences) <= 9
    known = ("the connection broke", "the board was reset", "no answer")
    assert [text for text in sentences if not text.startswith(known)] == []


def test_a_start_whose_answer_is_lost_is_not_repeated():
    """The stub counts runs: one that clears, one of the program."""
    program, image = random_program(SMALL, 2)
    stub = StubBoard(SMALL)
    answer, started = stub._answer, []

    def lose_the_answer_to_a_start(body):
        runs = stub.runs
        made = answer(body)
        if stub.runs > runs and len(started) < 2:
            started.append(body)
            return b""
        return made

    stub._answer = lose_the_answer_to_a_start
    with (
        serve_in_background(stub) as server,
        open_device(server.port.address + QUICK, SMALL) as board,
    ):
        got = board.run(program, image.copy()).dram
    np.testing.assert_array_equal(got, expected(program, image))
    assert (stub.runs, len(started)) == (2, 2)


def refusal(address, configuration=SMALL):
    with pytest.raises(DeviceError) as refused:
        open_device(address, configuration)
    return str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"CONFIGURATION": 0x1234},
            "expected configuration `tiny` (0x{hash:08x}), got a board with one unknown here "
            "(0x00001234); load the bitstream of that configuration, or choose the board's with "
            "`--config FILE.json`",
        ),
        (
            {"CONFIGURATION": PRESETS["8x8"].hash},
            "expected configuration `tiny` (0x{hash:08x}), got a board with `8x8` "
            f"({PRESETS['8x8'].hash:#010x}); load the bitstream of that configuration, or choose "
            "the board's with `--config 8x8`",
        ),
        (
            {"LINK_VERSION": 99},
            "the board's link has version 99, expected 2; build its bitstream again with this "
            "release",
        ),
        (
            {"VERSION": 1},
            "the board's contract has version 1, expected {contract}; build its bitstream again "
            "with this release",
        ),
        ({"ID": 0}, "it answers, but it is not a board of Tilewright's; correct the address"),
    ],
)
def test_a_wrong_board_is_refused_with_a_sentence(changes, message):
    from tilewright.isa.configuration import CONTRACT_VERSION

    with serve_in_background(StubBoard(SMALL, changes=changes)) as server:
        address = server.port.address
        text = message.format(hash=SMALL.hash, contract=CONTRACT_VERSION)
        assert refusal(address) == f"device `{address}`: {text}"


SDRAM = {"MEMORY_BEAT_CYCLES": 2, "MEMORY_REFRESH": 7, "MEMORY_REFRESH_INTERVAL": 781}


class StuckLine(StubBoard):
    """A board whose memory takes bit 12 of every address for 0."""

    def _answer(self, body):
        command, tag, address, length = REQUEST.unpack_from(body)
        if command in (Command.READ_MEMORY, Command.WRITE_MEMORY):
            address &= ~(1 << 12)
        return super()._answer(REQUEST.pack(command, tag, address, length) + body[REQUEST.size :])


def test_an_sdram_is_checked_after_a_reset():
    board = StubBoard(SMALL, changes=SDRAM)
    with serve_in_background(board, port=TerminalPort()) as server:
        with open_device(server.port.address, SMALL) as first:
            assert first.memory.bus
        assert board.written == 10 * 256, "128 KiB: the first block, and one behind each line"
        open_device(server.port.address, SMALL).close()
        assert board.written == 10 * 256, "not again: another host's data may be there"
    with serve_in_background(StuckLine(SMALL, changes=SDRAM)) as server:
        address = server.port.address
        assert refusal(address) == (
            f"device `{address}`: main memory gives other bytes than were written, at 1 of 10 "
            "places, first at 0x0; build the bitstream for a lower `--clock`, or check the board"
        )


MALFORMED = (
    "expected `serial:///dev/ttyUSB0?baud=3000000` or `tcp://HOST:PORT`, each with "
    "`timeout=SECONDS` up to 60 if wanted; correct the address"
)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "tcp://",
            "tcp://host",
            "tcp://host:99999",
            "tcp://a..b:1",
            f"tcp://{'a' * 64}:1",
            "tcp://host:1/path",
            "tcp://host:1?baud=9600",
        ),
        *("serial://", "serial://ttyUSB0", "serial:///dev/x?baud=fast", "serial:///dev/x?baud"),
        *("tcp://host:1?timeout=0", "tcp://host:1?timeout=100", "tcp://host:1?colour=red"),
    ],
)
def test_a_malformed_address_is_refused(address):
    assert refusal(address) == f"device `{address}`: {MALFORMED}"


def test_an_address_is_read():
    serial = Address.parse("serial:///dev/ttyUSB0?baud=3000000&timeout=2")
    assert (serial.path, serial.baud, serial.timeout_s) == ("/dev/ttyUSB0", 3_000_000, 2.0)
    tcp = Address.parse("tcp://board.local:4000")
    assert (tcp.host, tcp.port, tcp.path) == ("board.local", 4000, "")


def test_a_missing_port_is_named(tmp_path):
    missing = f"serial://{tmp_path}/ttyUSB0"
    assert refusal(missing) == (
        f"device `{missing}`: there is no `{tmp_path}/ttyUSB0`; plug the board in, and see "
        "`ls /dev/ttyUSB* /dev/ttyACM*`"
    )
    file = tmp_path / "file"
    file.touch()
    assert refusal(f"serial://{file}") == (
        f"device `serial://{file}`: `{file}` is not a serial port that can be used "
        "(Inappropriate ioctl for device); see `ls /dev/ttyUSB* /dev/ttyACM*`"
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PermissionError(13, "Permission denied"),
            "no permission to use `/dev/ttyUSB0`; join its group (`sudo usermod -aG dialout "
            "$USER`) and log in again",
        ),
        (OSError(16, "Device or resource busy"), "another program uses `/dev/ttyUSB0`; close it"),
        (OSError(5, "Input/output error"), "cannot open `/dev/ttyUSB0` (Input/output error); check "
         "the port"),
    ],
)  # fmt: skip
def test_a_port_that_cannot_be_opened_says_why(monkeypatch, error, message):
    def fail(*_):
        raise error

    monkeypatch.setattr("tilewright.runtime.transports.os.open", fail)
    address = "serial:///dev/ttyUSB0"
    assert refusal(address) == f"device `{address}`: {message}"


def test_a_rate_that_the_system_lacks_is_refused():
    message = refusal("serial:///dev/ttyUSB0?baud=12345")
    assert "this system has no rate of 12345 baud; choose one of 9600, 19200, " in message


def test_no_server_is_a_sentence():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        assert refusal(address) == (
            f"device `{address}`: cannot connect (Connection refused); start a board there, for "
            "example with `tilewright board --virtual`, or correct the address"
        )


def test_silence_is_a_sentence():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}?timeout=0.01"
        with pytest.raises(SilenceError) as refused:
            open_device(address, SMALL)
    assert str(refused.value) == (
        f"device `{address}`: no answer; check that the board holds Tilewright's bitstream and has "
        "power, the cable, and the baud rate"
    )


def test_an_echo_is_silence():
    """A cable that returns what it is sent is not a board."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def echo():
            host, _ = listener.accept()
            with host:
                while data := host.recv(4096):
                    host.sendall(data)

        thread = threading.Thread(target=echo)
        thread.start()
        assert "no answer" in refusal(f"tcp://127.0.0.1:{listener.getsockname()[1]}?timeout=0.01")
        thread.join()


def test_a_board_that_goes_away_for_good_is_a_sentence(monkeypatch):
    monkeypatch.setattr("tilewright.runtime.board.RECONNECTING_S", 0.1)
    program, image = random_program(SMALL, 1)
    with serve_in_background(StubBoard(SMALL)) as server:
        board = open_device(server.port.address, SMALL)
    with board, pytest.raises(DeviceError, match="cannot connect"):
        board.run(program, image)


@pytest.mark.parametrize("beside", ["", "+gpu:interpreter"])
def test_a_board_that_comes_back_is_sent_everything_again(beside):
    program, image = random_program(SMALL, 1)
    with serve_in_background(StubBoard(SMALL)) as server:
        address = server.port.address
        board = open_device(address + beside, SMALL)
        assert board.name == address + beside
        board.run(program, image.copy())
    port = TcpPort(int(address.rpartition(":")[2]))
    with board, serve_in_background(StubBoard(SMALL), port=port):
        got = board.run(program, image.copy()).dram
    np.testing.assert_array_equal(got, expected(program, image))


def test_a_second_host_is_turned_away():
    program, image = random_program(SMALL, 1)
    with (
        serve_in_background(StubBoard(SMALL)) as server,
        open_device(server.port.address, SMALL) as board,
    ):
        assert "as a board does that another program uses; close" in refusal(server.port.address)
        got = board.run(program, image.copy()).dram
    np.testing.assert_array_equal(got, expected(program, image))


def test_a_hang_is_explained_and_the_board_can_be_used_again():
    program, image = random_program(SMALL, 1)
    stub = StubBoard(SMALL, hangs=True)
    with serve_in_background(stub) as server, open_device(server.port.address, SMALL) as board:
        with pytest.raises(DeviceError, match=r"hang, not done after 4,294,967,295 cycles.*FETCH"):
            board.run(program, image.copy())
        stub.hangs = False
        got = board.run(program, image.copy()).dram
    # The old program would have overwritten the new data.
    assert not stub.disturbed
    np.testing.assert_array_equal(got, expected(program, image))


@pytest.mark.parametrize("counters", ["all", "none"])
def test_a_board_that_is_busy_for_ever_is_not_waited_for(monkeypatch, counters):
    """Its counter stands still, or it has none: the host has a clock of its own."""
    monkeypatch.setattr("tilewright.runtime.board.STANDSTILL_S", 0.2)
    monkeypatch.setattr("tilewright.runtime.board.HANG_S", 0.2)
    monkeypatch.setattr("tilewright.runtime.board.SLOWEST_HZ", 1e12)
    machine = SMALL.replace(name="it", counters=counters)
    program, image = random_program(machine, 1)

    class Standing(StubBoard):
        def _start(self):
            super()._start()
            self.registers[OFFSETS["STATUS"]] = 1
            self.registers[OFFSETS["CYCLES_LOW"]] = self.registers[OFFSETS["CYCLES_HIGH"]] = 0

    with (
        serve_in_background(Standing(machine)) as server,
        open_device(server.port.address, machine) as board,
        pytest.raises(DeviceError, match="hang, not done after 0 cycles"),
    ):
        board.run(program, image.copy())


def test_a_host_finds_nothing_of_the_one_before():
    program, image = random_program(SMALL, 1)
    stub = StubBoard(SMALL)
    with serve_in_background(stub) as server:
        with open_device(server.port.address, SMALL) as board:
            board.run(program, image.copy())
        assert stub.registers[BOARD_OFFSETS["SESSION"]]
        link = Link(Address.parse(server.port.address).open(), 0)
        try:
            after = link.read(Command.READ_MEMORY, 0, stub.memory.size)
            session = link.read(Command.READ_REGISTERS, BOARD_OFFSETS["SESSION"], 4)
        finally:
            link.close()
    assert len(set(after)) == 1, "neither data nor program"
    assert session == bytes(4)


def test_a_board_behind_a_terminal_is_a_serial_port():
    program, image = random_program(SMALL, 4)
    with serve_in_background(StubBoard(SMALL), port=TerminalPort()) as server:
        assert server.port.address.startswith("serial:///dev/")
        for _ in range(2):
            with open_device(f"{server.port.address}?baud=3000000", SMALL) as board:
                got = board.run(program, image.copy()).dram
                np.testing.assert_array_equal(got, expected(program, image))


def test_scratchpads_of_a_board_cannot_be_read():
    with (
        serve_in_background(StubBoard(SMALL)) as server,
        open_device(server.port.address, SMALL) as board,
        pytest.raises(DeviceError, match="scratchpads cannot be read; store them"),
    ):
        board.scratchpads()


def test_stored_ranges_hold_every_byte_that_a_program_changes():
    for program, image in programs(20):
        changed = expected(program, image) != image
        marked = np.zeros(image.size, bool)
        for start, end in stored_ranges(program, SMALL, image.size):
            marked[start:end] = True
        assert marked[changed].all()
        assert any(isinstance(each, Store) for each in program) == marked.any()


def test_ranges_join_over_small_gaps_alone():
    marked = np.zeros(200, bool)
    assert joined_ranges(marked) == []
    marked[[0, 10, 60, 61, 199]] = True
    assert joined_ranges(marked) == [(0, 11), (60, 62), (199, 200)]


def test_a_device_is_named_by_its_address(tmp_path):
    with (
        serve_in_background(StubBoard(SMALL)) as server,
        open_device(server.port.address, SMALL) as board,
    ):
        assert isinstance(board, BoardDevice)
        assert board.name == server.port.address
        assert (board.memory_bytes, board.clock_hz) == (1 << 17, 1_000_000)
    assert os.listdir(tmp_path) == []
