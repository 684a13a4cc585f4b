"""Certified search of accelerator schedules: exact cycles, the likeliest candidates first.

A layer alone takes its candidates in the order of their estimates, and ends with a proof: either
all legal candidates were timed, or the best one is so near the lower bound that none can gain more.
What is faster alone need not be faster in the network, where layers overlap. So the last word is
the exact time of the whole network. With devices, their cycles take the place of the exact ones.
Before that, other divisions of the network into layers are tried, see `chain_search`; after it,
smaller first tiles, see `first_tiles`.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...compiler.accelerator.search import Candidate
from ...compiler.graph.short_names import short_name
from ...compiler.module import Module
from ...compiler.scheduling.candidate_timer import NEVER
from ...compiler.scheduling.given_schedules import NO_SCHEDULES
from ...errors import UsageError
from ...runtime.wire import JobError
from ...wording import counted
from ..sweep.records import LOST, Record
from .candidate_workers import CandidateWorkers
from .chain_search import least_cycles, search_chains
from .first_tiles import search_first_tiles
from .layer_bench import LayerBench
from .layer_records import LayerRecords, failure
from .layer_trials import LayerTrial, LayerTrials
from .network_trials import NetworkTrials, TriedChange
from .run_log import MAX_TITLE, LoggedTrial, RunLog
from .tasks import answers_of

NEAR = 1.005
"""A layer is done if its cycles are within this factor of the lower bound."""

CHAINS_SHARE = 0.5
"""Share of the budget for other divisions into layers."""


@dataclass(frozen=True, slots=True)
class SearchedLayer:
    """The end of the search for one layer.

    Parameters
    ----------
    default_cycles, cycles, bound
        Cycles of the layer alone with the compiler's schedule and with the best one, and a lower
        bound for all schedules.
    space, timed
        Number of legal candidates, and of those that were timed.
    steps
        The best schedule, if it is not the compiler's.
    skipped
        Why the layer has no candidates; empty if it has.
    on_board
        Whether a board counted the cycles, whose memory the bound does not know.
    trials
        The candidates that were timed, for the page.
    choices
        All answers of the space, by name.
    """

    name: str
    default_cycles: int
    cycles: int
    bound: int
    space: int = 0
    timed: int = 0
    steps: str = ""
    skipped: str = ""
    on_board: bool = False
    trials: tuple[LoggedTrial, ...] = ()
    choices: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """Share that a schedule outside of the space could at most save, relative to the bound."""
        return self.cycles / self.bound - 1 if self.bound else 0.0

    @property
    def certificate(self) -> str:
        """The proof with which the search ended; empty if it was ended before."""
        if self.skipped:
            return ""
        if self.cycles <= NEAR * self.bound and not self.on_board:
            return f"within {self.gap:.2%} of the lower bound of all schedules"
        if self.timed == self.space:
            return f"the best of all {counted(self.space, 'candidate')}"
        return ""

    def log(self, records: LayerRecords) -> RunLog:
        """Return its trials for the page, in order."""
        bound = self.bound / self.default_cycles if self.default_cycles else 0.0
        title = short_name(self.name)[:MAX_TITLE]
        return RunLog(
            title, records.place, records.network, records.target, "search", 0,
            self.space, "cycles", self.default_cycles, bound, self.trials,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "layer": self.name,
            "default_cycles": self.default_cycles,
            "cycles": self.cycles,
            "bound": self.bound,
            "gap": self.gap,
            "space": self.space,
            "choices": {name: list(values) for name, values in self.choices.items()},
            "timed": self.timed,
            "certificate": self.certificate,
            "skipped": self.skipped,
        }


@dataclass(frozen=True, slots=True)
class SearchedNetwork:
    """The end of the search for a network.

    Parameters
    ----------
    before, cycles, bound
        Exact cycles of the network with the compiler's schedules and with the best ones, and the
        lower bound of its layers with any schedules.
    least
        Lower bound for all divisions into layers; None if it is unknown.
    schedules
        Steps by layer that make the network faster.
    chains
        The other divisions into layers that were tried.
    first_tiles
        The smaller first tiles that were tried.
    """

    before: int
    cycles: int
    bound: int
    layers: tuple[SearchedLayer, ...]
    schedules: Mapping[str, str]
    chains: tuple[TriedChange, ...] = ()
    first_tiles: tuple[TriedChange, ...] = ()
    least: int | None = None
    stopped: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "cycles_before": self.before,
            "cycles": self.cycles,
            "bound": self.bound,
            "bound_of_all_divisions": self.least,
            "chains": [asdict(one) for one in self.chains],
            "first_tiles": [asdict(one) for one in self.first_tiles],
            "layers": [one.to_json() for one in self.layers],
            "schedules": dict(self.schedules),
            "stopped": self.stopped,
        }


def search_layer(
    module: Module,
    name: str,
    trials: int,
    may_go_on: Callable[[], bool] = lambda: True,
    devices: LayerTrials | None = None,
    records: LayerRecords | None = None,
    division: str = "",
    workers: CandidateWorkers | None = None,
    schedules: Mapping[str, str] = NO_SCHEDULES,
) -> SearchedLayer:
    """Search the candidates of one layer.

    Parameters
    ----------
    trials
        Most candidates to time.
    may_go_on
        Asked before each candidate.
    devices
        Run the candidates, several at a time; None for exact cycles.
    records
        Outcomes of earlier runs; None if there are none.
    division
        What distinguishes the module from others of the network.
    workers
        Count exact cycles; None for this process.
    schedules
        Those that the module was compiled with, for the workers.
    """
    try:
        bench = LayerBench(module, name)
    except UsageError as problem:
        return SearchedLayer(name, 0, 0, 0, skipped=str(problem))
    default, bound = bench.gap.cycles, bench.gap.bound
    candidates, subject = bench.candidates(), f"{division} {name}"
    if records is not None and devices is None:
        subject = records.subject(bench.form, subject)

    def outcomes(batch: Sequence[Candidate | None]) -> list[Record]:
        def measured(places: Sequence[int]) -> list[Record]:
            wanted = [batch[place] for place in places]
            if workers is not None and devices is None:
                return workers.outcomes(name, schedules, [one for one in wanted if one])
            return _measured(bench, wanted, devices)

        if records is None:
            return measured(range(len(batch)))
        return records.outcomes(subject, list(map(str, batch)), measured)

    if devices is not None:
        (record,) = outcomes([None])
        if record.error is not None:
            return SearchedLayer(name, 0, 0, 0, skipped=record.error.removeprefix(LOST))
        default = record.figures["cycles"]
    near = 0.0 if devices is not None and devices.on_board else NEAR * bound
    best, chosen = default, None
    log: list[LoggedTrial] = []
    while len(log) < min(trials, len(candidates)) and best > near and may_go_on():
        width = devices.width if devices else workers.width if workers else 1
        batch = candidates[len(log) : min(trials, len(log) + width)]
        for candidate, record in zip(batch, outcomes(batch), strict=True):
            if best <= near:
                break  # one device alone would have ended here
            cycles = record.figures.get("cycles")
            log.append(_logged(candidate, cycles, default))
            if cycles is not None and cycles < best:
                best, chosen = cycles, candidate
    return SearchedLayer(
        name, default, best, bound, len(candidates), len(log),
        steps=bench.steps(chosen) if chosen else "",
        skipped="" if candidates else "it has several kernels",
        on_board=devices is not None and devices.on_board,
        trials=tuple(log),
        choices=answers_of(map(_choice, candidates)),
    )  # fmt: skip


def _choice(candidate: Candidate) -> dict[str, int | str]:
    """Return what distinguishes a candidate from others."""
    choice: dict[str, int | str] = {
        axis if len(candidate.tiles) == 1 else f"{axis}{number}": extent
        for number, tile in enumerate(candidate.tiles, 1)
        for axis, extent in tile
    }
    choice |= {"outer": "channels" if candidate.channels_outer else "pixels"}
    return choice | {"depth": candidate.depth, "ahead": "yes" if candidate.ahead else "no"}


def _logged(candidate: Candidate, cycles: int | None, default: int) -> LoggedTrial:
    """Return a trial of a layer; its prediction is the estimate by which candidates are ordered."""
    ratio = None if cycles is None or cycles >= NEVER else cycles / default
    verdict = "ok" if ratio else "failed" if cycles is None else "no program"
    return LoggedTrial(
        _choice(candidate), verdict, ratio, predicted=candidate.estimated_cycles / default
    )


def _measured(
    bench: LayerBench, batch: Sequence[Candidate | None], devices: LayerTrials | None
) -> list[Record]:
    """Return the outcomes of candidates; None stands for the compiler's schedule."""
    if devices is None:
        return [Record({"cycles": bench.cycles(one)}) for one in batch if one]
    texts = [bench.steps(one) if one else bench.default for one in batch]
    return list(map(_recorded, devices.cycles(bench, texts)))


