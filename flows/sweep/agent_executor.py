"""An executor that runs the RTL on simulators which agents lend; all other work goes elsewhere."""

from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...runtime.devices import REMOTE, RtlDevice, kind_of
from . import evaluators
from .executors import Done, Job, SweepExecutor
from .records import LOST, Record

if TYPE_CHECKING:
    from ...compiler.graph import Graph


class OnAgents:
    """Run batches of the RTL on agents, each on the simulator that is free first.

    Parameters
    ----------
    addresses
        Such as `remote://lab/rtl`.
    others
        Runs the other rungs.
    """

    def __init__(
        self, graphs: Sequence["Graph"], addresses: Sequence[str], others: SweepExecutor
    ) -> None:
        self._graphs, self._others = graphs, others
        self.workers = others.workers
        self._idle: SimpleQueue[str] = SimpleQueue()
        self._left, self._counting = len(addresses), Lock()
        for address in addresses:
            self._idle.put(address)
        self._threads = ThreadPoolExecutor(len(addresses))

    def submit(self, jobs: Sequence[Job]) -> Any:
        """Start a batch, all of one rung."""
        if jobs[0].evaluator == evaluators.RTL:
            return self._threads.submit(self._run, jobs)
        handle = self._others.submit(jobs)
        self.workers = self._others.workers  # it may have started some
        return handle

    def wait(self, handles: Iterable[Any]) -> list[tuple[Any, Done]]:
        """Wait until at least one batch is done; the ladder waits for one rung at a time."""
        handles = list(handles)
        mine = [handle for handle in handles if isinstance(handle, Future)]
        if len(mine) < len(handles):
            return self._others.wait([handle for handle in handles if handle not in mine])
        done, _ = wait(mine, return_when=FIRST_COMPLETED)
        return [(handle, handle.result()) for handle in mine if handle in done]

    def close(self) -> None:
        """Stop the workers; runs on agents are awaited, and no more begin."""
        self._threads.shutdown(cancel_futures=True)
        self._others.close()

    def _run(self, jobs: Sequence[Job]) -> Done:
        began = perf_counter()
        return Done([self._records(job) for job in jobs], perf_counter() - began)

    def _records(self, job: Job) -> list[Record]:
        """Run a job; again elsewhere only if the agent is lost, which then gets no more work."""
        found = [Record(error=f"{LOST}no agent is left")] * len(job.memories)
        while self._left:
            address = self._idle.get()
            if not address:  # the last agent was lost meanwhile
                self._idle.put("")
                break
            found = evaluators.rtl(
                self._graphs[job.network], job.configuration, job.memories, job.program_for,
                device=address,
            )  # fmt: skip
            if not any((record.error or "").startswith(LOST) for record in found):
                self._idle.put(address)
                break
            with self._counting:
                self._left -= 1
                if not self._left:
                    self._idle.put("")
        return found


def check_addresses(addresses: Sequence[str], *, rtl: bool) -> None:
    """Reject devices that do not simulate the RTL of every machine.

    Raises
    ------
    UsageError
        The message names one.
    """
    for address in addresses:
        if not rtl:
            raise UsageError(f"`--device {address}`: expected `--rtl` with it; add it")
        if not address.startswith(REMOTE) or kind_of(address) != RtlDevice.name:
            raise UsageError(
                f"`--device {address}`: expected `remote://AGENT/rtl`, which takes every machine; "
                "leave it out to simulate here"
            )
