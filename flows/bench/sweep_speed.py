"""Speed of `tilewright sweep`: 216 machines and a whole network, with nothing known before.

The goal is ResNet-18 at 224x224 within five minutes on two cores. The time includes everything: the
start of the workers, the import of the model, and the compilation of the timing model. Processor
time is the one to compare on a busy computer. With fewer `--points`, machines are drawn at random,
and the time of all is estimated from theirs. Before the sweep, schedules of single layers of
ResNet-18 are lowered and timed in this process.
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
from statistics import median
from tempfile import TemporaryDirectory

from ...atomic_write import write_output
from ...compiler.accelerator.kernels import build_kernel
from ...compiler.main_memory.segment_layout import lay_out_segment
from ...compiler.options import DEFAULT_OPTIONS
from ...compiler.scheduling.candidate_timer import CandidateTimer
from ...compiler.scheduling.kernel_programs import KernelPrograms
from ...isa.configuration import DEFAULT, Configuration
from ...sim.timing import ExactMeasure
from ..sweep import Space
from .resnet18_layers import RESNET18, ConvolutionShape, layer_graph

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

CANDIDATES = 8
"""Likely schedules of a layer that are timed."""


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
    row = {"candidate_ms": candidate_ms(DEFAULT)}
    row |= measure(options.model, options.workers, options.points)
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


def candidate_ms(
    configuration: Configuration, shapes: Sequence[ConvolutionShape] = RESNET18
) -> float:
    """Return the median processor time, in ms, to lower and time a schedule of a layer."""
    measure, times = ExactMeasure(), []
    for shape in shapes:
        graph = layer_graph(shape)
        layout = lay_out_segment(graph, graph.nodes, configuration, DEFAULT_OPTIONS)
        programs = KernelPrograms(*layout.placements.apart(), configuration)
        timer = CandidateTimer(programs, configuration, measure)
        kernel = build_kernel(graph.nodes[0], graph, configuration)
        for candidate in timer.likely(kernel, DEFAULT_OPTIONS, CANDIDATES):
            started = time.process_time()
            timer.cycles((kernel, candidate))
            times.append(1e3 * (time.process_time() - started))
    return median(times)


def sentence(row: dict[str, float]) -> str:
    """Return the figures of `measure` and `candidate_ms` as text, compared with the goal."""
    compiled = max(1, row["compiled"])
    whole_s = row["wall_s"] / compiled * row["machines"]
    return (
        f"sweep: {row['compiled']} machines with {row['workers']} workers: {row['wall_s']:.0f} s, "
        f"processor time {row['processor_s'] / compiled:.2f} s a machine; all {row['machines']} "
        f"take at most {whole_s:.0f} s at this speed (goal: {GOAL_S:.0f} s); a schedule of "
        f"one layer of ResNet-18 is lowered and timed in {row['candidate_ms']:.1f} ms"
    )


def _processor_s() -> float:
    """Return the processor time of all finished child processes, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
