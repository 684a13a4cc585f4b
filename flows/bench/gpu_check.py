"""Check every kernel on a GPU against the definition, then measure: products, memory, networks.

The exit code is 0 if all is right, 1 if a result is wrong, and 3 without a GPU.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...atomic_write import write_output
from ...compiler.cpu import MatrixProduct, Requantisation
from ...compiler.frontend import import_model
from ...compiler.graph import Graph
from ...compiler.pipeline import compile_module
from ...compiler.placement import HOST, Placement
from ...errors import DeviceError, ToolError
from ...examples import keywords
from ...isa.configuration import DEFAULT
from ...runtime import Comparison, Session, open_device
from ...runtime.devices import GpuDevice
from ...runtime.gpu import GpuDriver
from ...runtime.gpu.drivers import HARDWARE
from ..conformance.cases import CRASHED, load_cases, run_case
from ..conformance.kernel_cases import KernelRunner
from ..execution.samples import random_samples
from ..sweep.records import Database
from ..tuning.gpu_machine import GpuMachine
from ..tuning.kernel_records import KernelRecords
from ..tuning.measuring import ProcessMeasurer
from ..tuning.tasks import KernelTask
from ..tuning.tune import TuningBudget, tune
from .gpu_products import measure_memory, measure_products, peer

WRONG, NO_GPU = 1, 3
"""Exit codes."""

SIZES = 512, 1024, 2048, 4096, 8192
ELEMENTS = 1 << 28
"""Of float32: 1 GiB, more than the caches of any GPU hold."""

REPEATS = 5
"""Measurements of a network."""

BUDGET_S = 240.0
"""Seconds for operator tests; measurements take 2 to 6 minutes more."""

BYTES = Requantisation("int8", 0).epilogue()
TUNED = (
    MatrixProduct(2048, 2048, 2048, "int8", BYTES), MatrixProduct(512, 512, 512),
    MatrixProduct(64, 4608, 512, "int8", BYTES),
)  # fmt: skip
TRIALS = 32
"""Products that are tuned, the last with a deep sum; and trials of each, about a second each."""

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"


def networks() -> Iterator[Graph]:
    """An int8 network and a float one, both in the package."""
    yield import_model(DIGITS)
    yield import_model(keywords.network(keywords.random_weights()).SerializeToString())


def check_operators(device: GpuDevice, match: str, budget_s: float) -> dict[str, Any]:
    """Run ONNX's operator tests; each must end as with the definition."""
    cases, wrong = load_cases(match), []
    began, runner = time.perf_counter(), KernelRunner(device=device)
    counts = Counter(run=0, kernels=0)
    for case in cases:
        if time.perf_counter() - began > budget_s:
            break
        found, meant = run_case(case, runner), run_case(case)
        counts["run"] += 1
        counts["kernels"] += found.kernels
        if found.outcome != meant.outcome or found.outcome == CRASHED:
            wrong.append(f"{case.name}: {found.outcome}: {found.message}")
    return {**counts, "of": len(cases), "wrong": wrong}


def check_network(device: GpuDevice, graph: Graph) -> dict[str, Any]:
    """Compare every step of a network, then time whole runs."""
    module = compile_module(graph, DEFAULT, placement=Placement(HOST))
    inputs = next(iter(random_samples(graph, 1, 0)))
    comparison = Comparison(module)
    session = Session(module, device, keep_all=True)
    for _ in range(4):  # the last two are graphs
        comparison.add(inputs, session.run(inputs))
    session = Session(module, device)
    timed = session.benchmark(inputs, repeat=REPEATS)
    return {
        "network": module.name,
        "right": comparison.equal,
        "difference": comparison.first_difference(),
        "in_numpy": dict(session.host.refused),
        "median_s": timed.median,
        "smallest_s": min(timed.seconds),
    }


def tune_products(driver: GpuDriver, trials: int) -> Iterator[dict[str, Any]]:
    """Tune products, each from its default schedule; nothing is recorded."""
    machine, records = GpuMachine.of(driver), KernelRecords(Database())
    measurer = ProcessMeasurer()
    try:
        for product in TUNED if trials else ():
            task = KernelTask(
                (f"{product.rows}x{product.inner}x{product.columns}",), product, machine
            )
            report = tune([task], measurer, records, "evolutionary", TuningBudget(trials=trials))
            found = report.to_json()["tasks"][0]
            yield {
                "product": f"{task.title} {product.dtype}",
                "right": "wrong result" not in found["verdicts"],
                **{name: found[name] for name in ("space", "trials", "verdicts", "default_s")},
                **{name: found[name] for name in ("ratio", "choice", "log")},
            }
    finally:
        measurer.close()


def main(arguments: list[str] | None = None) -> int:
    """Run everything, print it as it comes, and write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default=GpuDevice.name, help="gpu or gpu:DRIVER")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="of products")
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="of copies")
    parser.add_argument("--match", default="", help="operator tests whose names contain this")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for them")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each product that is tuned")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="JSON with everything")
    given = parser.parse_args(arguments)
    try:
        device = open_device(given.device, DEFAULT)
    except (DeviceError, ToolError) as problem:
        print(f"gpu-check: nothing was run: {problem}", file=sys.stderr)
        return NO_GPU
    assert isinstance(device, GpuDevice)
    with device:
        report = _report(device, given)
    if given.output:
        write_output(given.output, json.dumps(report, indent=2) + "\n", f"`-o {given.output}`")
    wrong = report["operators"]["wrong"] + [
        f"{part}: {row}"
        for part in ("networks", "products", "memory", "tuned")
        for row in report[part]
        if not row["right"]
    ]
    for line in wrong:
        print(f"wrong: {line}")
    print(f"gpu-check: {len(wrong)} wrong, in {report['seconds']:.0f} s")
    return WRONG if wrong else 0


def _report(device: GpuDevice, given: argparse.Namespace) -> dict[str, Any]:
    began, driver, torch = time.perf_counter(), device.driver, peer()
    report: dict[str, Any] = {
        "device": driver.device,
        "driver": driver.name,
        "level": driver.target.level,
        "torch": None if torch is None else str(torch.__version__),
        "inputs": "random: normal floats, uniform bytes",
    }
    print(f"{driver.device}, level {driver.target.level}")
    report["networks"] = [_told(check_network(device, graph)) for graph in networks()]
    report["products"], own = [], driver.target
    # Code for one chip alone is also compared with the code that later chips run.
    for level in dict.fromkeys((own.level, own.level.removesuffix("a"))):
        driver.target = replace(own, level=level)
        rows = ({**row, "level": level} for row in measure_products(driver, given.sizes))
        report["products"] += map(_told, rows)
    driver.target = own
    report["memory"] = [_told(row) for row in measure_memory(driver, given.elements)]
    # In software, times say nothing of a GPU.
    trials = given.trials if driver.name in HARDWARE else 0
    report["tuned"] = [_told(row) for row in tune_products(driver, trials)]
    report["operators"] = _told(check_operators(device, given.match, given.budget))
    report["seconds"] = time.perf_counter() - began
    return report


def _told(row: dict[str, Any]) -> dict[str, Any]:
    print("  ".join(f"{name} {_short(value)}" for name, value in row.items() if value is not None))
    return row


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(len(value)) if isinstance(value, list | dict) else str(value)


if __name__ == "__main__":
    sys.exit(main())
