"""Agents in processes of their own, each with the keys of a user of its own."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.runtime.agents import add_agent
from tilewright.runtime.identity import CERTIFICATE, CLIENTS, new_identity, read_certificate, trust
from tilewright.signing import key_path, sign

COMMAND = [sys.executable, "-m", "tilewright.flows.cli.main", "agent"]


@dataclass
class Person:
    """Somebody with keys; `use` makes this process theirs."""

    home: Path
    name: str

    def use(self, monkeypatch) -> "Person":
        monkeypatch.setenv("XDG_DATA_HOME", str(self.home))
        return self

    @property
    def folder(self) -> Path:
        return self.home / "tilewright" / "keys"

    @property
    def certificate(self) -> Path:
        return self.folder / CERTIFICATE


def person(home: Path, name: str, monkeypatch) -> Person:
    """Make somebody, whom this process is from then on.

    They share the key that marks what is in the cache, so that no simulator is built twice.
    """
    signing_key = (sign(b""), key_path())[1]
    made = Person(home / name, name).use(monkeypatch)
    new_identity(name)
    shutil.copy(signing_key, key_path())
    return made


def allow(owner: Person, client: Person) -> None:
    """Let a client use the agents of an owner."""
    trust(owner.folder, CLIENTS, client.name, read_certificate(client.certificate))


@dataclass
class RunningAgent:
    """An agent in a process; `place` is where it listens."""

    process: subprocess.Popen
    place: str
    lines: list[str] = field(default_factory=list)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(owner: Person, *options: str, place: str = "127.0.0.1:0") -> Iterator[RunningAgent]:
    """Run an agent while the block runs."""
    environment = {**os.environ, "XDG_DATA_HOME": str(owner.home)}
    process = subprocess.Popen(
        [*COMMAND, "--listen", place, *options], stdout=subprocess.PIPE, text=True,
        env=environment, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        assert first.startswith("agent"), first
        yield RunningAgent(process, first.split()[1])
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def know(name: str, agent: RunningAgent, owner: Person) -> str:
    """Add an agent for the person of this process, and return the beginning of its addresses."""
    add_agent(name, agent.place, read_certificate(owner.certificate))
    return f"remote://{name}"
