"""Speed of the searches: the machines that each one compiles to find the front of a known space.

A search is judged by hypervolume: the volume, in logarithms of the objectives, that its front
dominates, as a share of that of all machines. The results are replayed, so many seeds cost little.
For comparison, the order of a plain sweep, which follows the bounds, is judged like a search.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ...atomic_write import write_output
from ...compiler.frontend import import_model
from ...isa.settings import memory_text
from ...sim.cache import kept_folder
from ..sweep import Database, Search, Space, SweepNetwork, SweepOutcome, sweep
from ..sweep.evaluators import SIM, graph_digest
from ..sweep.executors import Done, InProcess, Job
from ..sweep.figures import DEFAULT_OBJECTIVES
from ..sweep.pareto import front, hypervolume
from ..sweep.records import RecordKey, configuration_digest
from ..sweep.search import METHODS

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"

VARY = {
    "lanes": "4x4,4x8,8x8,8x16,16x8,16x16",
    "bus_bits": "32..128",
    "act_depth": "128..512",
    "wgt_depth": "128..512",
    "acc_depth": "64,256",
}
"""A space of 324 machines."""

SHARES = (0.025, 0.05, 0.1, 0.15, 0.2, 0.25)
"""Shares of all machines at which the searches are compared."""

GOAL = 0.98
"""Share of the hypervolume that a search should reach."""

MARGIN = 0.1
"""The reference point is worse than all machines by this share of the extent of an objective."""

PLAIN = "plain sweep"
"""The name of the order in which a sweep without a search compiles machines."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay the searches and print how early each finds the front."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.searches", description=__doc__
    )
    parser.add_argument("model", nargs="?", type=Path, default=DIGITS, help="default: digits")
    parser.add_argument("--seeds", type=int, default=10, help="default: 10")
    parser.add_argument("--database", type=Path, help="default: one in the cache folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args(arguments)
    network = SweepNetwork(options.model.stem, import_model(options.model))
    path = options.database or kept_folder("sweeps", "sweep") / "records.db"
    space, console = Space.of(VARY), Console(stderr=True)
    with Database(path) as database:
        console.print(f"{network.name}: every machine of the space, unless it is known already")
        every = sweep([network], space, database, exhaustive=True)
        rows = []
        for method in (PLAIN, *METHODS):
            seeds = range(options.seeds if method != PLAIN else 1)
            curves = [curve(every, database, method, seed) for seed in seeds]
            rows.append({"method": method, **summary(curves, len(every.results))})
            console.print(f"{method}: done")
    Console(width=100).print(table(rows, network.name, every))
    if options.json:
        text = json.dumps(rows, indent=2) + "\n"
        write_output(options.json, text, f"`--json {options.json}`")
    return 0


class Replay(InProcess):
    """Takes all results from a database, and notes the order in which machines are compiled.

    Parameters
    ----------
    database
        Has the results of every machine.
    """

    def __init__(self, networks: Iterable[SweepNetwork], database: Database) -> None:
        graphs = [network.graph for network in networks]
        super().__init__(graphs)
        self.order: list[str] = []
        self._digests, self._database = list(map(graph_digest, graphs)), database

    def wait(self, handles: Iterable[tuple[Job, ...]]) -> list[tuple[tuple[Job, ...], Done]]:
        """Look up the results of the first batch."""
        first = next(iter(handles))
        found = []
        for job in first:
            network, machine = self._digests[job.network], configuration_digest(job.configuration)
            keys = [
                RecordKey(job.evaluator, job.version, network, machine, memory_text(memory))
                for memory in job.memories
            ]
            records = self._database.find(keys)
            found.append([records[key] for key in keys])
            if job.evaluator == SIM:
                self.order.append(machine)
        return [(first, Done(found, 0.0))]


def curve(every: SweepOutcome, database: Database, method: str, seed: int) -> list[float]:
    """Return the share of the hypervolume after each machine that a search compiles.

    Parameters
    ----------
    every
        The exhaustive sweep.
    method
        A method of `search.METHODS`, or `PLAIN`.
    """
    values = {
        configuration_digest(result.point.machine.configuration): np.log(
            [result.figures[name] for name in DEFAULT_OBJECTIVES]
        )
        for result in every.results
        if result.cycles
    }
    table = np.array(list(values.values()))
    failed = np.full(len(DEFAULT_OBJECTIVES), np.inf)
    worst = table.max(axis=0)
    reference = worst + MARGIN * (worst - table.min(axis=0))
    whole = hypervolume(table[front(table)], reference)
    executor = Replay(every.networks, database)
    limit = math.ceil(max(SHARES) * len(every.results))
    search = Search(method, limit, seed) if method != PLAIN else None
    sweep(every.networks, every.space, executor=executor, search=search)
    found = [values.get(machine, failed) for machine in executor.order[:limit]]
    shares = []
    for count in range(1, len(found) + 1):
        some = np.array(found[:count])
        shares.append(hypervolume(some[front(some)], reference) / whole)
    return shares


def summary(curves: Sequence[Sequence[float]], machines: int) -> dict[str, object]:
    """Return the medians of some seeds, and when they reach the goal.

    Parameters
    ----------
    curves
        The share of the hypervolume after each machine, by seed.
    machines
        Number of machines of the space.
    """
    at = [max(1, math.ceil(share * machines)) for share in SHARES]
    medians = [float(np.median([each[min(n, len(each)) - 1] for each in curves])) for n in at]
    needed = sorted(
        next((count for count, share in enumerate(each, 1) if share >= GOAL), math.inf)
        for each in curves
    )
    half = needed[len(needed) // 2]
    return {
        "evaluations": at,
        "hypervolume": medians,
        "goal_median": half if math.isfinite(half) else None,
        "goal_worst": needed[-1] if math.isfinite(needed[-1]) else None,
    }


def table(rows: Sequence[dict], name: str, every: SweepOutcome) -> Table:
    """One row per method."""
    out = Table(title=f"{name}: share of the hypervolume of all {len(every.results)} machines")
    out.add_column("search")
    for count in rows[0]["evaluations"]:
        out.add_column(f"after {count}", justify="right")
    out.add_column(f"{GOAL:.0%} after", justify="right")
    out.add_column("worst seed", justify="right")
    for row in rows:
        shares = (f"{share:.1%}" for share in row["hypervolume"])
        goal = (str(row[key] or "never") for key in ("goal_median", "goal_worst"))
        out.add_row(row["method"], *shares, *goal)
    return out


if __name__ == "__main__":
    sys.exit(main())
