"""Clients of agents that lie, fall silent or break off: a verdict, or the right result."""

import json
import random
import socket
import threading
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from tilewright import __version__
from tilewright.errors import DeviceError
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import CONTRACT_VERSION, PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import agents, open_device, remote
from tilewright.runtime.agents import AgentConnection
from tilewright.runtime.arrays import to_npy
from tilewright.runtime.identity import load_identity
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

from .agents import person

SMALL = PRESETS["tiny"]
PROGRAM, IMAGE = random_program(SMALL, 3, length=20, data_bytes=4096)

DEVICE = {
    "name": "one", "kind": "board", "state": "ready", "client": "", "waiting": 0, "faults": 0,
    "why": "", "configurations": [],
}  # fmt: skip
"""A device as an agent lists it."""

ANSWERS = ("welcome", "lease", "artifact", "run")
VALUES = (None, -1, 0, 1 << 70, 0.5, "", "ok", [], [1, 0], [0, 1 << 40], {}, {"CYCLES": 1}, True)


@pytest.fixture(scope="module")
def truth():
    """The right answer to the only job of these tests."""
    with open_device("sim", SMALL) as sim:
        window = IMAGE.copy()
        return sim.run(PROGRAM, window)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch, tmp_path):
    person(tmp_path, "client", monkeypatch)
    monkeypatch.setattr(agents, "SILENCE_S", 0.2)
    monkeypatch.setattr(agents, "CONNECTING_S", 0.2)
    monkeypatch.setattr(remote, "RETRIES", 0)
    monkeypatch.setattr(remote, "RECONNECTING_S", 0.0)
    monkeypatch.setattr(remote, "GRACE_S", 0.1)


class FakeAgent:
    """An agent without TLS and workers, whose answer number `at` suffers a fault."""

    def __init__(self, truth, fault, at: int, seed: int) -> None:
        self.truth, self.fault, self.at = truth, fault, at
        self.draw = random.Random(seed)
        self.ours, self.theirs = socket.socketpair()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def connect(self, agent: str) -> AgentConnection:
        try:
            return AgentConnection(agent, load_identity(), Channel(self.theirs))
        except OSError as problem:
            raise DeviceError(str(problem)) from None

    def _serve(self) -> None:
        channel, answered = Channel(self.ours), 0
        try:
            while True:
                message = channel.receive(None)
                if message.op == "renew":
                    continue
                op, fields, parts = self._answer(message)
                if answered == self.at:
                    if not self.fault(self, op, fields, parts):
                        return
                else:
                    self.send(encode(op, parts, **fields))
                answered += 1
        except (WireError, OSError):
            return
        finally:
            self.ours.close()

    def send(self, data: list[bytes]) -> None:
        self.ours.sendall(b"".join(data))

    def _answer(self, message) -> tuple[str, dict, list[bytes]]:
        fields: dict = {"verdict": "ok"}
        if message.op == "hello":
            versions = {"wire": WIRE_VERSION, "contract": CONTRACT_VERSION, "release": __version__}
            return "welcome", {**versions, "term_s": 60.0}, []
        if message.op == "lease":
            times = {"queued_s": 0.0, "opened_s": 0.0}
            return "done", {**fields, "token": 1, "memory": asdict(MemoryModel()), **times}, []
        if message.op != "run":
            return "done", fields, []
        truth = self.truth
        fields |= {
            "run_s": 0.1, "ranges": [0, truth.dram.size], "cycles": truth.cycles, "exact": True,
            "counters": truth.counters,
        }  # fmt: skip
        return "done", fields, [truth.dram.tobytes(), to_npy(truth.spans)]


# Faults; each returns whether the agent goes on.
def cut_off(agent, op, fields, parts):
    data = b"".join(encode(op, parts, **fields))
    agent.ours.sendall(data[: agent.draw.randrange(len(data))])
    return False


def silent(agent, op, fields, parts):
    agent.ours.recv(1)  # until the client gives up
    return False


