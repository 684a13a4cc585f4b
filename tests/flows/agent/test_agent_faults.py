"""Faults on an agent's side: processes that die or hang, agents that are killed, odd clients."""

import errno
import os
import signal
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import DeviceError, ProgramError, ToolError
from tilewright.flows.agent.worker import JobWorker, classify
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import CONTRACT_VERSION, PRESETS
from tilewright.runtime import open_device, remote
from tilewright.runtime.agents import connect
from tilewright.runtime.device import OtherConfigurationError
from tilewright.runtime.identity import load_identity
from tilewright.runtime.spot_checks import WrongResultError
from tilewright.runtime.wire import (
    HEAD,
    MAGIC,
    WIRE_VERSION,
    Channel,
    JobError,
    JobVerdict,
    Message,
    WireError,
    encode,
)

from ...runtime.stub_board import StubBoard, serve_in_background
from .agents import know, person, running

SMALL = PRESETS["tiny"]
PROGRAM, IMAGE = random_program(SMALL, 1)


class SlowBoard(StubBoard):
    """A board that takes up to `seconds` for a program, until that is 0, and says so."""

    def __init__(self) -> None:
        super().__init__(SMALL)
        self.seconds, self.started = 0.0, threading.Event()

    def _start(self) -> None:
        if self.seconds:
            self.started.set()
            end = time.monotonic() + self.seconds
            while time.monotonic() < end and self.seconds:
                time.sleep(0.02)
        super()._start()


@contextmanager
def lab(tmp_path, monkeypatch, *options):
    """An agent with `sim` and a slow board."""
    owner, board = person(tmp_path, "owner", monkeypatch), SlowBoard()
    with serve_in_background(board) as server:
        given = ["--offer", "sim", "--places", "1", "--board", f"slow={server.port.address}"]
        with running(owner, *given, *options) as agent:
            know("lab", agent, owner)
            wait_until(lambda: state_of("slow") == "ready")
            yield owner, board, agent, [*given, *options]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """An agent for the tests that do not end it."""
    with pytest.MonkeyPatch.context() as patch, lab(tmp_path_factory.mktemp("lab"), patch) as found:
        yield found


def state_of(name: str) -> str:
    connection = connect("lab")
    try:
        listed = connection.request("devices").take("devices", list)
        return next(each["state"] for each in listed if each["name"] == name)
    finally:
        connection.close()


def wait_until(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.1)


def children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text("ascii")
    return [int(word) for word in text.split()]


def assert_right(device) -> None:
    window = IMAGE.copy()
    device.run(PROGRAM, window)
    with open_device("reference", SMALL) as reference:
        np.testing.assert_array_equal(window, reference.run(PROGRAM, IMAGE.copy()).dram)


def test_a_job_whose_process_dies_costs_one_job(shared):
    _, _, agent, _ = shared
    for number, verdict in (
        (signal.SIGSEGV, JobVerdict.CRASHED), (signal.SIGKILL, JobVerdict.MEMORY)
    ):  # fmt: skip
        with open_device("remote://lab/sim", SMALL) as device:
            assert_right(device)
            (worker,) = children(agent.process.pid)
            os.kill(worker, number)
            with pytest.raises(JobError, match=f"its process was ended by {number.name}") as e:
                device.run(PROGRAM, IMAGE.copy())
            assert e.value.verdict is verdict
            assert_right(device)
    wait_until(lambda: not children(agent.process.pid))


def test_a_job_that_hangs_is_ended_and_its_board_checked(shared):
    _, board, _, _ = shared
    board.seconds = 20.0
    with open_device("remote://lab/slow?limit=1", SMALL) as device:
        with pytest.raises(JobError, match="not done after 1 s, so its process was") as late:
            device.run(PROGRAM, IMAGE.copy())
        assert late.value.verdict is JobVerdict.TIMEOUT
        board.seconds = 0.0
        assert state_of("slow") == "being checked"
        with open_device("remote://lab/sim", SMALL) as other:
            assert_right(other)
        assert_right(device)


def test_an_agent_that_is_killed_and_started_again_loses_nothing(tmp_path, monkeypatch):
    with lab(tmp_path, monkeypatch) as (owner, board, agent, options):
        results = []

        def client() -> None:
            with open_device("remote://lab/slow", SMALL) as device:
                board.seconds = 2.0
                window = IMAGE.copy()
                results.append((device.run(PROGRAM, window), window))

        thread = threading.Thread(target=client)
        thread.start()
        assert board.started.wait(60)
        workers = children(agent.process.pid)
        agent.kill()
        board.seconds = 0.0
        wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
        with running(owner, *options, place=agent.place):
            thread.join(120)
            assert not thread.is_alive()
            ((result, window),) = results
            with open_device("reference", SMALL) as reference:
                expected = reference.run(PROGRAM, IMAGE.copy()).dram
            np.testing.assert_array_equal(window, expected)
            assert result.exact


def test_an_agent_that_is_killed_for_good_is_a_lost_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "RECONNECTING_S", 0.5)
    with lab(tmp_path, monkeypatch) as (_, _, agent, _):
        with open_device("remote://lab/sim", SMALL) as device:
            assert_right(device)
            agent.kill()
            window, tries = IMAGE.copy(), []
            reconnect = remote.RemoteDevice._reconnect
            monkeypatch.setattr(
                remote.RemoteDevice, "_reconnect", lambda one: tries.append(1) or reconnect(one)
            )
            with pytest.raises(JobError, match="cannot connect to") as lost:
                device.run(PROGRAM, window)
        assert lost.value.verdict is JobVerdict.LOST
        assert len(tries) == 1, "a client would wait for RECONNECTING_S again"
        np.testing.assert_array_equal(window, IMAGE)


