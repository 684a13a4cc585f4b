"""Two workers of a sweep against one: throughput, and what handing out work takes.

The wall-clock time shows the throughput only where nothing else runs. Three other figures hold on
a busy computer too. The processor time of the workers for a machine tells whether two of them do
more work than one. The share of the time in which a worker had nothing to do tells whether they
wait for work or for each other. And this process, which has the decisions and the database, takes
processor time of its own.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...atomic_write import write_output
from ...compiler.frontend import import_model
from ..sweep import Database, Space, SweepNetwork, sweep
from ..sweep.evaluators import SIM
from ..sweep.executors import Done, Job
from ..sweep.local_workers import LocalWorkers

VARY = {
    "lanes": "8x8,8x16,16x8,16x16",
    "act_depth": "512..2048",
    "acc_depth": "256,512",
    "bus_bits": "64,128",
}
"""A space of 48 machines that take about equally long; all are compiled."""

GOAL = 1.8
"""Throughput of two workers, relative to one."""

GOAL_OVERHEAD = 0.05
"""Greatest share of this process in all processor time."""


class Observed:
    """Workers, with the time that they are busy.

    Attributes
    ----------
    jobs
        Number of compiled machines.
    busy_s, processor_s
        Seconds in which workers had a batch, in total, and the processor time of these batches.
    wall_s
        Seconds from the first batch to the end of the last one.
    """

    def __init__(self, workers: LocalWorkers) -> None:
        self._observed, self.workers = workers, workers.workers
        self.jobs, self.busy_s, self.wall_s, self._begun = 0, 0.0, 0.0, 0.0
        self.processor_s = 0.0

    def submit(self, jobs: Sequence[Job]) -> Any:
        """Start a batch."""
        if jobs[0].evaluator == SIM:
            self._begun = self._begun or time.perf_counter()
            self.jobs += len(jobs)
        return self._observed.submit(jobs)

    def wait(self, handles: Iterable[Any]) -> list[tuple[Any, Done]]:
        """Wait for a batch."""
        found = self._observed.wait(handles)
        if self._begun:
            self.busy_s += sum(done.seconds for _, done in found)
            self.processor_s += sum(done.processor_s for _, done in found)
            self.wall_s = time.perf_counter() - self._begun
        return found

    def close(self) -> None:
        """Stop the workers."""
        self._observed.close()


def measure(model: Path, workers: int) -> dict[str, float]:
    """Compile every machine of `VARY` with new workers and an empty database.

    Returns
    -------
    dict
        `workers`, the compiled `machines`, seconds of processor time of the workers (`workers_s`)
        and of this process (`own_s`), wall-clock seconds `wall_s`, and `idle`:
        the share of the workers' time in which they had no batch.

    Raises
    ------
    CompileError
        When the model has no layer for the accelerator.
    """
    network = SweepNetwork(model.stem, import_model(model))
    with TemporaryDirectory() as folder, Database(Path(folder) / "sweep.db") as database:
        observed = Observed(LocalWorkers([network.graph], workers))
        try:
            own = time.process_time()
            sweep([network], Space.of(VARY), database, executor=observed, exhaustive=True)
            own = time.process_time() - own
        finally:
            observed.close()
    return {
        "workers": workers,
        "machines": observed.jobs,
        "workers_s": observed.processor_s,
        "own_s": own,
        "wall_s": observed.wall_s,
        "idle": 1 - observed.busy_s / (workers * observed.wall_s),
    }


def throughput(one: dict[str, float], two: dict[str, float]) -> float:
    """Return the throughput of `two["workers"]` workers on free cores, relative to one worker."""
    return (
        (two["workers"] * (1 - two["idle"]) * two["machines"] / two["workers_s"])
        / (one["workers"] * (1 - one["idle"]) * one["machines"] / one["workers_s"])
    )  # fmt: skip


def overhead(row: dict[str, float]) -> float:
    """Return the share of the process that hands out work in all processor time."""
    return row["own_s"] / (row["own_s"] + row["workers_s"])


def sentences(one: dict[str, float], two: dict[str, float]) -> str:
    """Return the figures as text, compared with the goals."""
    lines = [
        f"{row['workers']} workers: {row['machines']} machines in {row['wall_s']:.0f} s; workers "
        f"{row['workers_s'] / row['machines']:.2f} s of processor time a machine, without work "
        f"{row['idle']:.1%} of the time; this process {overhead(row):.1%} of all processor time "
        f"(goal: {GOAL_OVERHEAD:.0%})"
        for row in (one, two)
    ]
    wall = (two["machines"] / two["wall_s"]) / (one["machines"] / one["wall_s"])
    last = (
        f"throughput of {two['workers']} workers: {throughput(one, two):.2f} times that of one on "
        f"free cores, {wall:.2f} times by the clock here (goal: {GOAL})"
    )
    return "\n".join([*lines, last])


def main(arguments: Sequence[str] | None = None) -> int:
    """Time a sweep with one worker and with several."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.sweep_workers", description=__doc__
    )
    parser.add_argument("model", type=Path, help="a quantised network")
    parser.add_argument("--workers", type=int, default=2, help="compared with one; default: 2")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args(arguments)
    rows = [measure(options.model, workers) for workers in (1, options.workers)]
    print(sentences(*rows))
    if options.json:
        text = json.dumps(rows, indent=2) + "\n"
        write_output(options.json, text, f"`--json {options.json}`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