def flipped(agent, op, fields, parts):
    data = bytearray(b"".join(encode(op, parts, **fields)))
    for _ in range(agent.draw.randrange(1, 4)):
        data[agent.draw.randrange(len(data))] ^= 1 << agent.draw.randrange(8)
    agent.ours.sendall(data)
    return True


def field_changed(agent, op, fields, parts):
    name = agent.draw.choice(sorted(fields))
    agent.send(encode(op, parts, **{**fields, name: agent.draw.choice(VALUES)}))
    return True


def field_missing(agent, op, fields, parts):
    del fields[agent.draw.choice(sorted(fields))]
    agent.send(encode(op, parts, **fields))
    return True


def parts_changed(agent, op, fields, parts):
    parts = [part[: agent.draw.randrange(len(part))] for part in parts]
    parts += [b"more"] * agent.draw.randrange(2)
    agent.send(encode(op, parts, **fields))
    return True


def other_op(agent, op, fields, parts):
    agent.send(encode(agent.draw.choice(["", "hello", "waiting", "running", "?"]), parts, **fields))
    return True


def lies_about_cycles(agent, op, fields, parts):
    if "cycles" in fields:
        fields["cycles"] += agent.draw.randrange(1, 100)
    return field_missing(agent, op, fields, parts) if "cycles" not in fields else (
        agent.send(encode(op, parts, **fields)) or True
    )  # fmt: skip


def lies_about_bytes(agent, op, fields, parts):
    if not parts:
        return cut_off(agent, op, fields, parts)
    wrong = bytearray(parts[0])
    wrong[agent.draw.randrange(len(wrong))] ^= 1 << agent.draw.randrange(8)
    agent.send(encode(op, [bytes(wrong), *parts[1:]], **fields))
    return True


def huge(agent, op, fields, parts):
    header = json.dumps({**fields, "op": op, "sizes": [1 << 50]}).encode()
    agent.ours.sendall(HEAD.pack(MAGIC, len(header)) + header)
    return True


def endless_header(agent, op, fields, parts):
    agent.ours.sendall(HEAD.pack(MAGIC, (1 << 32) - 1))
    return True


def deeply_nested(agent, op, fields, parts):
    header = b"[" * 100_000
    agent.ours.sendall(HEAD.pack(MAGIC, len(header)) + header)
    return True


def failed_there(agent, op, fields, parts):
    verdict = agent.draw.choice([one for one in JobVerdict if one is not JobVerdict.OK])
    agent.send(encode("done", verdict=verdict, text=f"\x1b[31m{verdict}\n"))
    return True


FAULTS = (
    cut_off, silent, flipped, field_changed, field_missing, parts_changed, other_op,
    lies_about_cycles, lies_about_bytes, huge, endless_header, deeply_nested, failed_there,
)  # fmt: skip
SLOW = (silent, other_op)
"""Faults that cost a wait each."""


def outcome(truth, fault, at, seed, monkeypatch) -> str:
    """Run the job on a faulty agent: the verdict, or `right`."""
    agent = FakeAgent(truth, fault, at, seed)
    monkeypatch.setattr(remote, "connect", agent.connect)
    window = IMAGE.copy()
    try:
        with open_device("remote://lab/sim?limit=0.1&wait=0.1", SMALL) as device:
            result = device.run(PROGRAM, window)
        np.testing.assert_array_equal(window, truth.dram)
        assert result.cycles == truth.cycles
        return "right"
    except JobError as problem:
        np.testing.assert_array_equal(window, IMAGE)
        return problem.verdict if "`: " in str(problem) else "without a text"
    except DeviceError:
        return "door" if at == 0 else "without a verdict"
    finally:
        agent.theirs.close()
        agent.thread.join(10)
        assert not agent.thread.is_alive()


def test_without_a_fault_the_result_is_right(truth, monkeypatch):
    monkeypatch.setattr(agents, "SILENCE_S", 20.0)
    assert outcome(truth, cut_off, len(ANSWERS) + 1, 0, monkeypatch) == "right"


