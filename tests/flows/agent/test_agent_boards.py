"""Boards through an agent: the same bytes and cycles, queues, faults and boards set aside."""

import json
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.flows.cli.main import main
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import open_device
from tilewright.runtime.agents import connect
from tilewright.runtime.remote import RemoteDevice
from tilewright.runtime.wire import JobError, JobVerdict

from ...runtime.stub_board import LATENCY_CYCLES, StubBoard, serve_in_background
from .agents import know, person, running

SMALL = PRESETS["tiny"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """An agent with two boards, and one that never ends a program."""
    broken = StubBoard(SMALL)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as held:
        owner = person(tmp_path_factory.mktemp("homes"), "owner", patch)
        boards = [StubBoard(SMALL), StubBoard(SMALL), broken]
        addresses = [
            held.enter_context(serve_in_background(board)).port.address for board in boards
        ]
        named = zip(("one", "two", "broken"), addresses, strict=True)
        options = [word for name, where in named for word in ("--board", f"{name}={where}")]
        agent = held.enter_context(running(owner, "--offer", "none", *options))
        know("lab", agent, owner)
        wait_until(lambda: all(each["state"] == "ready" for each in listed().values()))
        yield broken


def listed() -> dict[str, dict]:
    connection = connect("lab")
    try:
        return {each["name"]: each for each in connection.request("devices").take("devices", list)}
    finally:
        connection.close()


def wait_until(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.1)


def test_boards_are_identified_and_checked_when_the_agent_starts(lab):
    for each in listed().values():
        assert each["configurations"] == [f"{SMALL.hash:#010x}"]


def test_two_boards_give_the_bytes_and_cycles_of_the_local_model(lab):
    memory = MemoryModel(latency_cycles=LATENCY_CYCLES)
    with (
        open_device("remote://lab/one", SMALL) as one,
        open_device("remote://lab/two", SMALL) as two,
        open_device("sim", SMALL, memory) as sim,
    ):
        for seed in range(4):
            program, image = random_program(SMALL, seed)
            theirs = image.copy()
            expected = sim.run(program, theirs)
            for board in (one, two):
                assert (board.memory, getattr(board, "clock_hz", 0)) == (memory, 1_000_000)
                ours = image.copy()
                result = board.run(program, ours)
                np.testing.assert_array_equal(ours, theirs)
                assert (result.cycles, result.exact) == (expected.cycles, True)
                assert result.counters == expected.counters
                np.testing.assert_array_equal(result.spans, expected.spans)
        with pytest.raises(DeviceError, match="scratchpads cannot be read"):
            one.scratchpads()


def test_who_waits_is_told_the_place_and_time_in_the_queue_is_no_time_of_a_run(lab, monkeypatch):
    places, said = [], threading.Event()

    def say(text: str) -> None:
        places.append(text)
        said.set()

    program, image = random_program(SMALL, 1)
    results = []

    def wait_in_line(tell) -> None:
        device = RemoteDevice(SMALL, MemoryModel(), "remote://lab/one", {}, tell)
        with device:
            results.append((device.run(program, image.copy()), device.times))

    with open_device("remote://lab/one", SMALL) as first:
        second = threading.Thread(target=wait_in_line, args=(None,))
        second.start()
        wait_until(lambda: listed()["one"]["waiting"] == 1)
        third = threading.Thread(target=wait_in_line, args=(say,))
        third.start()
        assert said.wait(60)
        assert listed()["one"]["client"] == "owner"
        first.run(program, image.copy())
        time.sleep(1.0)
    second.join(60)
    third.join(60)
    assert places == ["agent `lab`: place 2 in the queue"]
    for _, times in results:
        assert times.queued_s >= 1.0
        assert times.run_s < times.queued_s


def test_who_waits_too_long_gives_up_with_a_sentence(lab):
    with open_device("remote://lab/one", SMALL), pytest.raises(JobError) as refused:
        open_device("remote://lab/one?wait=0.5", SMALL)
    assert refused.value.verdict is JobVerdict.TIMEOUT
    assert "`one` was not free within 0.5 s, place 1 in the queue" in str(refused.value)
    assert not listed()["one"]["waiting"]


def test_a_machine_that_no_board_is_gets_a_sentence(lab):
    with pytest.raises(JobError, match="`board` is no machine with the configuration") as refused:
        open_device("remote://lab/board", PRESETS["4x4"])
    assert refused.value.verdict is JobVerdict.REFUSED


def test_a_board_behind_an_agent_needs_no_config(lab, tilewright, tmp_path, capsys):
    program = tmp_path / "halt.asm"
    program.write_text("halt\n")
    for address in ("remote://lab/two", "remote://lab/board"):
        assert tilewright("asm", program, "--device", address).startswith("tiny (2x2 MACs")
    found = json.loads(tilewright("measure", "remote://lab/two", "--json"))
    assert (found["configuration"], found["agrees"]) == ("tiny", True)
    assert main(["asm", str(program), "--device", "remote://lab/two", "--config", "4x4"]) == 1
    assert "only `tiny` (0x44000e86); choose that with `--config`" in capsys.readouterr().err
    assert "board, `tiny` (0x44000e86)" in tilewright("devices")


def test_a_late_client_with_an_old_token_is_refused(lab):
    program, image = random_program(SMALL, 1)
    with open_device("remote://lab/one", SMALL) as first:
        assert isinstance(first, RemoteDevice)
        first.run(program, image.copy())
        token, agent = first._token, first.connected()
    other = connect("lab")
    for connection in (agent, other):
        with pytest.raises((JobError, OSError)) as refused:
            connection.request(
                "run", [image.tobytes()], token=token, limit_s=1.0, digest="program-"
            )
        if connection is other:
            assert isinstance(refused.value, JobError)
            assert refused.value.verdict is JobVerdict.STALE
    other.close()


def test_a_board_that_hangs_is_set_aside_after_repeated_faults(lab):
    program, image = random_program(SMALL, 1)
    lab.hangs = True
    with (
        pytest.raises(JobError, match="hang, not done after") as failed,
        open_device("remote://lab/broken", SMALL) as device,
    ):
        device.run(program, image.copy())
    assert failed.value.verdict is JobVerdict.FAULT
    wait_until(lambda: listed()["broken"]["state"] == "set aside")
    assert "hang" in listed()["broken"]["why"]
    with pytest.raises(JobError, match="`broken` is set aside after 3 faults, the last one: "):
        open_device("remote://lab/broken", SMALL)
    with open_device("remote://lab/board", SMALL) as other:
        assert other.run(program, image.copy()).exact
