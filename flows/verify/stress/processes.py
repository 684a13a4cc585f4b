"""Calls in processes that may end in any way; the outcome is text."""

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from ....errors import TilewrightError

PATIENCE_S = 600.0
"""Seconds without any result after which processes count as hanging."""

KILLED = "killed"
HUNG = "hung"


class StressError(TilewrightError):
    """A stress test found a fault of Tilewright."""


def _call(pipe: Connection, call: Callable[..., str], arguments: Sequence[object]) -> None:
    try:
        pipe.send(call(*arguments))
    except BaseException:
        pipe.send(traceback.format_exc())


def outcomes(
    call: Callable[..., str], each: Sequence[Sequence[object]], *, fresh: bool = False
) -> list[str]:
    """What a call returns in a process for each of several arguments, all at the same time.

    The text of its exception if it raises one, `KILLED` if the process dies, and `HUNG` if it never
    ends.

    Parameters
    ----------
    call
        The work.
    each
        Its arguments, for each process.
    fresh
        Whether the processes start anew, without what this one has imported and made.
    """
    fork, spawn = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")
    started: list[tuple[BaseProcess, Connection]] = []
    for arguments in each:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        make = spawn.Process if fresh else fork.Process
        process = make(target=_call, args=(theirs, call, arguments), daemon=True)
        process.start()
        theirs.close()
        started.append((process, ours))
    return [_outcome(process, pipe) for process, pipe in started]


def _outcome(process: BaseProcess, pipe: Connection) -> str:
    found = HUNG
    if wait([pipe], PATIENCE_S):
        try:
            found = pipe.recv()
        except EOFError:
            found = KILLED
    else:
        process.kill()
    process.join()
    pipe.close()
    return found
