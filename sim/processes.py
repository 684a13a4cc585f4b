"""Processes of tools, such as compilers: whoever stops this process stops them too.

Each tool has a process group of its own, so that what it starts ends with it. A thread that waits
for a tool cannot be interrupted; the tool is, and the thread reports that it failed.
"""

import ctypes
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STOPPING_S = 1.0
"""Seconds that a tool has to remove its temporary files."""

_PR_SET_PDEATHSIG = 1
"""Linux's number of the request."""

_running: dict[subprocess.Popen, int] = {}
"""Tools that run, and the threads that wait for them."""

_stops: list[set[int] | None] = []
"""The threads of each call of `stop_processes`."""


def run_process(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end, and return what it printed.

    Parameters
    ----------
    cwd, env
        Its folder and environment; this process's by default.
    on_line
        Called with each line as soon as it is printed; stderr is then part of stdout.

    Raises
    ------
    OSError
        When it cannot be started.
    """
    stops, thread = len(_stops), threading.get_ident()
    with _own_temporary_folder(os.environ if env is None else env) as env, _start_and_register(
        thread, command, cwd=cwd, env=env, text=True, errors="replace", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if on_line else subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            # A tool that was just being started is not among those that were stopped.
            if any(threads is None or thread in threads for threads in _stops[stops:]):
                _stop([process])
            if on_line is None:
                out, errors = process.communicate()
            else:
                assert process.stdout is not None
                lines, errors = [], ""
                for line in process.stdout:
                    lines.append(line)
                    on_line(line)
                out = "".join(lines)
        except BaseException:
            _stop([process])
            raise
        finally:
            del _running[process]
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


@contextmanager
def _own_temporary_folder(env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Give a tool a folder for temporary files, since YoWASP's tools leave theirs when stopped."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="tilewright-", ignore_cleanup_errors=True)
    except OSError:  # a tool without temporary files can do without
        yield env
        return
    with folder as name:
        yield {**env, "TMPDIR": name}


def _start_and_register(thread: int, command: Sequence[str], **options: Any) -> subprocess.Popen:
    """Start a tool; `flows/cli/signals.py` knows this name, since an exception here loses it."""
    process = subprocess.Popen(command, **options)
    _running[process] = thread
    return process


def stop_processes(threads: set[int] | None = None) -> None:
    """Stop the tools that some threads wait for, or all."""
    _stops.append(threads)
    _stop([one for one, thread in list(_running.items()) if threads is None or thread in threads])


def _stop(processes: Sequence[subprocess.Popen]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOPPING_S)


@contextmanager
def tool_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for tools; an exception in the block stops these tools."""
    threads: set[int] = set()
    pool = ThreadPoolExecutor(count, initializer=lambda: threads.add(threading.get_ident()))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        stop_processes(threads)
        raise
    finally:
        pool.shutdown()


def end_with_parent() -> None:
    """Ask the system to send this process SIGTERM when its parent ends, however it does."""
    with suppress(OSError, AttributeError):  # elsewhere than on Linux, the pipe's end suffices
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
