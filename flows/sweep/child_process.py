"""Processes of this computer that read work from a pipe.

Only this process holds the other end of the pipe, so nobody else can give a child work.
"""

import copyreg
import io
import math
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from os import killpg
from types import MappingProxyType
from typing import Any

from ...sim.processes import end_with_parent

CLOSING_S = 1.0
"""Seconds that children have to remove their temporary files."""

CODE = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve({descriptor})"
"""Python code of a child, which imports from the same folders as this process."""


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


class _Pickler(pickle.Pickler):
    """A pickler that knows read-only mappings, which graphs have."""

    dispatch_table = copyreg.dispatch_table | {
        MappingProxyType: lambda one: (_read_only, (dict(one),))
    }


def pickled(value: object) -> bytes:
    """Return a value as bytes that a child reads."""
    found = io.BytesIO()
    _Pickler(found).dump(value)
    return found.getvalue()


@dataclass(eq=False, slots=True)
class ChildProcess:
    """A process with the work that it does.

    Parameters
    ----------
    handle
        The work in hand; None if it is idle.
    limit_s, deadline
        Seconds for its work, and the time of `time.monotonic` at which it counts as hanging.
    is_ready
        Whether it has begun to read work.
    """

    process: subprocess.Popen[bytes]
    connection: Connection
    handle: int | None = None
    limit_s: float = 0.0
    deadline: float = math.inf
    is_ready: bool = False

    @classmethod
    def start(cls, module: str, setting: bytes) -> "ChildProcess":
        """Start a process that calls `serve` of a module with the descriptor of its pipe.

        Parameters
        ----------
        setting
            Its first message, see `pickled`.
        """
        ours, theirs = Pipe()
        code = CODE.format(path=sys.path, module=module, descriptor=theirs.fileno())
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C reaches this process alone, which then stops them
        )  # fmt: skip
        theirs.close()
        with suppress(OSError):
            ours.send_bytes(setting)
        return cls(process, ours)

    def stop(self, number: signal.Signals) -> None:
        """Send a signal to the process and to all that it started."""
        with suppress(ProcessLookupError):
            killpg(self.process.pid, number)

    def end(self) -> int:
        """Kill it with all that it started, and return its exit status."""
        self.stop(signal.SIGKILL)
        self.connection.close()
        return self.process.wait()


def close_all(children: Iterable[ChildProcess]) -> None:
    """Stop children and what they started, after a time to tidy up."""
    children = list(children)
    for child in children:
        child.stop(signal.SIGTERM)
    deadline = time.monotonic() + CLOSING_S
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.0, deadline - time.monotonic()))
    for child in children:
        child.end()


def begin_service(descriptor: int) -> Connection:
    """Prepare this child: it ends with its parent, and tidies up when it is stopped."""
    signal.signal(signal.SIGTERM, _stop)
    end_with_parent()
    return Connection(descriptor)


def _stop(*_: object) -> None:
    raise SystemExit
