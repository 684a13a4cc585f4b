"""Workers of a sweep on this computer: processes that read jobs from a pipe.

When a worker dies, its batch is run again, job by job, while no other batch runs; a job that kills
a worker then too fails.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from .child_process import ChildProcess, begin_service, close_all, pickled
from .executors import Done, Job, run_jobs, sums_of
from .records import LOST, Record
from .time_limit import TIME_LIMIT_S

if TYPE_CHECKING:
    from ...compiler.graph import Graph

GRACE_S = 60.0
"""Seconds beyond its time limit after which a worker that does not answer is killed."""


class LocalWorkers:
    """Run batches in processes of this computer.

    Parameters
    ----------
    graphs
        The networks.
    workers
        Number of processes.
    time_limit_s
        Seconds for a job.
    """

    def __init__(
        self, graphs: Sequence["Graph"], workers: int, time_limit_s: float = TIME_LIMIT_S
    ) -> None:
        self.workers, self._time_limit_s = workers, time_limit_s
        self._setting = pickled((list(graphs), time_limit_s))
        self._jobs: dict[int, Sequence[Job]] = {}
        self._queue: deque[int] = deque()
        self._lost: list[int] = []
        self._running: list[ChildProcess] = []
        self._count = 0

    def submit(self, jobs: Sequence[Job]) -> int:
        """Queue a batch."""
        self._count += 1
        self._jobs[self._count] = jobs
        self._queue.append(self._count)
        self._start()
        return self._count

    def wait(self, handles: Iterable[int]) -> list[tuple[int, Done]]:
        """Wait until at least one batch is done. Batches whose workers died come last."""
        handles = set(handles)
        while not handles <= set(self._lost):
            self._start()
            if found := self._collect():
                return found
        first = min(handles)
        self._lost.remove(first)
        return [(first, self._run_alone(self._jobs.pop(first)))]

    def close(self) -> None:
        """Stop all workers and what they started; running batches are dropped."""
        close_all(self._running)
        self._running.clear()

    def _start(self) -> None:
        """Hand queued batches to workers without one, of which new ones are made if needed."""
        while self._queue:
            idle = next((worker for worker in self._running if worker.handle is None), None)
            if idle is None and len(self._running) >= self.workers:
                return
            worker = idle or self._new_worker()
            handle = self._queue.popleft()
            jobs = self._jobs[handle]
            worker.handle = handle
            worker.limit_s = GRACE_S + len(jobs) * self._time_limit_s
            if worker.is_ready:
                worker.deadline = time.monotonic() + worker.limit_s
            with suppress(OSError):  # it has died, which `_collect` finds
                worker.connection.send(tuple(jobs))

    def _new_worker(self) -> ChildProcess:
        worker = ChildProcess.start(__name__, self._setting)
        self._running.append(worker)
        return worker

    def _collect(self) -> list[tuple[int, Done]]:
        """Wait for the next answer or death of a worker, and return the batches that are done."""
        busy = {worker.connection: worker for worker in self._running if worker.handle is not None}
        left_s = min(worker.deadline for worker in busy.values()) - time.monotonic()
        ready = wait(list(busy), None if left_s == math.inf else max(0.0, left_s))
        found = []
        for connection, worker in busy.items():
            handle = worker.handle
            assert handle is not None
            if connection in ready:
                try:
                    done = connection.recv()
                except (EOFError, OSError):
                    pass
                else:
                    if done is None:
                        worker.is_ready, worker.deadline = True, time.monotonic() + worker.limit_s
                    else:
                        found.append((handle, done))
                        del self._jobs[handle]
                        worker.handle = None
                    continue
            elif time.monotonic() < worker.deadline:
                continue
            self._remove(worker)
            self._lost.append(handle)
        return found

    def _remove(self, worker: ChildProcess) -> None:
        worker.end()
        self._running.remove(worker)

    def _run_alone(self, jobs: Sequence[Job]) -> Done:
        parts = []
        for job in jobs:
            handle = self.submit([job])
            found: dict[int, Done] = {}
            while not found and handle not in self._lost:
                found = dict(self._collect())
            if handle in self._lost:
                self._lost.remove(handle)
                del self._jobs[handle]
                failure = Record(
                    error=f"{LOST}it killed the process that compiled it, or hung there, twice"
                )
                found[handle] = Done([[failure] * len(job.memories)], 0.0)
            parts.append(found[handle])
        records = [some for part in parts for some in part.records]
        return Done(records, *sums_of(parts))


def serve(descriptor: int) -> None:
    """Run batches that arrive on a pipe, until its other end is closed."""
    connection = begin_service(descriptor)
    with suppress(EOFError, OSError):
        graphs, time_limit_s = connection.recv()
        connection.send(None)  # ready
        while True:
            connection.send(run_jobs(graphs, connection.recv(), time_limit_s))
