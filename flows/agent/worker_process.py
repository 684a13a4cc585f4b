"""The agent's side of a worker: start it, hand it a job, and kill it when its time is over."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...runtime.wire import JobError, JobVerdict, Message, WireError, encode, receive_message

CODE = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve({arguments})"
"""Python code of a worker, which imports from the same folders as this process."""

MODULE = f"{__package__}.worker"

STARTING_S = 120.0
"""Seconds in which a worker has to import what it needs, on a busy machine."""

STOPPING_S = 1.0
"""Seconds that a worker has to stop its tools."""


class WorkerProcess:
    """A process with one device.

    Parameters
    ----------
    process
        A session leader, so that what it starts is killed with it.
    reader, writer
        The socket to it.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.process, self._reader, self._writer = process, reader, writer
        self.artifacts: set[str] = set()

    @staticmethod
    async def start(address: str, memory_bytes: int) -> "WorkerProcess":
        """Start a worker for a device of this machine."""
        ours, theirs = socket.socketpair()
        arguments = f"{theirs.fileno()}, {address!r}, {memory_bytes}"
        code = CODE.format(path=sys.path, module=MODULE, arguments=arguments)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        except OSError as problem:
            ours.close()
            why = problem.strerror or str(problem)
            raise JobError(JobVerdict.TOOL, f"the agent cannot start a process ({why})") from None
        finally:
            theirs.close()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return WorkerProcess(process, reader, writer)

    async def call(
        self, op: str, parts: Sequence[bytes] = (), *, limit_s: float, **fields: Any
    ) -> Message:
        """Run a job and return its answer; the worker is dead after a crash or a timeout.

        Raises
        ------
        JobError
            With the verdict.
        """
        try:
            async with asyncio.timeout(limit_s):
                for part in encode(op, parts, **fields):
                    self._writer.write(part)
                await self._writer.drain()
                answer = await receive_message(self._reader)
        except TimeoutError:
            await self.stop()
            raise JobError(
                JobVerdict.TIMEOUT, f"not done after {limit_s:,g} s, so its process was ended"
            ) from None
        except (WireError, OSError):
            answer = None
        except asyncio.CancelledError:
            await asyncio.shield(self.stop())
            raise
        if answer is None:
            raise JobError(*await self._death())
        verdict = JobVerdict(answer.take("verdict", str))
        if verdict is not JobVerdict.OK:
            raise JobError(verdict, answer.take("text", str))
        return answer

    async def stop(self) -> None:
        """End the process and all that it started."""
        for number, wait_s in ((signal.SIGTERM, STOPPING_S), (signal.SIGKILL, None)):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), wait_s)
        self._writer.close()

    async def _death(self) -> tuple[JobVerdict, str]:
        """Return the verdict on a job whose process ended by itself."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), STOPPING_S)
        code = self.process.returncode
        await self.stop()
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            if -code == signal.SIGKILL:
                return (
                    JobVerdict.MEMORY,
                    f"its process was ended by {name}, as when memory runs out",
                )
            return JobVerdict.CRASHED, f"its process was ended by {name}"
        return JobVerdict.CRASHED, f"its process ended with exit code {code}"