def _recorded(trial: LayerTrial) -> Record:
    if trial.cycles is not None:
        return Record({"cycles": trial.cycles, "device": trial.device})
    return failure(trial.verdict, trial.text)


def search_network(
    module: Module,
    compile_with: Callable[[Mapping[str, str]], Module],
    *,
    trials: int = 1 << 30,
    seconds: float | None = None,
    devices: LayerTrials | None = None,
    records: LayerRecords | None = None,
    workers: CandidateWorkers | None = None,
    only: Collection[str] = (),
    watch: Callable[[SearchedLayer], None] = lambda result: None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchedNetwork:
    """Search divisions into layers, then all layers, those farthest from their bound first.

    Each layer gets a share of the remaining budget in proportion to its distance from the bound.
    Faster schedules are tried in the network at once, so that a run that ends early uses them too.
    Smaller first tiles get what remains.

    Parameters
    ----------
    module
        The network with the compiler's schedules.
    compile_with
        Compiles it with given schedules, by layer.
    trials, seconds
        Limits of the candidates that are timed, and of the time.
    devices
        Run layers and networks; None for exact cycles.
    records
        Where outcomes are looked up and kept; None for nowhere.
    workers
        Count the exact cycles of candidates; None for this process.
    only
        Search the schedules of these layers alone, and no other divisions; empty for everything.

    Returns
    -------
    SearchedNetwork
        Also after Ctrl-C, or when all devices are lost, with what was found until then.

    Raises
    ------
    DeviceError
        If the devices cannot run the network with the compiler's schedules.
    """
    end = math.inf if seconds is None else clock() + seconds
    network = NetworkTrials(module, compile_with, devices, records)
    results: dict[str, SearchedLayer] = {}
    lowest, stopped = least_cycles(module), ""
    started = clock()

    def may_divide() -> bool:
        return clock() < started + CHAINS_SHARE * (end - started)

    try:
        if not only:
            search_chains(network, math.ceil(CHAINS_SHARE * trials), may_divide)
        left = trials - len(network.chains)
        module, division, schedules = network.module(), network.division, network.kept
        for name, share in _shares(module, only):
            if (now := clock()) >= end:
                results[name] = SearchedLayer(name, 0, 0, 0, skipped="no time was left for it")
                continue
            until = now + share * (end - now)

            def may_go_on(until: float = until) -> bool:
                return clock() < until

            result = search_layer(
                module, name, math.ceil(share * left), may_go_on, devices, records, division,
                workers, schedules,
            )  # fmt: skip
            results[name] = result
            left -= result.timed
            if records is not None:
                records.add_log(result.log(records))
            if result.steps and clock() < end:
                network.attempt({**network.kept, name: result.steps})
            watch(result)
        if not only:
            search_first_tiles(network, left, lambda: clock() < end)
    except KeyboardInterrupt:
        stopped = "interrupted; the same command continues"
    except JobError as problem:  # no device is left
        stopped = f"{problem}; the same command continues"
    order = dict.fromkeys(row["name"] for row in module.report["layers"])
    return SearchedNetwork(
        network.before, network.cycles, module.report["bound"],
        tuple(results[name] for name in order if name in results), network.kept,
        tuple(network.chains), tuple(network.first_tiles), lowest, stopped,
    )  # fmt: skip


def _shares(module: Module, only: Collection[str]) -> Iterator[tuple[str, float]]:
    """Yield each layer with its share of the remaining budget, the farthest from its bound first.

    The last layer may use all that remains.
    """
    gaps: dict[str, int] = {}
    for row in module.report["layers"]:
        gap = max(1, row["cycles"] - row["bound"])
        if not only or row["name"] in only:
            gaps[row["name"]] = max(gap, gaps.get(row["name"], 0))
    left = sum(gaps.values())
    for name, gap in sorted(gaps.items(), key=lambda one: -one[1]):
        yield name, gap / left
        left -= gap
