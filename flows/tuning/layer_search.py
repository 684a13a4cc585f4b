"""Certified search of accelerator schedules: exact cycles, the likeliest candidates first.

A layer alone takes its candidates in the order of their estimates, and ends with a proof: either
all legal candidates were timed, or the best one is so near the lower bound that none can gain more.
What is faster alone need not be faster in the network, where layers overlap. So the last word is
the exact time of the whole network. With devices, their cycles take the place of the exact ones.
Before that, other divisions of the network into layers are tried, see `chain_search`.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...compiler.accelerator.search import Candidate
from ...compiler.module import Module
from ...compiler.scheduling.candidate_timer import NEVER
from ...errors import UsageError
from ...wording import counted
from .chain_search import TriedChange, least_cycles, search_chains
from .layer_bench import LayerBench
from .layer_trials import LayerTrials
from .run_log import LoggedTrial

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

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "layer": self.name,
            "default_cycles": self.default_cycles,
            "cycles": self.cycles,
            "bound": self.bound,
            "gap": self.gap,
            "space": self.space,
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
    """

    before: int
    cycles: int
    bound: int
    layers: tuple[SearchedLayer, ...]
    schedules: Mapping[str, str]
    chains: tuple[TriedChange, ...] = ()
    least: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "cycles_before": self.before,
            "cycles": self.cycles,
            "bound": self.bound,
            "bound_of_all_divisions": self.least,
            "chains": [asdict(one) for one in self.chains],
            "layers": [one.to_json() for one in self.layers],
            "schedules": dict(self.schedules),
        }


def search_layer(
    module: Module,
    name: str,
    trials: int,
    may_go_on: Callable[[], bool] = lambda: True,
    devices: LayerTrials | None = None,
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
    """
    try:
        bench = LayerBench(module, name)
    except UsageError as problem:
        return SearchedLayer(name, 0, 0, 0, skipped=str(problem))
    default, bound = bench.gap.cycles, bench.gap.bound
    candidates = bench.candidates()
    if devices is not None:
        (trial,) = devices.cycles(bench, [bench.default])
        if trial.cycles is None:
            return SearchedLayer(name, 0, 0, 0, skipped=f"{trial.verdict}: {trial.text}")
        default = trial.cycles
    near = 0.0 if devices is not None and devices.on_board else NEAR * bound
    best, chosen, timed = default, None, 0
    log: list[LoggedTrial] = []
    while timed < len(candidates) and best > near and timed < trials and may_go_on():
        batch = candidates[timed : min(trials, timed + (devices.width if devices else 1))]
        timed += len(batch)
        for candidate, cycles in zip(batch, _cycles(bench, batch, devices), strict=True):
            log.append(_logged(candidate, cycles, default))
            if cycles is not None and cycles < best:
                best, chosen = cycles, candidate
    return SearchedLayer(
        name, default, best, bound, len(candidates), timed,
        steps=bench.steps(chosen) if chosen else "",
        skipped="" if candidates else "it has several kernels",
        on_board=devices is not None and devices.on_board,
        trials=tuple(log),
    )  # fmt: skip


def _logged(candidate: Candidate, cycles: int | None, default: int) -> LoggedTrial:
    """Return a trial of a layer; its prediction is the estimate by which candidates are ordered."""
    choice: dict[str, int | str] = {
        axis if len(candidate.tiles) == 1 else f"{axis}{number}": extent
        for number, tile in enumerate(candidate.tiles, 1)
        for axis, extent in tile
    }
    choice |= {"outer": "channels" if candidate.channels_outer else "pixels"}
    choice |= {"depth": candidate.depth, "ahead": "yes" if candidate.ahead else "no"}
    ratio = None if cycles is None or cycles >= NEVER else cycles / default
    verdict = "ok" if ratio else "failed" if cycles is None else "no program"
    return LoggedTrial(choice, verdict, ratio, predicted=candidate.estimated_cycles / default)


def _cycles(
    bench: LayerBench, batch: Sequence[Candidate], devices: LayerTrials | None
) -> list[int | None]:
    """Return the cycles of candidates; None for one that failed."""
    if devices is None:
        return [bench.cycles(one) for one in batch]
    return [one.cycles for one in devices.cycles(bench, list(map(bench.steps, batch)))]


def search_network(
    module: Module,
    compile_with: Callable[[Mapping[str, str]], Module],
    *,
    trials: int = 1 << 30,
    seconds: float | None = None,
    devices: LayerTrials | None = None,
    watch: Callable[[SearchedLayer], None] = lambda result: None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchedNetwork:
    """Search divisions into layers, then all layers, those farthest from their bound first.

    Each layer gets a share of the remaining budget in proportion to its distance from the bound.
    Faster schedules are tried in the network at once, so that a run that ends early uses them too.

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

    Raises
    ------
    DeviceError
        If the devices cannot run the network.
    """
    end, left = math.inf if seconds is None else clock() + seconds, trials
    results: dict[str, SearchedLayer] = {}

    def cycles_of(compiled: Module) -> int:
        return devices.network_cycles(compiled) if devices else compiled.report["cycles"]

    before = cycles_of(module)
    started = clock()

    def may_divide() -> bool:
        return clock() < started + CHAINS_SHARE * (end - started)

    share = math.ceil(CHAINS_SHARE * left)
    lowest = least_cycles(module)
    module, kept, chains = search_chains(module, before, compile_with, cycles_of, share, may_divide)
    left -= len(chains)
    least = min([before, *(change.cycles for change in chains)])
    for name, share in _shares(module):
        now = clock()
        until = now + share * (end - now)

        def may_go_on(until: float = until) -> bool:
            return clock() < until

        result = search_layer(module, name, math.ceil(share * left), may_go_on, devices)
        results[name] = result
        left -= result.timed
        if result.steps and clock() < end:
            cycles = cycles_of(compile_with({**kept, name: result.steps}))
            if cycles < least:
                least, kept[name] = cycles, result.steps
        watch(result)
    order = [row["name"] for row in module.report["layers"]]
    layers = tuple(results[name] for name in dict.fromkeys(order))
    bound = module.report["bound"]
    return SearchedNetwork(before, least, bound, layers, kept, chains, lowest)


def _shares(module: Module) -> Iterator[tuple[str, float]]:
    """Yield each layer with its share of the remaining budget, the farthest from its bound first.

    The last layer may use all that remains.
    """
    gaps: dict[str, int] = {}
    for row in module.report["layers"]:
        gap = max(1, row["cycles"] - row["bound"])
        gaps[row["name"]] = max(gap, gaps.get(row["name"], 0))
    left = sum(gaps.values())
    for name, gap in sorted(gaps.items(), key=lambda one: -one[1]):
        yield name, gap / left
        left -= gap
