"""Executors of a sweep's work: this process, or a Dask cluster that the user started.

A batch of jobs is one task. The results of a job do not depend on where it runs. `local_workers`
has the processes of this computer.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import ToolError, install_command
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from . import evaluators
from .records import LOST, Record
from .time_limit import TIME_LIMIT_S, TimeLimitError, call_within, lateness

if TYPE_CHECKING:
    from ...compiler.graph import Graph

RETRIES = 2
"""Number of times that a batch is run again after an exception outside the evaluators."""

PATIENCE_S = 10.0
"""Seconds of work in this process before others start."""

WITHOUT_WORKERS_S = 60.0
"""Seconds after which a sweep gives up waiting for a worker, if its cluster has none."""

RUNGS = {
    evaluators.BOUND: evaluators.bound,
    evaluators.SIM: evaluators.sim,
    evaluators.RTL: evaluators.rtl,
}
"""Evaluators that need a network."""


@dataclass(frozen=True, slots=True)
class Job:
    """One machine with some memories, on a rung.

    Parameters
    ----------
    evaluator, version
        A name in `RUNGS`, and the hash of its source.
    network
        Its index.
    program_for
        The main memory that the program is made for; None for the one that it runs with.
    work
        Gives the records instead of the evaluator, with the network and the job.
    """

    evaluator: str
    version: str
    network: int
    configuration: Configuration
    memories: tuple[MemoryModel, ...]
    program_for: MemoryModel | None = None
    work: "Callable[[Graph, Job], list[Record]] | None" = None


@dataclass(frozen=True, slots=True)
class Done:
    """The results of a batch.

    Parameters
    ----------
    records
        By job, one record for each memory.
    seconds, processor_s
        Time that the batch took, and processor time.
    left_behind
        Whether a job still runs in a thread of the worker.
    """

    records: list[list[Record]]
    seconds: float
    processor_s: float = 0.0
    left_behind: bool = False


def sums_of(parts: Sequence[Done]) -> tuple[float, float]:
    """Return the time that batches took, and their processor time."""
    return sum(part.seconds for part in parts), sum(part.processor_s for part in parts)


class SweepExecutor(Protocol):
    """A runner of batches of jobs."""

    workers: int
    """Number of batches that run at the same time; 0 if jobs run one by one in this process."""

    def submit(self, jobs: Sequence[Job]) -> Any:
        """Start a batch; returns a handle."""
        ...

    def wait(self, handles: Iterable[Any]) -> list[tuple[Any, Done]]:
        """Wait until at least one of all running batches is done, and return the finished ones."""
        ...

    def close(self) -> None:
        """Stop the workers, and drop the batches that still run."""
        ...


def run_jobs(
    graphs: Sequence["Graph"], jobs: Sequence[Job], time_limit_s: float = TIME_LIMIT_S
) -> Done:
    """Run a batch."""
    started, used = time.perf_counter(), time.process_time()
    records, left_behind = [], False
    for job in jobs:
        try:
            records.append(call_within(time_limit_s, partial(_run, graphs, job)))
        except TimeLimitError as problem:
            left_behind |= problem.left_behind
            error = lateness(job.evaluator, time_limit_s)
            records.append([Record(error=error)] * len(job.memories))
    seconds, used = time.perf_counter() - started, time.process_time() - used
    return Done(records, seconds, used, left_behind)


def _run(graphs: Sequence["Graph"], job: Job) -> list[Record]:
    if evaluators.version_of(job.evaluator) != job.version:
        error = f"{LOST}the worker has another version of Tilewright; install the same one there"
        return [Record(error=error)] * len(job.memories)
    graph, evaluate = graphs[job.network], RUNGS[job.evaluator]
    if job.work is not None:
        return job.work(graph, job)
    return evaluate(graph, job.configuration, job.memories, job.program_for)


def _run_on_worker(
    graphs: Sequence["Graph"], jobs: Sequence[Job], time_limit_s: float
) -> tuple[Done, str]:
    """Run a batch on a worker of Dask, and return the worker's address too."""
    done = run_jobs(graphs, jobs, time_limit_s)
    return done, import_module("distributed").get_worker().address


