"""Whole networks on the host's kernels compared with onnxruntime, in one run on the same threads.

Both run in turns, and their median times are compared. `--openvino` adds OpenVINO, alone in a
process after them. On one thread, the time is processor time, so other processes do not count. On
several threads it is wall-clock time, which is meaningful only on an idle machine. Quantised
networks also run on the host.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ...compiler.frontend import import_model
from ...compiler.graph import Graph
from ...compiler.host import Evaluate, HostStep, RunKernel
from ...compiler.pipeline import compile_module
from ...compiler.placement import HOST, Placement
from ...errors import UsageError
from ...isa.settings import load_configuration
from ...runtime import Session, open_device
from ...wording import counted
from ..cli.json_output import write_json
from ..cli.main import guarded
from ..cli.progress import progress_bar
from .onnxruntime_peer import peer_session
from .openvino_peer import check_openvino, openvino_seconds

Run = Callable[[], object]

TURNS = 30
"""Turns of each contender."""

TURN_S = 0.05
"""Seconds per turn: long enough to warm up caches and sleeping threads."""


def main(arguments: list[str] | None = None) -> int:
    """Time networks against onnxruntime."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.cpu_networks", description=__doc__
    )
    parser.add_argument("models", nargs="+", type=Path, help="ONNX models")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--turns", type=int, default=TURNS, help=f"turns (default {TURNS})")
    parser.add_argument("--steps", type=int, default=10, help="slowest steps shown (default 10)")
    parser.add_argument("--openvino", action="store_true", help="measure OpenVINO too")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    options = parser.parse_args(arguments)

    def call() -> None:
        check(options)
        console, rows = Console(width=100), []
        for model in options.models:
            for threads in options.threads:
                with progress_bar() as advance:
                    advance(f"{model.stem}, {threads} threads", 0, None)
                    row = measure(model, threads, options.turns, openvino=options.openvino)
                rows.append(row)
                if options.steps:
                    console.print(steps_table(row, options.steps))
        console.print(table(rows))
        if options.json:
            write_json(options.json, rows)

    return guarded(call)


def check(options: argparse.Namespace) -> None:
    """Reject arguments that would otherwise fail after other networks have been measured.

    Raises
    ------
    UsageError
        For numbers below one, or a missing model.
    ToolError
        When OpenVINO is wanted and missing.
    """
    if options.openvino:
        check_openvino()
    for name, numbers in (("threads", options.threads), ("turns", [options.turns])):
        if not numbers or min(numbers) < 1:
            given = " ".join(map(str, numbers))
            raise UsageError(f"`--{name} {given}`: expected numbers of 1 or more; correct it")
    for model in options.models:
        if not model.is_file():
            raise UsageError(f"model `{model}`: expected a file, got none; check the path")


def measure(model: Path, threads: int, turns: int = TURNS, *, openvino: bool = False) -> dict:
    """Return the median seconds of all contenders for a run, and the minimum of each of our steps.

    Parameters
    ----------
    model
        An ONNX file.
    threads
        Threads of each contender.
    turns
        Turns of each contender.
    openvino
        Whether OpenVINO is one of them.

    Returns
    -------
    Figures by name; `largest_difference` is the largest difference of the outputs, relative to
    their largest magnitude.
    """
    graph = import_model(model)
    inputs = random_inputs(graph)
    configuration = load_configuration("16x16")
    module = compile_module(graph, configuration, placement=Placement(HOST))
    steps: list[Mapping[str, float]] = []
    with open_device("sim", configuration) as device:
        session = Session(module, device, threads=threads)
        outputs = {name: x.copy() for name, x in session.run(inputs).outputs.items()}
        peer = peer_run(model, inputs, threads)

        def ours() -> None:
            steps.append(session.run(inputs).host.seconds)

        mine, theirs = in_turns((ours, peer), turns, threads)
        events = session.host.plan.events
    kernels = {one.kernel.output: one.kernel for one in events if isinstance(one, RunKernel)}
    expected = peer()
    more = {}
    if openvino:
        seconds = openvino_seconds(model, inputs, threads, turns, TURN_S)
        more = {"openvino_s": seconds, "openvino_ratio": seconds / mine}
    return more | {
        "name": model.stem,
        "threads": threads,
        "kernels": len(kernels),
        "numpy": sum(isinstance(one, Evaluate) for one in events),
        "ours_s": mine,
        "peer_s": theirs,
        "ratio": theirs / mine,
        "largest_difference": largest_difference(list(outputs.values()), expected),
        "steps": list(steps_of(graph, kernels, steps)),
    }


