"""The sweep itself: a ladder of evaluators, on which the cheapest one that can decides each point.

Resources are known without compilation, and the certified bound is the fewest cycles that a
machine could take. A machine is compiled unless, for each of its memories, a condition certainly
fails or a compiled point beats even the bound. So the front is that of an exhaustive sweep. Each
main memory has its own front, because it is given by the system and no objective counts its cost.

Synthesis and placement are so slow that only machines on the front get there. Measured figures then
replace estimates, and the front is found again, until all its machines are measured. What an
estimate keeps off the front stays there.

Machines are decided one by one, in an order that depends on bounds and counts only. Each decision
uses the results of all earlier machines except the last `WINDOW`, even if these are known. So the
same machines are compiled with any number of workers.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np

from ...compiler.placement.host_products import host_products, idle_sentence
from ...errors import CompileError
from ...isa.configuration import Configuration
from ..area.clock import clock_of, measured_rows
from ..synthesis.devices import FpgaDevice
from .candidate import SweepCandidate
from .evaluators import (
    BOUND,
    PLACEMENT,
    REPORT,
    RESOURCES,
    RTL,
    SIM,
    SYNTHESIS,
    graph_digest,
    resources,
    version_of,
)
from .executors import InProcess, SweepExecutor
from .expressions import EVER, Constraint, Interval, exactly
from .figures import DEFAULT_OBJECTIVES, known_figures, network_figures, program_figures
from .measured import REPLACED, Build, DesignBuilder, DesignFigures
from .outcome import (
    BEATEN,
    EXCLUDED,
    FAILED,
    LISTING,
    ON_FRONT,
    OPEN,
    RULED_OUT,
    PointResult,
    Progress,
    SweepNetwork,
    SweepOutcome,
)
from .pareto import Front, front
from .records import LOST, PROGRAM_FOR, Database, Record, RecordKey, configuration_digest, digest_of
from .search import Search, open_method
from .space import Point, Rejected, Space, SweepMachine
from .work import Work

WINDOW = 8
"""Number of preceding machines that a decision does not wait for."""

WATCH_S = 2.0
"""Minimum time between two views of a running sweep."""

IDLE_ROUNDS = 100
"""Successive rounds of a search that may find every machine ruled out before it ends."""


def sweep(
    networks: Sequence[SweepNetwork],
    space: Space,
    database: Database | None = None,
    *,
    objectives: Sequence[str] = DEFAULT_OBJECTIVES,
    where: Sequence[Constraint] = (),
    clock_mhz: float = 100.0,
    device: FpgaDevice | None = None,
    executor: SweepExecutor | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
    exhaustive: bool = False,
    search: Search | None = None,
    rtl: bool = False,
    build: Build | None = None,
    own_clock: bool = False,
    watch: Callable[[SweepOutcome], None] | None = None,
) -> SweepOutcome:
    """Find the machines of a space that no other one beats with the same main memory.

    Parameters
    ----------
    database
        Keeps every result; with None, results are lost after the sweep.
    objectives
        Figures to minimise, see `figures.OBJECTIVES`.
    where
        Conditions that a point must satisfy.
    clock_mhz
        The clock of machines that were not placed, for `ms`.
    device
        The chip for which resources are counted, see `evaluators.resources`; with `build`, its
        chip.
    executor
        Runs the work; this process by default.
    progress
        Called after each batch.
    exhaustive
        Compile every machine that satisfies the conditions.
    search
        Compile only some machines; the front is theirs.
    rtl
        Also run every point on the front on the RTL.
    build
        Also synthesise the machines on the front, and place them; None for neither.
    own_clock
        Time each machine at its own clock on the device, from the ledger or estimated from it;
        `clock_mhz` is that of machines whose size is not between those of the ledger.
    watch
        Called every few seconds with the outcome so far, in which machines that are not decided
        are open.

    Raises
    ------
    UsageError
        When the space has no legal machine, or without `search` too many to list.
    CompileError
        When a network has no layer for the accelerator.
    DatabaseError
        When the database is unusable.
    """
    executor = executor or InProcess([network.graph for network in networks])
    database = Database() if database is None else database
    return _LadderRun(
        networks, space, database, executor, progress, objectives, where, clock_mhz, device,
        exhaustive, search, build, own_clock, watch,
    ).outcome(rtl)  # fmt: skip


def clocks_of(configurations: Sequence[Configuration], device: FpgaDevice) -> dict[str, float]:
    """Return the clocks of configurations on a device, by digest, where one is known."""
    rows = measured_rows(device)
    found = {configuration_digest(one): clock_of(one, device, rows) for one in configurations}
    return {digest: clock.median_mhz for digest, clock in found.items() if clock is not None}


class _LadderRun:
    def __init__(
        self,
        networks: Sequence[SweepNetwork],
        space: Space,
        database: Database,
        executor: SweepExecutor,
        progress: Callable[[Progress], None],
        objectives: Sequence[str],
        where: Sequence[Constraint],
        clock_mhz: float,
        device: FpgaDevice | None,
        exhaustive: bool,
        search: Search | None,
        build: Build | None,
        own_clock: bool,
        watch: Callable[[SweepOutcome], None] | None,
    ) -> None:
        self.watch, self.started, self.watched = watch, time.perf_counter(), 0.0
        self.networks, self.space, self.database = tuple(networks), space, database
        self.objectives, self.where, self.clock_mhz = tuple(objectives), tuple(where), clock_mhz
        self.progress, self.exhaustive, self.search = progress, exhaustive, search
        self.device, self.build = build.device if build else device, build
        self.own_clock = own_clock
        self.clocks: dict[str, float] = {}
        self.measured: dict[str, DesignFigures] = {}
        digests = [graph_digest(network.graph) for network in networks]
        for network, digest in zip(networks, digests, strict=True):
            database.name_network(digest, network.name)
        self.bounds = Work(BOUND, digests, database, executor)
        made_for = space.program_for
        self.programs = Work(SIM, digests, database, executor, self._checked, WINDOW, made_for)
        self.hardware = Work(RTL, digests, database, executor, window=WINDOW, program_for=made_for)
        self.rejected = Rejected()
        self.results: list[PointResult] = []
        self.candidates: list[SweepCandidate] = []
        self.counts: dict[str, Record] = {}
        self.fronts = {id(setting): Front(len(self.objectives)) for setting in space.settings}
        self.reused = 0
        self.evaluated = 0

    def outcome(self, rtl: bool) -> SweepOutcome:
        interrupted = False
        self.database.forget(LOST)
        try:
            if self.search is None:
                machines = self.space.all_machines(self.rejected, self._tell_listed)
                self._compile(self._in_order(self._consider(machines)))
            else:
                self._run_search(self.search)
            self._rate()
            if self.build is not None:
                self._measure_front(DesignBuilder(self.build, self.database))
            if rtl:
                self._run_on_rtl()
        except KeyboardInterrupt:
            interrupted = True
            self._apply_known()
            self._rate()
        finally:
            self.programs.release()
        return self._so_far(interrupted)

    def _so_far(self, interrupted: bool = False) -> SweepOutcome:
        return SweepOutcome(
            self.networks, self.space, self.objectives, self.where, self.clock_mhz,
            tuple(self.results), self.rejected, self.programs.computed, self.reused,
            time.perf_counter() - self.started, interrupted, self.search, self.evaluated,
            self.build, self.device, self.own_clock,
        )  # fmt: skip

    def _tell(self, progress: Progress) -> None:
        self.progress(progress)
        now = time.perf_counter()
        if self.watch is not None and now - self.watched >= WATCH_S:
            self._rate()
            self.watch(self._so_far())
            self.watched = time.perf_counter()

    # Points ------------------------------------------------------------------------------------

    def _tell_listed(self, count: int) -> None:
        self.progress(Progress(LISTING, count, self.space.combinations))

    def _consider(self, machines: Sequence[SweepMachine]) -> list[SweepCandidate]:
        """List the points of machines, and bound those that may satisfy every condition."""
        if not machines and not self.results:
            raise self.space.no_machine(self.rejected)
        self.database.add_configurations(machine.configuration for machine in machines)
        self._count_resources([machine.configuration for machine in machines])
        found = []
        for machine in machines:
            results = [PointResult(Point(machine, setting)) for setting in self.space.settings]
            self.results += results
            candidate = SweepCandidate(machine, results)
            for result in results:
                self._exclude(result, self._known(result.point))
            candidate.results = [result for result in results if result.state == OPEN]
            found.append(candidate)
        self.candidates += found
        self._find_bounds([candidate for candidate in found if candidate.results])
        return found

    def _count_resources(self, configurations: Sequence[Configuration]) -> None:
        version = digest_of(f"{version_of(RESOURCES)} {self.device.name if self.device else ''}")
        keys = {
            RecordKey(RESOURCES, version, "", configuration_digest(one), ""): one
            for one in configurations
        }
        found = self.database.find(keys)
        new = [(key, resources(one, self.device)) for key, one in keys.items() if key not in found]
        self.database.add(new)
        self.counts |= {key.configuration: record for key, record in (*found.items(), *new)}
        if self.own_clock and self.device is not None:
            self.clocks |= clocks_of(configurations, self.device)

    def _known(self, point: Point) -> dict[str, Interval]:
        digest = configuration_digest(point.machine.configuration)
        counts, measured = self.counts[digest].figures, self.measured.get(digest)
        if measured is not None:
            counts = {
                **counts,
                **{name: measured.counts[name] for name in REPLACED if name in measured.counts},
            }
        return {
            **known_figures(point, counts, self._clock_mhz(digest)),
            **self._network_figures([EVER] * len(self.networks), digest),
        }

    def _clock_mhz(self, digest: str) -> float:
        """Return the measured clock of a configuration, its own, or the one of all others."""
        measured = self.measured.get(digest)
        return (measured and measured.clock_mhz) or self.clocks.get(digest, self.clock_mhz)

    def _exclude(self, result: PointResult, figures: dict[str, Interval]) -> bool:
        """Exclude a point whose figures fail a condition; return whether they do."""
        result.misses = tuple(
            (str(condition), condition.miss(figures))
            for condition in self.where
            if not condition.may_hold(figures)
        )
        if result.misses:
            result.state = EXCLUDED
        return bool(result.misses)

    def _network_figures(self, cycles: Sequence[Interval], digest: str) -> dict[str, Interval]:
        names = [network.name for network in self.networks]
        return network_figures(names, cycles, self._clock_mhz(digest))

    # Rungs -------------------------------------------------------------------------------------

    def _find_bounds(self, candidates: Sequence[SweepCandidate]) -> None:
        """Bound every point, and exclude those that cannot satisfy the conditions."""
        self.bounds.load(candidate.asked() for candidate in candidates)
        for done, candidate in enumerate(candidates, 1):
            self.bounds.request(candidate.item)
            if not self.evaluated:  # later rounds of a search bound few machines
                self.progress(Progress(BOUND, done, len(candidates)))
        for candidate in candidates:
            self.bounds.finish(candidate.item)
            for result in candidate.results:
                self._apply_bound(candidate, result)
            candidate.results = [result for result in candidate.results if result.state == OPEN]
            candidate.least = self._objectives(candidate)

    def _run_search(self, search: Search) -> None:
        """Compile the machines that a search chooses, batch by batch."""
        method = open_method(search, self.space, self.objectives, self.rejected)
        undecided: list[SweepCandidate] = []
        idle = 0
        while self.evaluated < search.evaluations and idle < IDLE_ROUNDS:
            before = self.evaluated
            new = self._consider(method.propose())
            undecided += [candidate for candidate in new if candidate.results]
            if not undecided and not new:
                break
            decided = [candidate for candidate in new if not candidate.results]
            decided += [candidate for candidate in undecided if self._rule_out(candidate)]
            left = [candidate for candidate in undecided if candidate.compile]
            batch = method.choose(left, min(method.batch, search.evaluations - self.evaluated))
            self._compile(batch)
            decided += batch
            for candidate in decided:
                candidate.found = self._objectives(candidate)
            method.learn(decided)
            undecided = [candidate for candidate in left if candidate not in batch]
            idle = 0 if self.evaluated > before else idle + 1
        for candidate in undecided:
            self._rule_out(candidate)

    def _compile(self, order: Sequence[SweepCandidate]) -> None:
        """Compile machines in order, except those that earlier points rule out."""
        self.programs.load(candidate.asked() for candidate in order)
        window: deque[SweepCandidate] = deque()
        settled = count()

        def settle_first() -> None:
            first = window.popleft()
            if first.compile:
                self.programs.finish(first.item)
                for result in first.results:
                    self._apply_cycles(first, result)
            self._tell_progress(next(settled), len(order))

        self._tell_progress(next(settled), len(order))  # compiling the first machine takes long
        for candidate in order:
            if len(window) == WINDOW:
                settle_first()
            window.append(candidate)
            if not self._rule_out(candidate):
                self.evaluated += 1
                known = len(self.networks) - len(candidate.item.missing)
                self.reused += known * len(candidate.results)
                self.programs.request(candidate.item)
        while window:
            settle_first()

    def _tell_progress(self, settled: int, total: int) -> None:
        if self.search is not None:
            settled, total = self.evaluated, self.search.evaluations
        self._tell(Progress(SIM, settled, total, sum(map(len, self.fronts.values()))))

    def _measure_front(self, builder: DesignBuilder) -> None:
        """Synthesise and place the machines on the front, one by one, until all are measured.

        A measured figure may be worse than its estimate. Then other machines come to the front,
        perhaps some that were ruled out, and are measured too.
        """
        while True:
            best = self._on_front()
            rung, left = SYNTHESIS, [c for c in best if c.item.digest not in self.measured]
            if not left and builder.build.seeds:
                clocks = ((c, self.measured[c.item.digest].clock_mhz) for c in best)
                rung, left = PLACEMENT, [c for c, clock_mhz in clocks if clock_mhz is None]
            if not left:
                return
            done = len(best) - len(left)
            points = sum(map(len, self.fronts.values()))

            def show(
                step: str, rung: str = rung, done: int = done, total: int = len(best),
                points: int = points,
            ) -> None:  # fmt: skip
                self._tell(Progress(rung, done, total, points, step))

            show("")
            self._measure(rung, left[0], builder, show)
            self._rate()
            self._reopen()

    def _measure(
        self,
        rung: str,
        candidate: SweepCandidate,
        builder: DesignBuilder,
        show: Callable[[str], None],
    ) -> None:
        """Measure a machine, and apply its figures to its points."""
        configuration, digest = candidate.machine.configuration, candidate.item.digest
        if rung == SYNTHESIS:
            measured = builder.synthesise(configuration, self.counts[digest].figures, show)
        else:
            measured = self.measured[digest]
            builder.place(measured, configuration, show)
        if measured.counts:
            self.measured[digest] = measured
        for result in candidate.results:
            if result.state in (ON_FRONT, BEATEN):
                result.measured = measured if measured.counts else None
                self._apply_cycles(candidate, result)
                if measured.error is not None:
                    result.state, result.error = FAILED, measured.error

    def _reopen(self) -> None:
        """Compile the machines that the front no longer rules out, unless a search is limited."""
        found = []
        for candidate in self.candidates:
            if not candidate.compile and not self._rule_out(candidate):
                for result in candidate.results:
                    result.state = OPEN
                found.append(candidate)
        if found and self.search is None:
            self._compile(self._in_order(found))
            self._rate()

    def _on_front(self) -> list[SweepCandidate]:
        """Return the machines with a point on the front."""
        return [
            candidate
            for candidate in self.candidates
            if any(result.state == ON_FRONT for result in candidate.results)
        ]

    def _run_on_rtl(self) -> None:
        """Run the points on the front on the RTL."""
        best = self._on_front()
        for candidate in best:
            candidate.results = [each for each in candidate.results if each.state == ON_FRONT]
        self.hardware.load(candidate.asked() for candidate in best)
        for candidate in best:
            self.hardware.request(candidate.item)
        for done, candidate in enumerate(best, 1):
            self.hardware.finish(candidate.item)
            for result in candidate.results:
                records = self.hardware.records(candidate.item, result.point.setting.memory)
                errors = [record.error for record in records if record.error is not None]
                result.error = errors[0] if errors else None
                result.rtl = tuple(record.figures.get("cycles", 0) for record in records)
            self.progress(Progress(RTL, done, len(best), len(best)))

    # Results -----------------------------------------------------------------------------------

    def _weighted(self, cycles: Sequence[float]) -> float:
        pairs = zip(self.networks, cycles, strict=True)
        return sum(network.weight * each for network, each in pairs)

    def _apply_bound(self, candidate: SweepCandidate, result: PointResult) -> None:
        records = self.bounds.records(candidate.item, result.point.setting.memory)
        if self._fail(result, records):
            return
        result.bounds = tuple(record.figures["cycles"] for record in records)
        result.units = tuple(record.figures["unit"] for record in records)
        for network, bound in zip(self.networks, result.bounds, strict=True):
            if not bound:
                idle = idle_sentence(network.graph, host_products(network.graph))
                raise CompileError(
                    f"model `{network.name}`: expected layers on the accelerator, got none, so "
                    f"there are no cycles to compare; {idle}"
                )
        least = self._weighted(result.bounds)
        known = self._known(result.point)
        peak = result.point.machine.configuration.tile_bytes
        clock_mhz = self._clock_mhz(candidate.item.digest)
        figures = {
            **known,
            **program_figures((least, math.inf), peak, clock_mhz),
            **self._network_figures(
                [(bound, math.inf) for bound in result.bounds], candidate.item.digest
            ),
        }
        self._exclude(result, figures)
        result.figures = {name: low for name, (low, _) in figures.items() if math.isfinite(low)}

    def _apply_cycles(self, candidate: SweepCandidate, result: PointResult) -> None:
        records = self.programs.records(candidate.item, result.point.setting.memory)
        if self._fail(result, records):
            return
        cycles = tuple(record.figures["cycles"] for record in records)
        result.cycles = cycles
        result.limits = tuple(record.figures["limits"] for record in records)
        result.layers = tuple(record.figures["layers"] for record in records)
        macs, energy_nj = (
            self._weighted([record.figures[name] for record in records])
            for name in ("macs", "energy_nj")
        )
        peak = result.point.machine.configuration.tile_bytes
        figures = {
            **self._known(result.point),
            **program_figures(
                exactly(self._weighted(cycles)),
                peak,
                self._clock_mhz(candidate.item.digest),
                macs,
                energy_nj,
            ),
            **self._network_figures(list(map(exactly, cycles)), candidate.item.digest),
        }
        result.figures = {name: low for name, (low, _) in figures.items()}
        if self._exclude(result, figures):
            return
        result.state = BEATEN
        self.fronts[id(result.point.setting)].add(self._values(result))

    def _checked(self, key: RecordKey, record: Record) -> Record:
        """Return a failure instead of fewer cycles than are possible."""
        timed, _, _ = key.memory.partition(PROGRAM_FOR)
        bound = self.bounds.record(key.network, key.configuration, timed)
        cycles = record.figures.get("cycles", math.inf)
        if bound is None or bound.error is not None or cycles >= bound.figures["cycles"]:
            return record
        return Record(
            error=f"cycles {cycles:,}: expected at least {bound.figures['cycles']:,}, which is "
            f"certified; {REPORT}"
        )

    def _apply_known(self) -> None:
        """Apply the results of programs that were compiled before an interrupt."""
        for candidate in self.candidates:
            if candidate.compile and self.programs.is_known(candidate.item):
                for result in candidate.results:
                    if result.state == OPEN and result.bounds:
                        self._apply_cycles(candidate, result)

    @staticmethod
    def _fail(result: PointResult, records: Sequence[Record]) -> bool:
        errors = [record.error for record in records if record.error is not None]
        if errors:
            result.state, result.error = FAILED, errors[0]
        return bool(errors)

    def _in_order(self, candidates: Sequence[SweepCandidate]) -> list[SweepCandidate]:
        """Return the candidates that still have points, the most promising first."""
        left = [candidate for candidate in candidates if candidate.results]
        # On a typical front, the product of the objectives is about constant.
        merit = {
            id(candidate): np.log(np.maximum(candidate.least, 1e-9)).sum(axis=1).min()
            for candidate in left
        }
        return sorted(left, key=lambda candidate: (merit[id(candidate)], candidate.item.digest))

    def _rule_out(self, candidate: SweepCandidate) -> bool:
        """Rule a machine out if compiled points beat even its bounds; return whether they do."""
        pairs = zip(candidate.results, candidate.least, strict=True)
        candidate.compile = self.exhaustive or not all(
            self.fronts[id(result.point.setting)].rules_out(least) for result, least in pairs
        )
        if not candidate.compile:
            for result in candidate.results:
                result.state = RULED_OUT
        return not candidate.compile

    def _objectives(self, candidate: SweepCandidate) -> np.ndarray:
        """Return the objectives of a machine's points, float64[points, objectives]."""
        missing = [math.inf] * len(self.objectives)
        rows = [
            missing if result.state in (EXCLUDED, FAILED) else self._values(result)
            for result in candidate.results
        ]
        return np.array(rows).reshape(-1, len(self.objectives))

    def _values(self, result: PointResult) -> list[float]:
        return [result.figures[name] for name in self.objectives]

    def _rate(self) -> None:
        """Find the front of each memory among the compiled points."""
        for setting in self.space.settings:
            timed = [
                result
                for result in self.results
                if result.state in (BEATEN, ON_FRONT) and result.point.setting is setting
            ]
            self.fronts[id(setting)] = best = Front(len(self.objectives))
            values = list(map(self._values, timed))
            mine = front(np.array(values)) if timed else ()
            for result, value, on_front in zip(timed, values, mine, strict=True):
                result.state = ON_FRONT if on_front else BEATEN
                if on_front:
                    best.add(value)
