"""Tuners compared: how many trials each needs to come within 1 % of the best of a whole space.

Every schedule of some kernels is built, checked and timed once, and recorded, so an interrupted run
continues. Then each tuner is replayed on the recorded times, with several seeds. With transfer, the
model of `xgboost` has seen the records of all other kernels here before it starts. Besides, the
best of its first five predictions is compared with the best of the space: for unseen kernels, and
for kernels of an unseen machine, of which it knows the other machines alone.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...compiler.cpu import Convolution, CpuTarget, MatrixProduct, host, real_epilogue
from ...errors import UsageError
from ..cli.json_output import check_json, write_json
from ..cli.main import guarded
from ..sweep.records import Database
from ..tuning.kernel_records import KernelRecords
from ..tuning.machines import CpuMachine
from ..tuning.measuring import ProcessMeasurer
from ..tuning.outcome import TrialOutcome
from ..tuning.ranking import History, RankingTuner, TriedTask
from ..tuning.tasks import KernelTask
from ..tuning.tuners import TUNERS, open_tuner
from .cpu_kernels import BYTES

NEAR = 1.01
"""A trial has found the best if it takes at most this many times as long."""

FIRST = 5
"""Predictions of which the best one is compared with the best of the space."""

CHUNK = 32
"""Candidates that are built before they are timed."""

PADS = (1, 1, 1, 1)


def tasks(target: CpuTarget, threads: int) -> Iterator[KernelTask]:
    """Yield the kernels: layers of ResNet-18, MobileNetV2 and a transformer, some of them cut."""
    relu, in_bytes = real_epilogue("relu"), dict[str, Any](BYTES)
    kernels: dict[str, Convolution | MatrixProduct] = {
        "resnet 3x3": Convolution(1, 14, 14, 128, 128, (3, 3), pads=PADS, epilogue=relu),
        "resnet stride": Convolution(1, 28, 28, 64, 128, (3, 3), (2, 2), PADS, epilogue=relu),
        "resnet last": Convolution(
            1, 7, 7, 128, 128, (3, 3), pads=PADS, winograd=False, epilogue=relu
        ),
        "resnet bytes": Convolution(
            1, 14, 14, 128, 128, (3, 3), pads=PADS, narrow=True, **in_bytes
        ),
        "depthwise": Convolution(1, 28, 28, 192, 192, (3, 3), pads=PADS, groups=192),
        "depthwise stride": Convolution(1, 14, 14, 96, 96, (3, 3), (2, 2), PADS, groups=96),
    }
    for name, product in kernels.items():
        yield KernelTask((name,), product, CpuMachine(target, threads))


def exhausted(task: KernelTask, records: KernelRecords) -> list[TrialOutcome]:
    """Return the outcomes of all points, in the order of the space; missing ones are measured."""
    points, known = task.space().points, records.known(task)
    missing = [point for point in points if point not in known]
    measurer = ProcessMeasurer()
    try:
        for first in range(0, len(missing), CHUNK):
            chunk = missing[first : first + CHUNK]
            for outcome in measurer.measure(task.setting(0), chunk, ()):
                records.add(task, outcome, {"tuner": "all", "seed": 0})
                known[outcome.choice] = outcome
            print(f"{task.title}: {first + len(chunk)} of {len(missing)}", file=sys.stderr)
    finally:
        measurer.close()
    return [known[point] for point in points]


def trials_of(
    tuner: str, task: KernelTask, outcomes: list[TrialOutcome], seed: int, history: History
) -> int:
    """Return the number of trials until a tuner has found a schedule as good as the best."""
    ratios = [outcome.ratio for outcome in outcomes]
    best = NEAR * min(ratio for ratio in ratios if ratio is not None)
    method, count = open_tuner(tuner, task, task.space(), seed, history), 0
    while points := method.propose(8 if count else 1):  # the default is first, as in `tune`
        for point in points:
            ratio = ratios[point]
            count += 1
            if ratio is not None and ratio <= best:
                return count
            method.learn(point, ratio)
    raise AssertionError("a tuner proposes every point")


def excess_of(task: KernelTask, outcomes: list[TrialOutcome], seed: int, history: History) -> float:
    """Return by which share the best of a model's first predictions is slower than the best.

    Nothing of the space is known to the model; a candidate without a time has no part in it.
    """
    points = range(len(outcomes))
    model = RankingTuner([task.features(each.choice) for each in outcomes], seed, history)
    model.propose(1)  # the default, which needs no model
    model.propose(1)
    first = sorted(points, key=lambda point: -(model.score(point) or 0.0))[:FIRST]
    ratios = [outcome.ratio or math.inf for outcome in outcomes]
    return min(ratios[point] for point in first) / min(ratios) - 1


def main(arguments: list[str] | None = None) -> int:
    """Exhaust the spaces, and replay the tuners."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.kernel_tuners", description=__doc__
    )
    parser.add_argument("--database", type=Path, default=Path("build/kernel_tuners.db"))
    parser.add_argument(
        "--level", action="append", help="may be repeated, for several machines; default: the best"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="kernels whose names contain this")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="stdout without FILE")
    options = parser.parse_args(arguments)

    def call() -> None:
        check_json(options.json)
        options.database.parent.mkdir(parents=True, exist_ok=True)
        found = {}
        with Database(options.database) as database:
            records = KernelRecords(database)
            for level in options.level or (None,):
                for task in tasks(host(level), options.threads):
                    if options.only in task.title:
                        found[task] = exhausted(task, records)
        if not found:
            raise UsageError(f"`--only {options.only}`: no kernel's name contains it")
        rows = [row_of(task, found, options.seeds) for task in found]
        if options.json:
            write_json(options.json, {"rows": rows})
        if options.json != "-":
            for row in rows:
                counts = ", ".join(f"{name} {count:g}" for name, count in row["trials"].items())
                best = f"{row['space']} schedules, best {row['best']:.3f} of the default"
                excess = "".join(
                    f"; unseen {name}: first {FIRST} within {share:.1%}"
                    for name, share in row["excess"].items()
                )
                print(f"{row['kernel']}, {row['machine']}: {best}: {counts}{excess}")
            for name in rows[0]["trials"]:
                shares = [row["trials"][name] / row["trials"]["random"] for row in rows]
                print(f"{name}: {statistics.median(shares):.0%} of random's trials in the median")

    return guarded(call)


def row_of(task: KernelTask, found: dict[KernelTask, list[TrialOutcome]], seeds: int) -> dict:
    """Return the trials of each tuner on one kernel, medians over seeds."""
    outcomes = found[task]
    tried = {
        one: TriedTask([one.features(each.choice) for each in all_], [each.ratio for each in all_])
        for one, all_ in found.items()
    }
    others = [each for one, each in tried.items() if one.product != task.product]
    elsewhere = [each for one, each in tried.items() if one.machine != task.machine]
    ratios = [outcome.ratio for outcome in outcomes if outcome.ratio is not None]
    methods: dict[str, tuple[str, History]] = {name: (name, ()) for name in TUNERS}
    methods["xgboost with transfer"] = ("xgboost", others)
    return {
        "kernel": task.title,
        "machine": task.machine.title,
        "space": len(outcomes),
        "failed": len(outcomes) - len(ratios),
        "best": min(ratios),
        "excess": {
            name: statistics.median(
                excess_of(task, outcomes, seed, history) for seed in range(seeds)
            )
            for name, history in (("kernel", others), ("machine", elsewhere))
            if history
        },
        "trials": {
            title: statistics.median(
                trials_of(name, task, outcomes, seed, history) for seed in range(seeds)
            )
            for title, (name, history) in methods.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