def test_a_client_that_is_killed_frees_its_device(shared):
    first = open_device("remote://lab/sim", SMALL)
    assert state_of("sim") == "leased"
    assert isinstance(first, remote.RemoteDevice)
    first.connected().close()  # as the system does for a process that died
    with open_device("remote://lab/sim?wait=20", SMALL) as second:
        assert_right(second)


def test_a_silent_client_loses_its_lease_and_gets_another_one(tmp_path, monkeypatch):
    with lab(tmp_path, monkeypatch, "--term", "1"), open_device("remote://lab/sim", SMALL) as first:
        assert_right(first)
        wait_until(lambda: state_of("sim") == "ready")
        with open_device("remote://lab/sim", SMALL) as second:
            assert_right(second)
        assert_right(first)


def test_odd_messages_of_a_known_client_harm_nobody(shared):
    _, _, agent, _ = shared
    host, port = agent.place.split(":")
    identity = load_identity()
    context = identity.context(server=False, trusted=[identity.certificate])

    def say(*messages: bytes, wait_s: float = 5.0) -> list:
        with socket.create_connection((host, int(port)), 10) as plain:
            channel = Channel(context.wrap_socket(plain))
            for message in messages:
                channel._stream.sendall(message)
            answers = []
            try:
                while len(answers) < len(messages):
                    answer = channel.receive(5.0 if not answers else wait_s)
                    answers += [answer] * (answer.op in ("welcome", "done"))
            except (WireError, OSError):
                pass
            channel.close()
            return answers

    hello = b"".join(encode("hello", wire=WIRE_VERSION, contract=CONTRACT_VERSION, release="1"))
    other = b"".join(encode("hello", wire=99, contract=CONTRACT_VERSION, release="9.9"))
    (refused,) = say(other)
    assert "you have 9.9 (wire 99, contract" in refused.fields["text"]
    assert say(b"GET / HTTP/1.1\r\n\r\n" * 10) == []
    assert say(HEAD.pack(MAGIC, (1 << 32) - 1)) == []
    assert len(say(hello, HEAD.pack(MAGIC, 5) + b"[[[[[")) == 1
    assert len(say(hello, b"".join(encode("run"))[:-3], wait_s=0.1)) == 1
    assert len(say(hello, b"".join(encode("renew", token=-1)), wait_s=0.1)) == 1, "no answer"
    for odd in (
        encode("?"), encode("lease"), encode("run"), encode("run", token="x"),
        encode("run", token=1), encode("artifact", [b""], kind="program", signer="x"),
        encode("artifact", kind=[], signer={}),
        encode("release", token=5), encode("network", token=2),
        encode("run", token=1, limit_s=float("nan")), encode("run", token=1, limit_s=10**400),
        encode("lease", device="sim", board=False, configuration={"lanes_in": "x"}, memory={},
               options={}),
        encode("lease", device="sim", board=False, configuration=SMALL.parameters(),
               memory={"latency_cycles": []}, options={}),
        encode("lease", device="sim", board=False, configuration=SMALL.parameters(),
               memory={}, options={"trace": "odd.vcd"}),
    ):  # fmt: skip
        _, *answers = say(hello, b"".join(odd))
        for answer in answers:
            verdict = JobVerdict(answer.fields["verdict"])
            assert verdict not in (JobVerdict.OK, JobVerdict.CRASHED), odd
    with open_device("remote://lab/sim", SMALL) as device:
        assert_right(device)


def test_a_job_without_its_data_does_not_count_as_a_crash():
    with pytest.raises(WireError, match="`artifact`: expected 1 byte string, got 0") as caught:
        JobWorker("sim").artifact(Message("artifact", {"digest": "d"}))
    assert classify(caught.value, "tcp://h:1")[0] is JobVerdict.REFUSED


def chained(problem: Exception, cause: Exception) -> Exception:
    problem.__cause__ = cause
    return problem


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("problem", "address", "verdict"),
    [
        (FULL, "rtl", JobVerdict.DISK_FULL),
        (chained(ToolError("Verilator failed"), FULL), "rtl", JobVerdict.DISK_FULL),
        (MemoryError(), "sim", JobVerdict.MEMORY),
        (chained(DeviceError("too large"), MemoryError()), "sim", JobVerdict.MEMORY),
        (WrongResultError("differs"), "tcp://h:1", JobVerdict.WRONG),
        (DeviceError("silent"), "tcp://h:1", JobVerdict.FAULT),
        (DeviceError("too many cycles"), "rtl", JobVerdict.FAILED),
        (OtherConfigurationError("another", 1), "tcp://h:1", JobVerdict.FAILED),
        (ToolError("no compiler"), "rtl", JobVerdict.TOOL),
        (ProgramError("a race"), "sim", JobVerdict.FAILED),
        (WireError("nonsense"), "sim", JobVerdict.REFUSED),
        (ZeroDivisionError(), "sim", JobVerdict.CRASHED),
    ],
)
def test_exceptions_are_classified(problem, address, verdict):
    found, text = classify(problem, address)
    assert found is verdict
    assert text
