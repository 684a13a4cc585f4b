"""An agent under clients that come and go, and workers that fail in every way, over TLS."""

import asyncio
import random
import threading
import time
from collections import Counter
from typing import ClassVar

import pytest

from tilewright.errors import DeviceError
from tilewright.flows.agent import board_checks, leases, server
from tilewright.flows.agent.leases import LeaseState, LentDevice
from tilewright.flows.agent.server import Agent
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import agents
from tilewright.runtime.agents import add_agent, connect
from tilewright.runtime.identity import load_identity, read_certificate
from tilewright.runtime.wire import JobError, JobVerdict, Message

from .agents import person

SMALL = PRESETS["tiny"]
CLIENTS, FAULTS = 20, 1000
BOARDS = ("one", "two", "three")

PATIENCE_S = 3600.0
"""Seconds until anybody gives up: a loaded computer is slow, and only then would results be lost.

A client that hangs ends the tests with the stacks of all threads; see `faulthandler_timeout`.
"""


class FakeWorker:
    """A worker without a process, whose jobs fail in every way; it knows if it is used twice."""

    draw = random.Random(5)
    active: ClassVar[Counter[str]] = Counter()
    doubled = 0
    done = 0
    faults: ClassVar[Counter[str]] = Counter()

    def __init__(self, address: str) -> None:
        self.address, self.artifacts = address, set[str]()

    @staticmethod
    async def start(address: str, memory_bytes: int) -> "FakeWorker":
        if FakeWorker.draw.random() < 0.01:
            FakeWorker.faults["start"] += 1
            raise JobError(JobVerdict.TOOL, "the agent cannot start a process")
        return FakeWorker(address)

    async def call(self, op, parts=(), *, limit_s, **fields) -> Message:
        if op == "identify":
            return Message("done", {"verdict": "ok", "hash": SMALL.hash})
        if op != "run":
            fails = {"check": 0.1, "open": 0.02}.get(op, 0.0)
            if self.draw.random() < fails:
                raise self.fault()
            more = {"memory": {}, "clock_hz": 1, "memory_bytes": 1} if op == "open" else {}
            return Message("done", {"verdict": "ok", **more})
        FakeWorker.active[self.address] += 1
        FakeWorker.doubled += FakeWorker.active[self.address] > 1
        try:
            await asyncio.sleep(self.draw.choice((0.0, 0.0, 0.002)))
            kind = self.draw.random()
            if kind < 0.4:
                raise self.fault()
            if kind < 0.45:
                FakeWorker.faults["nonsense"] += 1
                return Message("done", {"verdict": "ok", "device": "twice"})
            FakeWorker.done += 1
            return Message("done", {"verdict": "ok", "run_s": 0.0}, (b"window",))
        finally:
            FakeWorker.active[self.address] -= 1

    def fault(self) -> JobError:
        verdict = self.draw.choice([one for one in JobVerdict if one is not JobVerdict.OK])
        FakeWorker.faults[verdict] += 1
        return JobError(verdict, "it failed")

    async def stop(self) -> None:
        await asyncio.sleep(0)


class ClientThread(threading.Thread):
    """A client that leases boards and runs jobs until enough went wrong."""

    def __init__(self, seed: int) -> None:
        super().__init__(daemon=True)
        self.draw, self.found, self.left_during = random.Random(seed), Counter[str](), 0
        self.other: list[BaseException] = []

    def run(self) -> None:
        try:
            while FakeWorker.faults.total() < FAULTS:
                try:
                    self._visit()
                except DeviceError as problem:
                    self.found[problem.verdict if isinstance(problem, JobError) else "door"] += 1
        except BaseException as problem:
            self.other.append(problem)

    def _visit(self) -> None:
        connection = connect("lab")
        try:
            lease = connection.request(
                "lease", seconds=PATIENCE_S, device=self.draw.choice(("board", *BOARDS)),
                board=True, configuration=SMALL.parameters(), memory={}, options={},
            )  # fmt: skip
            token = lease.take("token", int)
            digest = connection.send_artifact("program", b"words")
            for _ in range(8):
                if self.draw.random() < 0.02:  # it is gone, perhaps during a job
                    connection._channel.send("run", [b"w"], token=token, limit_s=1.0, digest=digest)
                    self.left_during += 1
                    return
                connection.request(
                    "run", [b"w"], seconds=PATIENCE_S, token=token, limit_s=1.0, digest=digest
                )
                self.found[JobVerdict.OK] += 1
            connection.request("release", seconds=PATIENCE_S, token=token)
        finally:
            connection.close()


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """The agent in a thread of this process; its log."""
    monkeypatch.setattr(board_checks, "WorkerProcess", FakeWorker)
    monkeypatch.setattr(server, "TICK_S", 0.01)
    monkeypatch.setattr(server, "HANDSHAKE_S", PATIENCE_S)
    for clock in ("CONNECTING_S", "SILENCE_S"):
        monkeypatch.setattr(agents, clock, PATIENCE_S)
    monkeypatch.setattr(leases, "QUARANTINE_S", 0.05)
    owner, log = person(tmp_path, "owner", monkeypatch), []
    units = [LentDevice(name, "board", checked=True, state=LeaseState.CHECKING) for name in BOARDS]
    ready, stopped = threading.Event(), threading.Event()
    running: list = []

    def placed(host: str, port: int) -> None:
        add_agent("lab", f"{host}:{port}", read_certificate(owner.certificate))
        ready.set()

    async def serve() -> None:
        made = Agent(load_identity(), units, {name: [name] for name in BOARDS}, say=log.append)
        task = asyncio.create_task(made.serve("127.0.0.1", 0, placed))
        running.extend((asyncio.get_running_loop(), task, made))
        await asyncio.wait([task])
        stopped.set()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    yield running[2]
    running[0].call_soon_threadsafe(running[1].cancel)
    thread.join()
    assert stopped.is_set()


def test_1_000_faults_behind_an_agent_are_classified_and_none_is_served_twice(agent):
    clients = [ClientThread(seed) for seed in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert [problem for client in clients for problem in client.other] == []
    assert FakeWorker.doubled == 0
    assert FakeWorker.faults.total() >= FAULTS
    found = sum((client.found for client in clients), Counter())
    seen, left = found[JobVerdict.OK], sum(client.left_during for client in clients)
    assert seen <= FakeWorker.done <= seen + left, "no result is lost or doubled"
    assert {JobVerdict.FAULT, JobVerdict.CRASHED, JobVerdict.TIMEOUT, JobVerdict.TOOL} <= set(found)
    assert found["door"] == 0
    while agent._connections or not all(
        unit.state is LeaseState.READY for unit in agent.table.units.values()
    ):
        time.sleep(0.05)
    assert not agent.table.waiting
    assert {unit.client for unit in agent.table.units.values()} == {""}