def _same(graphs: list["Graph"]) -> list["Graph"]:
    return graphs


class InProcess:
    """Run batches in this process, each one when its result is awaited.

    Parameters
    ----------
    time_limit_s
        Seconds for a job.
    """

    def __init__(self, graphs: Sequence["Graph"], time_limit_s: float = TIME_LIMIT_S) -> None:
        self.graphs, self.time_limit_s = graphs, time_limit_s
        self.workers = 0

    def submit(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """Return the batch itself as its handle."""
        return tuple(jobs)

    def wait(self, handles: Iterable[tuple[Job, ...]]) -> list[tuple[tuple[Job, ...], Done]]:
        """Run the first batch."""
        first = next(iter(handles))
        return [(first, run_jobs(self.graphs, first, self.time_limit_s))]

    def close(self) -> None:
        """Do nothing: no worker runs."""


class WhenNeeded:
    """Work in this process first, and start workers if there is more work.

    Parameters
    ----------
    graphs
        The networks.
    make
        Starts the workers.
    patience_s
        Seconds of work in this process before the workers start.
    time_limit_s
        Seconds for a job in this process.
    """

    def __init__(
        self,
        graphs: Sequence["Graph"],
        make: Callable[[], SweepExecutor],
        patience_s: float = PATIENCE_S,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self._here, self._make = InProcess(graphs, time_limit_s), make
        self._left_s = patience_s
        self._cluster: SweepExecutor | None = None
        self._mine: set[Any] = set()
        self.workers = 0

    def submit(self, jobs: Sequence[Job]) -> Any:
        """Start a batch, here or on a worker."""
        if self._cluster is None and self._left_s <= 0:
            self._cluster = self._make()
            self.workers = self._cluster.workers
        if self._cluster is not None:
            return self._cluster.submit(jobs)
        handle = self._here.submit(jobs)
        self._mine.add(handle)
        return handle

    def wait(self, handles: Iterable[Any]) -> list[tuple[Any, Done]]:
        """Wait until at least one batch is done; batches of this process come first."""
        handles = list(handles)
        mine = [handle for handle in handles if handle in self._mine]
        if not mine:
            assert self._cluster is not None
            return self._cluster.wait(handles)
        found = self._here.wait(mine)
        for handle, done in found:
            self._mine.discard(handle)
            self._left_s -= done.seconds
        return found

    def close(self) -> None:
        """Stop the workers if they were started."""
        if self._cluster is not None:
            self._cluster.close()


class OnDask:
    """Run batches on a Dask cluster.

    When a worker dies, Dask blames all batches that the worker held, even those that only waited.
    So a batch whose workers died is run again, job by job, while no other batch runs. A job fails
    only if its workers die then too.

    Parameters
    ----------
    scheduler
        Address of a running scheduler.
    time_limit_s
        Seconds for a job. A worker on which one hangs is restarted, if it has a nanny.

    Raises
    ------
    ToolError
        When Dask is not installed, the scheduler does not answer, or a worker cannot import
        Tilewright.
    """

    def __init__(
        self,
        graphs: Sequence["Graph"],
        scheduler: str,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        try:
            distributed: Any = import_module("distributed")
        except ImportError:
            raise ToolError(
                "Dask: not installed, so a sweep cannot use several computers; install it with "
                f"`{install_command('sweep')}`, or choose `--workers N`"
            ) from None
        self._distributed = distributed
        try:
            self._client = distributed.Client(scheduler, timeout=30)
        except TypeError:  # Dask checks certificates only where it hands them to `ssl`
            raise ToolError(
                f"`--scheduler {scheduler}`: expected certificates in Dask's configuration, got "
                "none or some of them; set `ca-file`, and `cert` and `key` of `client`, under "
                "`distributed.comm.tls` (docs/guide/sweeps.md)"
            ) from None
        except (OSError, ValueError) as problem:
            raise ToolError(
                f"`--scheduler {scheduler}`: expected a Dask scheduler there, got `{problem}`; "
                "start one with `dask scheduler`, or leave the option out"
            ) from None
        self._check_imports()
        self._time_limit_s, self._networks = time_limit_s, list(graphs)
        self._graphs = self._send_graphs()
        self._jobs: dict[Any, Sequence[Job]] = {}
        self._lost: set[Any] = set()
        self.workers = max(1, len(self._client.scheduler_info()["workers"]))

    def submit(self, jobs: Sequence[Job]) -> Any:
        """Send a batch to a worker."""
        handle = self._client.submit(
            _run_on_worker, self._graphs, tuple(jobs), self._time_limit_s, pure=False,
            retries=RETRIES,
            key=f"batch-{time.monotonic_ns()}-{len(jobs)}",
        )  # fmt: skip
        self._jobs[handle] = jobs
        return handle

    def wait(self, handles: Iterable[Any]) -> list[tuple[Any, Done]]:
        """Wait until at least one batch is done. Batches whose workers died come last.

        Raises
        ------
        ToolError
            When there has been no worker for `WITHOUT_WORKERS_S`.
        """
        handles = list(handles)
        while running := [handle for handle in handles if handle not in self._lost]:
            over = self._finished(running)
            results = {handle: self._result(handle) for handle in running if handle in over}
            self._lost |= {handle for handle, done in results.items() if done is None}
            if found := [(handle, done) for handle, done in results.items() if done is not None]:
                return found
        self._lost.remove(handles[0])
        return [(handles[0], self._run_alone(self._jobs.pop(handles[0])))]

    def close(self) -> None:
        """Drop the running batches."""
        self._client.close()

    def _check_imports(self) -> None:
        """Raise an error if a worker cannot import Tilewright, since a batch would crash it."""
        package = __name__.partition(".")[0]
        # Dask sends a function without a name as code, which needs no Tilewright to load.
        found = self._client.run(lambda: find_spec(package) is not None, on_error="ignore")
        if lacking := sorted(address for address, is_there in found.items() if not is_there):
            self.close()
            raise ToolError(
                f"`{lacking[0]}`: this Dask worker ({len(lacking)} of {len(found)}) cannot import "
                "Tilewright; install the same version there, and start the worker again"
            )

    def _finished(self, running: Sequence[Any]) -> set[Any]:
        """Wait until at least one batch is over, and return all that are."""
        while True:
            with suppress(TimeoutError):
                wait = self._distributed.wait
                return wait(running, WITHOUT_WORKERS_S, return_when="FIRST_COMPLETED").done
            try:
                self._client.wait_for_workers(1, WITHOUT_WORKERS_S)
            except TimeoutError:
                raise ToolError(
                    f"Dask: the cluster has had no worker for {WITHOUT_WORKERS_S:.0f} s; start "
                    "workers, then run the sweep again, which keeps all recorded results"
                ) from None

    def _send_graphs(self) -> Any:
        # Unlike scattered data, the result of a task is made again when its worker dies.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return self._client.submit(_same, self._networks, pure=False)

    def _run_alone(self, jobs: Sequence[Job]) -> Done:
        parts = []
        for job in jobs:
            if self._graphs.status == "error":  # they were on their way to a worker that died
                self._graphs = self._send_graphs()
            handle = self.submit([job])
            parts.append(self._result(handle) or self._failure(handle))
        records = [some for part in parts for some in part.records]
        return Done(records, *sums_of(parts))

    def _result(self, handle: Any) -> Done | None:
        """Return the result of a batch that is over; None if its workers died."""
        killed = self._distributed.KilledWorker
        if (problem := handle.exception()) is not None:
            return None if isinstance(problem, killed) else self._failure(handle)
        try:
            done, worker = handle.result()
        except killed:  # the result was lost with its worker, and so were the next workers
            return None
        del self._jobs[handle]
        if done.left_behind:
            with suppress(ValueError):  # a worker that the user started without a nanny
                self._client.restart_workers([worker])
        return done

    def _failure(self, handle: Any) -> Done:
        problem = handle.exception()
        text = " ".join(str(problem).split())
        failure = Record(error=f"{LOST}{type(problem).__name__}: {text}")
        return Done([[failure] * len(job.memories) for job in self._jobs.pop(handle)], 0.0)
