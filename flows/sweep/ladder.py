"""The sweep itself: a ladder on which each point takes the cheapest rung that decides it.

Counts of resources are exact at once, and the certified bound says how few cycles a machine could
take at best. A machine is compiled unless, for each of its memories, a condition fails for certain
or a compiled point beats even the bound. So the front is that of an exhaustive sweep. Each main
memory has a front of its own: a memory is where a machine has to work, and no objective prices it.

Machines are decided one after the other, in an order that follows from bounds and counts alone. The
decision about a machine uses the results of all machines but the last `WINDOW` before it, whatever
else is known. So the same machines are compiled with any number of workers.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import CompileError
from ...isa.configuration import Configuration
from .evaluators import BOUND, RESOURCES, SIM, graph_digest, resources, version_of
from .executors import LOST, Done, Executor, InProcess, Job
from .expressions import Condition, Interval, exactly
from .figures import DEFAULT_OBJECTIVES, known_figures, timed_figures
from .outcome import (
    BEATEN,
    EXCLUDED,
    FAILED,
    ON_FRONT,
    OPEN,
    RULED_OUT,
    Network,
    Outcome,
    Progress,
    Result,
)
from .pareto import Front, front
from .records import Database, Key, Record, configuration_digest, memory_text
from .space import Machine, Point, Rejected, Space

if TYPE_CHECKING:
    pass

WINDOW = 8
"""Machines whose results need not be known when the next one is decided."""
BATCH_S = 1.0
"""Seconds that a batch of jobs takes about."""
MOST_JOBS = 256
"""Jobs in a batch."""


def sweep(
    networks: Sequence[Network],
    space: Space,
    database: Database | None = None,
    *,
    objectives: Sequence[str] = DEFAULT_OBJECTIVES,
    where: Sequence[Condition] = (),
    clock_mhz: float = 100.0,
    executor: Executor | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
    exhaustive: bool = False,
) -> Outcome:
    """Find the machines of a space that no other one beats with the same main memory.

    Parameters
    ----------
    database
        Keeps every result; None keeps none after the sweep.
    objectives
        Figures to minimise, see `figures.OBJECTIVES`.
    where
        Conditions that a point must fulfil.
    clock_mhz
        The clock of all machines, for `ms`.
    executor
        Runs the work; this process by default.
    progress
        Called after each batch.
    exhaustive
        Compile every machine that fulfils the conditions.

    Raises
    ------
    UsageError
        When the space has no legal machine.
    CompileError
        When a network has no layer for the accelerator.
    DatabaseError
        When the database cannot be used.
    """
    executor = executor or InProcess([network.graph for network in networks])
    database = Database() if database is None else database
    run = _Run(networks, space, database, objectives, where, clock_mhz)
    run.executor, run.progress, run.exhaustive = executor, progress, exhaustive
    return run.outcome()


class _Candidate:
    """A machine with its points that are still possible."""

    def __init__(self, machine: Machine, results: list[Result]) -> None:
        self.machine, self.results = machine, results
        self.digest = configuration_digest(machine.configuration)
        self.least = np.empty((0, 0))
        """Objectives of the points at best, float64[points, objectives]."""
        self.compile = True
        self.missing: set[int] = set()
        """Networks without a result."""


class _Run:
    executor: Executor
    progress: Callable[[Progress], None]
    exhaustive: bool

    def __init__(
        self,
        networks: Sequence[Network],
        space: Space,
        database: Database,
        objectives: Sequence[str],
        where: Sequence[Condition],
        clock_mhz: float,
    ) -> None:
        self.networks, self.space, self.database = tuple(networks), space, database
        self.objectives, self.where, self.clock_mhz = tuple(objectives), tuple(where), clock_mhz
        self.digests = [graph_digest(network.graph) for network in networks]
        self.rejected = Rejected()
        self.results: list[Result] = []
        self.records: dict[Key, Record] = {}
        self.counts: dict[str, Record] = {}
        self.fronts = {id(setting): Front(len(self.objectives)) for setting in space.settings}
        self.compiled = self.reused = 0
        self.mean_s: dict[str, float] = {}

    def outcome(self) -> Outcome:
        started = time.perf_counter()
        interrupted = False
        for network, digest in zip(self.networks, self.digests, strict=True):
            self.database.name_network(digest, network.name)
        self.database.forget(LOST)
        candidates = self._candidates()
        try:
            self._find_bounds(candidates)
            self._compile(self._in_order(candidates))
        except KeyboardInterrupt:
            interrupted = True
        self._rate()
        return Outcome(
            self.networks, self.space, self.objectives, self.where, self.clock_mhz,
            tuple(self.results), self.rejected, self.compiled, self.reused,
            time.perf_counter() - started, interrupted,
        )  # fmt: skip

    # Points ------------------------------------------------------------------------------------

    def _candidates(self) -> list[_Candidate]:
        """All points; machines with a point for which every condition may hold."""
        machines = list(self.space.machines(self.rejected))
        if not machines:
            raise self.space.no_machine(self.rejected)
        self.database.add_configurations(machine.configuration for machine in machines)
        self._count_resources([machine.configuration for machine in machines])
        found = []
        for machine in machines:
            results = [Result(Point(machine, setting)) for setting in self.space.settings]
            self.results += results
            candidate = _Candidate(machine, results)
            for result in results:
                if not self._may_hold(self._known(result.point)):
                    result.state = EXCLUDED
            candidate.results = [result for result in results if result.state == OPEN]
            if candidate.results:
                found.append(candidate)
        return found

    def _count_resources(self, configurations: Sequence[Configuration]) -> None:
        version = version_of(RESOURCES)
        keys = {
            Key(RESOURCES, version, "", configuration_digest(one), ""): one
            for one in configurations
        }
        found = self.database.find(keys)
        new = [(key, resources(one)) for key, one in keys.items() if key not in found]
        self.database.add(new)
        self.counts = {key.configuration: record for key, record in (*found.items(), *new)}

    def _known(self, point: Point) -> dict[str, Interval]:
        counts = self.counts[configuration_digest(point.machine.configuration)]
        return known_figures(point, counts.figures)

    def _may_hold(self, figures: dict[str, Interval]) -> bool:
        return all(condition.may_hold(figures) for condition in self.where)

    # Rungs -------------------------------------------------------------------------------------

    def _find_bounds(self, candidates: Sequence[_Candidate]) -> None:
        """Bound every point, and exclude those that cannot fulfil the conditions."""
        self._load(BOUND, candidates)
        todo = deque(candidate for candidate in candidates if candidate.missing)
        done, running = len(candidates) - len(todo), {}
        while todo or running:
            while todo and len(running) < max(1, 2 * self.executor.workers):
                size = min(self._batch_size(BOUND), MOST_JOBS)
                batch = [todo.popleft() for _ in range(min(size, len(todo)))]
                running[self._submit(BOUND, batch)] = batch
            for handle, result in self.executor.wait(running):
                batch = running.pop(handle)
                self._keep(BOUND, batch, result)
                done += len(batch)
            self.progress(Progress(BOUND, done, len(candidates)))
        for candidate in candidates:
            for result in candidate.results:
                self._apply_bound(candidate, result)
            candidate.results = [result for result in candidate.results if result.state == OPEN]

    def _compile(self, order: Sequence[_Candidate]) -> None:
        """Compile machines in order, except those that the points before rule out."""
        self._load(SIM, order)
        window: deque[_Candidate] = deque()
        waiting: list[_Candidate] = []
        running: dict[Any, list[_Candidate]] = {}
        pending: set[int] = set()
        settled = 0

        def start() -> None:
            if waiting:
                running[self._submit(SIM, waiting)] = list(waiting)
                waiting.clear()

        def settle_first() -> None:
            nonlocal settled
            first = window.popleft()
            if id(first) in pending:
                start()
            while id(first) in pending:
                for handle, done in self.executor.wait(running):
                    batch = running.pop(handle)
                    self._keep(SIM, batch, done)
                    self.compiled += sum(len(candidate.missing) for candidate in batch)
                    pending.difference_update(map(id, batch))
            settled += 1
            if first.compile:
                for result in first.results:
                    self._apply_cycles(first, result)
            self.progress(Progress(SIM, settled, len(order), sum(map(len, self.fronts.values()))))

        for candidate in order:
            if len(window) == WINDOW:
                settle_first()
            window.append(candidate)
            if not self.exhaustive and self._is_ruled_out(candidate):
                candidate.compile = False
                for result in candidate.results:
                    result.state = RULED_OUT
            elif candidate.missing:
                waiting.append(candidate)
                pending.add(id(candidate))
                if len(waiting) >= self._batch_size(SIM):
                    start()
            else:
                self.reused += len(self.networks)
        while window:
            settle_first()

    def _load(self, rung: str, candidates: Sequence[_Candidate]) -> None:
        """Find what the database knows already."""
        keys = [key for candidate in candidates for key in self._keys(rung, candidate)]
        self.records |= self.database.find(keys)
        for candidate in candidates:
            candidate.missing = {
                index
                for index in range(len(self.networks))
                if any(key not in self.records for key in self._keys(rung, candidate, index))
            }

    def _submit(self, rung: str, batch: Sequence[_Candidate]) -> Any:
        return self.executor.submit(
            [
                Job(rung, index, candidate.machine.configuration, self._memories(candidate))
                for candidate in batch
                for index in sorted(candidate.missing)
            ]
        )

    def _keep(self, rung: str, batch: Sequence[_Candidate], done: Done) -> None:
        """Record the results of a batch."""
        records = iter(done.records)
        found: list[tuple[Key, Record]] = []
        for candidate in batch:
            for index in sorted(candidate.missing):
                keys = self._keys(rung, candidate, index)
                some = next(records, done.records[-1])
                some = some if len(some) == len(keys) else some[:1] * len(keys)
                found += zip(keys, some, strict=True)
        self.database.add(found)
        self.records |= dict(found)
        if batch and done.seconds:
            self.mean_s[rung] = done.seconds / len(batch)

    def _batch_size(self, rung: str) -> int:
        if rung not in self.mean_s or not self.executor.workers:
            return 1
        size = max(1, round(BATCH_S / max(self.mean_s[rung], 1e-4)))
        if rung == SIM:
            return min(size, max(1, WINDOW // (2 * self.executor.workers)))
        return size

    def _memories(self, candidate: _Candidate) -> tuple:
        return tuple(result.point.setting.memory for result in candidate.results)

    def _keys(self, rung: str, candidate: _Candidate, network: int | None = None) -> list[Key]:
        version = version_of(rung)
        return [
            Key(rung, version, digest, candidate.digest, memory_text(memory))
            for index, digest in enumerate(self.digests)
            if network in (None, index)
            for memory in self._memories(candidate)
        ]

    # Results -----------------------------------------------------------------------------------

    def _of_point(self, rung: str, candidate: _Candidate, result: Result) -> list[Record]:
        memory = memory_text(result.point.setting.memory)
        version = version_of(rung)
        return [
            self.records[Key(rung, version, digest, candidate.digest, memory)]
            for digest in self.digests
        ]

    def _weighted(self, cycles: Sequence[float]) -> float:
        pairs = zip(self.networks, cycles, strict=True)
        return sum(network.weight * each for network, each in pairs)

    def _apply_bound(self, candidate: _Candidate, result: Result) -> None:
        records = self._of_point(BOUND, candidate, result)
        if self._fail(result, records):
            return
        result.bounds = tuple(record.figures["cycles"] for record in records)
        if not any(result.bounds):
            names = ", ".join(f"`{network.name}`" for network in self.networks)
            raise CompileError(
                f"model {names}: expected layers on the accelerator, got none, so there are no "
                "cycles to compare; quantise the model to int8 first (`tilewright quantise`)"
            )
        least = self._weighted(result.bounds)
        known = self._known(result.point)
        peak = result.point.machine.configuration.tile_bytes
        figures = {**known, **timed_figures((least, math.inf), None, peak, self.clock_mhz)}
        if not self._may_hold(figures):
            result.state = EXCLUDED
        result.figures = {name: low for name, (low, _) in figures.items() if math.isfinite(low)}
        result.figures |= {name: math.inf for name, (low, _) in figures.items() if low == math.inf}

    def _apply_cycles(self, candidate: _Candidate, result: Result) -> None:
        records = self._of_point(SIM, candidate, result)
        if self._fail(result, records):
            return
        result.cycles = tuple(record.figures["cycles"] for record in records)
        macs = self._weighted([record.figures["macs"] for record in records])
        cycles = exactly(self._weighted(result.cycles))
        peak = result.point.machine.configuration.tile_bytes
        figures = {
            **self._known(result.point),
            **timed_figures(cycles, macs, peak, self.clock_mhz),
        }
        result.figures = {name: low for name, (low, _) in figures.items()}
        if not self._may_hold(figures):
            result.state = EXCLUDED
            return
        result.state = BEATEN
        self.fronts[id(result.point.setting)].add(self._values(result))

    @staticmethod
    def _fail(result: Result, records: Sequence[Record]) -> bool:
        errors = [record.error for record in records if record.error is not None]
        if errors:
            result.state, result.error = FAILED, errors[0]
        return bool(errors)

    def _in_order(self, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """The candidates with a point left, the most promising first."""
        left = [candidate for candidate in candidates if candidate.results]
        for candidate in left:
            candidate.least = np.array([self._values(result) for result in candidate.results])
        # A front is about a line on which the product of the objectives is the same.
        merit = {
            id(candidate): np.log(np.maximum(candidate.least, 1e-9)).sum(axis=1).min()
            for candidate in left
        }
        return sorted(left, key=lambda candidate: (merit[id(candidate)], candidate.digest))

    def _is_ruled_out(self, candidate: _Candidate) -> bool:
        pairs = zip(candidate.results, candidate.least, strict=True)
        return all(
            self.fronts[id(result.point.setting)].rules_out(least) for result, least in pairs
        )

    def _values(self, result: Result) -> list[float]:
        return [result.figures[name] for name in self.objectives]

    def _rate(self) -> None:
        """Find the front of each memory among the compiled points."""
        for setting in self.space.settings:
            timed = [
                result
                for result in self.results
                if result.state == BEATEN and result.point.setting is setting
            ]
            if timed:
                best = front(np.array(list(map(self._values, timed))))
                for index in np.flatnonzero(best):
                    timed[index].state = ON_FRONT