def test_1_000_faults_of_agents_are_classified(truth, monkeypatch):
    """None hangs, none is another exception, and none is a result that is wrong."""
    found: dict[str, Counter[str]] = {fault.__name__: Counter() for fault in FAULTS}
    quick = [fault for fault in FAULTS if fault not in SLOW]
    for seed in range(1000):
        fault = SLOW[seed // 25 % 2] if seed % 25 == 0 else quick[seed % len(quick)]
        at = seed // len(quick) % len(ANSWERS)
        found[fault.__name__][outcome(truth, fault, at, seed, monkeypatch)] += 1
    assert sum(counts.total() for counts in found.values()) == 1000
    for name in ("cut_off", "huge", "endless_header", "deeply_nested", "silent"):
        assert "right" not in found[name]
    assert JobVerdict.WRONG in found["lies_about_bytes"]
    assert "right" not in found["lies_about_bytes"]
    assert not {"without a text", "without a verdict"} & set(sum(found.values(), Counter()))
    assert {JobVerdict.LOST, JobVerdict.WRONG} <= set(found["cut_off"] + found["flipped"])


@pytest.mark.parametrize(
    ("fault", "verdict", "says"),
    [
        (lies_about_cycles, JobVerdict.WRONG, "wrong result: it counts "),
        (lies_about_bytes, JobVerdict.WRONG, "wrong result: 1 bytes of the data window differ"),
        (cut_off, JobVerdict.LOST, "it ended during `run` with "),
        (silent, JobVerdict.LOST, "it fell silent during `run`"),
        (huge, JobVerdict.WRONG, "which no agent of this version does"),
    ],
)
def test_verdicts_have_a_text(truth, monkeypatch, fault, verdict, says):
    agent = FakeAgent(truth, fault, ANSWERS.index("run"), 1)
    monkeypatch.setattr(remote, "connect", agent.connect)
    with (
        pytest.raises(JobError) as failed,
        open_device("remote://lab/sim?limit=0.1", SMALL) as device,
    ):
        device.run(PROGRAM, IMAGE.copy())
    agent.theirs.close()
    agent.thread.join(10)
    assert failed.value.verdict is verdict
    assert says in str(failed.value)


def test_another_version_is_told_at_the_door(truth, monkeypatch):
    def newer(agent, op, fields, parts):
        text = "it has version 9.9 of Tilewright; install the same one on both sides"
        agent.send(encode("done", verdict="refused", text=text))
        return False

    agent = FakeAgent(truth, newer, 0, 0)
    monkeypatch.setattr(remote, "connect", agent.connect)
    with pytest.raises(JobError, match=r"it has version 9\.9") as refused:
        open_device("remote://lab/sim", SMALL)
    agent.theirs.close()
    agent.thread.join(10)
    assert refused.value.verdict is JobVerdict.REFUSED


@pytest.mark.parametrize("listed", [3, [3], [{}], [[]], [dict(DEVICE, configurations=["tiny"])]])
def test_a_list_of_devices_that_is_none_is_the_agents_fault(monkeypatch, listed):
    agent = object.__new__(AgentConnection)
    agent.agent = "lab"
    monkeypatch.setattr(agent, "request", lambda op: Message("done", {"devices": listed}))
    with pytest.raises(JobError, match="agent `lab`: it sent ") as failed:
        agent.devices()
    assert failed.value.verdict is JobVerdict.WRONG


def test_boards_of_several_machines_have_no_machine_in_common(monkeypatch):
    machines = {name: f"{PRESETS[name].hash:#010x}" for name in ("tiny", "4x4")}
    listed = [dict(DEVICE, name=name, configurations=[told]) for name, told in machines.items()]
    agent = object.__new__(AgentConnection)
    monkeypatch.setattr(agent, "request", lambda op: Message("done", {"devices": listed}))
    monkeypatch.setattr(agent, "close", lambda: None)
    monkeypatch.setattr(remote, "connect", lambda name: agent)
    assert remote.lent_machine("remote://lab/4x4") == PRESETS["4x4"]
    assert remote.lent_machine("remote://lab/board") is None
    assert remote.lent_machine("remote://lab/other") is None
