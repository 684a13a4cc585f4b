"""Speed of `tilewright sweep`: 216 machines and a whole network, with nothing known before.

The goal is ResNet-18 at 224x224 within five minutes on two cores. The time includes everything: the
start of the workers, the import of the model, and the compilation of the timing model. Processor
time is the one to compare on a busy computer. With fewer `--points`, machines are drawn at random,
and the time of all is estimated from theirs.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ...atomic_write import write_output
from ..sweep import Space

VARY = {
    "lanes": "8x8,8x16,16x8,16x16",
    "act_depth": "512..2048",
    "wgt_depth": "512..2048",
    "acc_depth": "256..1024",
    "bus_bits": "64,128",
}
"""A space of 216 machines. Bounds rule out few of them, so nearly all are compiled."""

GOAL_S = 300.0
"""Seconds in which all machines should be done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Time one sweep of a model."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.sweep_speed", description=__doc__
    )
    parser.add_argument("model", type=Path, help="for the goal, the ResNet-18 of examples/networks")
    parser.add_argument("--points", type=int, help="machines to compile; default: all")
    parser.add_argument("--workers", type=int, default=2, help="default: 2")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args(arguments)
    row = measure(options.model, options.workers, options.points)
    print(sentence(row))
    if options.json:
        text = json.dumps(row, indent=2) + "\n"
        write_output(options.json, text, f"`--json {options.json}`")
    return 0


def measure(model: Path, workers: int, points: int | None = None) -> dict[str, float]:
    """Sweep with an empty cache in another process.

    Returns
    -------
    dict
        Numbers of `machines` in the space, `compiled` ones and `workers`, the wall-clock time
        `wall_s`, and `processor_s` of all processes, in seconds.

    Raises
    ------
    CalledProcessError
        When the sweep fails.
    """
    command = [sys.executable, "-m", "tilewright.flows.cli.main", "sweep", str(model), "--json"]
    command += ["--workers", str(workers)]
    for name, values in VARY.items():
        command += ["--vary", f"{name}={values}"]
    if points is not None:
        command += ["--search", "random", "--evaluations", str(points)]
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "TILEWRIGHT_CACHE": folder}
        used, started = _processor_s(), time.perf_counter()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        wall_s, processor_s = time.perf_counter() - started, _processor_s() - used
    compiled = sum(bool(point["cycles"]) for point in json.loads(done.stdout)["points"])
    machines = sum(1 for _ in Space.of(VARY).machines())
    return {
        "machines": machines,
        "compiled": compiled,
        "workers": workers,
        "wall_s": wall_s,
        "processor_s": processor_s,
    }


def sentence(row: dict[str, float]) -> str:
    """Return the figures of `measure` as text, compared with the goal."""
    compiled = max(1, row["compiled"])
    whole_s = row["wall_s"] / compiled * row["machines"]
    return (
        f"sweep: {row['compiled']} machines with {row['workers']} workers: {row['wall_s']:.0f} s, "
        f"processor time {row['processor_s'] / compiled:.2f} s a machine; all {row['machines']} "
        f"take at most {whole_s:.0f} s at this speed (goal: {GOAL_S:.0f} s)"
    )


def _processor_s() -> float:
    """Return the processor time of all finished child processes, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