def random_inputs(graph: Graph) -> dict[str, np.ndarray]:
    """Random inputs: normally distributed, or small integers for integer types."""
    random = np.random.default_rng(0)
    found = {}
    for value in graph.inputs:
        real = value.type.dtype.startswith("float")
        numbers = random.standard_normal(value.type.shape)
        found[value.name] = (numbers if real else np.abs(numbers)).astype(value.type.dtype)
    return found


def peer_run(model: Path, inputs: dict[str, np.ndarray], threads: int) -> Callable[[], list]:
    """onnxruntime's session for a model, ready to run.

    Raises
    ------
    ToolError
        When onnxruntime is missing.
    """
    session = peer_session(str(model), threads)
    return lambda: list(session.run(None, inputs))


def in_turns(contenders: tuple[Run, Run], turns: int, threads: int) -> tuple[float, float]:
    """Median seconds of two contenders that run in turns."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    times: tuple[list[float], list[float]] = ([], [])
    began = clock()
    for run in contenders:
        run()
    repeats = max(1, round(2 * TURN_S / (clock() - began)))
    for _ in range(turns):
        for run, found in zip(contenders, times, strict=True):
            for _ in range(repeats):
                before = clock()
                run()
                found.append(clock() - before)
    return float(np.median(times[0])), float(np.median(times[1]))


def largest_difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """Largest difference of all outputs, relative to their largest magnitude."""
    found = np.float64(0)
    for mine, wanted in zip(ours, theirs, strict=True):
        size = max(float(np.abs(wanted).max(initial=0)), 1e-30)
        apart = np.abs(mine.astype(np.float64) - wanted)
        found = np.maximum(found, apart.max(initial=0) / size)  # a NaN stays one
    return float(found)


def steps_of(
    graph: Graph, kernels: dict[str, HostStep], runs: Sequence[Mapping[str, float]]
) -> Iterator[dict]:
    """Minimum wall-clock time of each step, the slowest first."""
    least = {name: min(run[name] for run in runs) for name in runs[0]}
    for name in sorted(least, key=least.__getitem__, reverse=True):
        kernel, node = kernels.get(name), graph.producer(name)
        made_by = getattr(kernel, "description", kernel)
        yield {
            "node": node.name if node else name,
            "kind": type(made_by).__name__ if made_by else f"numpy {node and node.op}",
            "shape": "x".join(map(str, graph.types[name].shape)),
            "seconds": least[name],
            "macs": getattr(made_by, "macs", 0),
        }


def steps_table(row: dict, count: int) -> Table:
    """Our slowest steps; rates count multiplications and additions."""
    total = sum(step["seconds"] for step in row["steps"])
    title = f"{row['name']} on {counted(row['threads'], 'thread')}: slowest steps"
    out = Table(title=title)
    for name in ("last node", "by", "gives", "us", "share", "Gop/s"):
        out.add_column(name, justify="left" if name in ("last node", "by") else "right")
    for step in row["steps"][:count]:
        rate = f"{2e-9 * step['macs'] / step['seconds']:,.0f}" if step["macs"] else ""
        out.add_row(
            step["node"],
            step["kind"],
            step["shape"],
            f"{step['seconds'] * 1e6:,.1f}",
            f"{step['seconds'] / total:.1%}",
            rate,
        )
    return out


def table(rows: list[dict]) -> Table:
    """All networks."""
    out = Table(title="Networks on the host's kernels and on onnxruntime")
    names = (
        "network",
        "threads",
        "kernels",
        "NumPy",
        "ms",
        "onnxruntime ms",
        "ratio",
        "difference",
        *(("OpenVINO ms", "ratio") if any("openvino_s" in row for row in rows) else ()),
    )
    for name in names:
        out.add_column(name, justify="left" if name == "network" else "right")
    for row in rows:
        out.add_row(
            row["name"],
            str(row["threads"]),
            str(row["kernels"]),
            str(row["numpy"]),
            f"{row['ours_s'] * 1e3:,.2f}",
            f"{row['peer_s'] * 1e3:,.2f}",
            f"{row['ratio']:.2f}",
            f"{row['largest_difference']:.1e}",
            *([f"{row['openvino_s'] * 1e3:,.2f}"] if "openvino_s" in row else []),
            *([f"{row['openvino_ratio']:.2f}"] if "openvino_s" in row else []),
        )
    return out


if __name__ == "__main__":
    sys.exit(main())
