"""The work of a sweep on one rung: known results, running batches, and work of other processes.

The ladder requests machines and finishes them in the same order. In between, the executor runs them
in batches on all of its processes. Before a machine is compiled, this process claims it in the
database, so two sweeps that share a file divide the work. A claim expires when its process is gone,
or after `LEASE_S`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ...isa.settings import memory_text
from .evaluators import REPORT, checked, version_of
from .executors import Done, Job, SweepExecutor
from .records import PROGRAM_FOR, Database, Record, RecordKey, configuration_digest

BATCH_S = 1.0
"""Approximate seconds of work in a batch of jobs."""
MAX_JOBS = 256
"""Maximum number of jobs in a batch."""
LEASE_S = 300.0
"""Seconds after which another process may do the work that this one has claimed."""
POLL_S = 0.2
"""Seconds between checks of another process's work."""


@dataclass(eq=False, slots=True)
class Item:
    """A request for results of a machine with some memories.

    Parameters
    ----------
    missing
        Indices of networks for which `Work` knows no result.
    """

    configuration: Configuration
    memories: tuple[MemoryModel, ...]
    missing: set[int] = field(default_factory=set)
    digest: str = ""

    def __post_init__(self) -> None:
        self.digest = configuration_digest(self.configuration)


class Work:
    """The work on one rung.

    Parameters
    ----------
    rung
        An evaluator.
    networks
        Digests of the networks.
    check
        Returns a failure for a result that cannot be, and other records as they are.
    program_for
        The main memory that every program is made for; None for the one that it runs with.
    window
        Greatest number of machines between request and finish. None sets no limit and disables
        claims, for rungs that are faster than a claim.

    Attributes
    ----------
    computed
        Number of results that this process computed, one per machine, memory and network.
    """

    def __init__(
        self,
        rung: str,
        networks: Sequence[str],
        database: Database,
        executor: SweepExecutor,
        check: Callable[[RecordKey, Record], Record] = lambda key, record: record,
        window: int | None = None,
        program_for: MemoryModel | None = None,
    ) -> None:
        self.rung, self.networks, self.database = rung, networks, database
        self.executor, self.check, self.window = executor, check, window
        self.program_for = program_for
        self.version = version_of(rung)
        self.computed = 0
        self._records: dict[RecordKey, Record] = {}
        self._batch: list[Item] = []
        self._running: dict[Any, list[Item]] = {}
        self._pending: set[Item] = set()
        self._elsewhere: set[Item] = set()
        self._mean_s = 0.0

    def load(self, items: Iterable[Item]) -> None:
        """Read the known results from the database."""
        items = list(items)
        self._find_known(key for item in items for key in self._keys(item))
        for item in items:
            item.missing = self._missing(item)

    def request(self, item: Item) -> None:
        """Request the results of an item."""
        if not item.missing:
            return
        self._pending.add(item)
        if self._claim(item):
            self._add(item)
        else:
            self._elsewhere.add(item)

    def finish(self, item: Item) -> None:
        """Wait for the results of an item."""
        while item in self._pending:
            if item not in self._elsewhere:
                self._start()
                self._wait()
            elif self._claim(item):
                self._elsewhere.discard(item)
                self._add(item)
            elif not self._find(item).missing:
                self._elsewhere.discard(item)
                self._pending.discard(item)
            elif self._batch or self._running:
                self._start()
                self._wait()
            else:
                time.sleep(POLL_S)

    def is_known(self, item: Item) -> bool:
        """Whether all results of an item are known already."""
        return item not in self._pending and not self._missing(item)

    def record(self, network: str, configuration: str, memory: str) -> Record | None:
        """Return a record by the digests of its network and configuration, and its memory."""
        return self._records.get(RecordKey(self.rung, self.version, network, configuration, memory))

    def records(self, item: Item, memory: MemoryModel) -> list[Record]:
        """Return the records of a finished item, one per network."""
        return [self._records[key] for key in self._keys(item, (memory,))]

    def release(self) -> None:
        """Give up all claims without waiting for running batches."""
        self.database.release()

    def _add(self, item: Item) -> None:
        self._batch.append(item)
        if len(self._batch) >= self._batch_size():
            self._start()
        while len(self._running) > 2 * self.executor.workers:
            self._wait()

    def _claim(self, item: Item) -> bool:
        """Try to claim an item; False if another process has it, or has finished it."""
        if self.window is None:  # quicker than a claim
            return True
        (first, *_) = self._keys(item, item.memories[:1], item.missing)
        return self.database.claim(first.digest, LEASE_S) and bool(self._find(item).missing)

    def _find(self, item: Item) -> Item:
        """Look again for results of an item."""
        self._find_known(self._keys(item))
        item.missing = self._missing(item)
        return item

    def _find_known(self, keys: Iterable[RecordKey]) -> None:
        found = self.database.find(keys)
        self._records |= {key: self.check(key, record) for key, record in found.items()}

    def _start(self) -> None:
        if self._batch:
            jobs = [
                Job(
                    self.rung, self.version, index, item.configuration, item.memories,
                    self.program_for,
                )
                for item in self._batch
                for index in sorted(item.missing)
            ]  # fmt: skip
            self._running[self.executor.submit(jobs)] = self._batch
            self._batch = []

    def _wait(self) -> None:
        """Wait until a batch is done, and keep its results."""
        for handle, done in self.executor.wait(self._running):
            batch = self._running.pop(handle)
            self._keep(batch, done)
            self._pending.difference_update(batch)

    def _keep(self, batch: Sequence[Item], done: Done) -> None:
        records = iter(done.records)
        found: list[tuple[RecordKey, Record]] = []
        for item in batch:
            for index in sorted(item.missing):
                keys = self._keys(item, networks={index})
                some = next(records)
                if len(some) != len(keys):
                    text = f"`{self.rung}`: expected {len(keys)} results, got {len(some)}; {REPORT}"
                    some = [Record(error=text)] * len(keys)
                found += [
                    (key, self.check(key, checked(self.rung, record)))
                    for key, record in zip(keys, some, strict=True)
                ]
                self.computed += len(keys)
        self.database.add(found)
        self._records |= dict(found)
        if done.seconds:
            self._mean_s = done.seconds / len(batch)

    def _batch_size(self) -> int:
        workers = self.executor.workers
        if not self._mean_s or not workers:
            return 1
        most = MAX_JOBS if self.window is None else max(1, self.window // (2 * workers))
        return max(1, min(most, round(BATCH_S / self._mean_s)))

    def _memory_text(self, memory: MemoryModel) -> str:
        text = memory_text(memory)
        if self.program_for in (None, memory):
            return text
        return f"{text}{PROGRAM_FOR}{memory_text(self.program_for)}"

    def _missing(self, item: Item) -> set[int]:
        return {
            index
            for index in range(len(self.networks))
            if any(key not in self._records for key in self._keys(item, networks={index}))
        }

    def _keys(
        self,
        item: Item,
        memories: Sequence[MemoryModel] | None = None,
        networks: set[int] | None = None,
    ) -> list[RecordKey]:
        return [
            RecordKey(self.rung, self.version, digest, item.digest, self._memory_text(memory))
            for index, digest in enumerate(self.networks)
            if networks is None or index in networks
            for memory in (item.memories if memories is None else memories)
        ]
