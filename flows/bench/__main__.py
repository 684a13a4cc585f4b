"""The figures of docs/reference/figures.md: utilisation of ResNet-18's layers, and speeds.

One run measures everything. Speeds are ratios or rates on this machine, not limits. The functional
simulators, compiled and in NumPy, are compared without the timing model.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ...atomic_write import write_output
from ...compiler.graph import evaluate
from ...compiler.module import Segment
from ...compiler.pipeline import compile_module
from ...isa.configuration import Configuration
from ...isa.encoding import encode_program
from ...isa.semantics import Machine
from ...isa.settings import load_configuration
from ...runtime.device import Device, Result
from ...runtime.devices import open_device
from ...sim.functional import FunctionalMachine
from ...sim.native_functional import NativeMachine
from ...sim.timing import ExactMeasure
from .resnet18_layers import RESNET18, ConvolutionShape, layer_graph


def main(arguments: list[str] | None = None) -> int:
    """Measure ResNet-18's layers on RTL and simulators, and print a table."""
    parser = argparse.ArgumentParser(prog="tilewright-bench", description=__doc__)
    parser.add_argument("--config", default="16x16", help="preset or JSON file")
    parser.add_argument("--layers", nargs="*", help="some of C2 to C11; all by default")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    configuration = load_configuration(options.config)
    console = Console(stderr=True)
    chosen = [shape for shape in RESNET18 if not options.layers or shape.name in options.layers]
    rows = []
    with open_device("rtl", configuration) as rtl, open_device("sim", configuration) as sim:
        for row in measure(chosen, configuration, rtl, sim):
            console.print(f"{row['layer']}: {row['cycles']} cycles, {row['utilisation']:.1%}")
            rows.append(row)
    Console(width=120).print(table(rows, configuration))
    if options.json:
        text = json.dumps(rows, indent=2) + "\n"
        write_output(options.json, text, f"`--json {options.json}`")
    wrong = [row["layer"] for row in rows if not row["equal"]]
    if wrong:
        print(f"bench: outputs differ from the reference in {', '.join(wrong)}", file=sys.stderr)
        return 1
    print("bench: every output equals the integer reference")
    return 0


def measure(
    shapes: list[ConvolutionShape], configuration: Configuration, rtl: Device, sim: Device
) -> Iterator[dict]:
    """Compile and run each layer on the RTL and on `sim`, side by side."""
    for shape in shapes:
        graph = layer_graph(shape)
        started = time.perf_counter()
        (segment,) = compile_module(graph, configuration, measure=ExactMeasure()).segments
        compiled = time.perf_counter() - started
        generator = np.random.default_rng(1)
        x = generator.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
        expected = evaluate(graph, {"x": x})["out"]
        exact, rtl_seconds, out = _run(rtl, segment, x)
        found, sim_seconds, _ = _run(sim, segment, x)
        assert exact.cycles is not None
        assert found.cycles is not None
        ideal = shape.macs / (configuration.lanes_in * configuration.lanes_out)
        yield {
            "layer": shape.name,
            "times": shape.times,
            "ideal_cycles": ideal,
            "cycles": exact.cycles,
            "model_error_cycles": found.cycles - exact.cycles,
            "utilisation": ideal / exact.cycles,
            "compile_s": compiled,
            "rtl_hz": exact.cycles / rtl_seconds,
            "sim_speedup": rtl_seconds / sim_seconds,
            "functional_s": functional_seconds(NativeMachine, segment, configuration, x),
            "numpy_s": functional_seconds(FunctionalMachine, segment, configuration, x),
            "equal": bool(np.array_equal(out, expected)),
        }


def _run(device: Device, segment: Segment, x: np.ndarray) -> tuple[Result, float, np.ndarray]:
    image = segment.image({segment.inputs[0].name: x})
    started = time.perf_counter()
    result = device.run(segment.program, image)
    seconds = time.perf_counter() - started
    return result, seconds, segment.outputs[0].read(image)


def functional_seconds(
    kind: type[Machine], segment: Segment, configuration: Configuration, x: np.ndarray
) -> float:
    """Seconds to execute a segment that has been executed before; best of 3."""
    words = encode_program(segment.program, configuration)
    seconds = []
    for _ in range(4):
        machine = kind(configuration, segment.image({segment.inputs[0].name: x}))
        started = time.perf_counter()
        if isinstance(machine, NativeMachine):
            machine.run_words(words)
        else:
            machine.run(segment.program)
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


def table(rows: list[dict], configuration: Configuration) -> Table:
    """Layers, and their sum weighted by their number in ResNet-18."""
    out = Table(title=f"ResNet-18 convolutions on `{configuration.name}`, RTL")
    for name in (
        "layer",
        "times",
        "cycles",
        "of peak",
        "model error",
        "compile s",
        "RTL kHz",
        "sim faster",
        "values ms",
        "than NumPy",
    ):
        out.add_column(name, justify="right")
    for row in rows:
        out.add_row(
            row["layer"],
            str(row["times"]),
            f"{row['cycles']:,}",
            f"{row['utilisation']:.1%}",
            f"{row['model_error_cycles']}",
            f"{row['compile_s']:.1f}",
            f"{row['rtl_hz'] / 1e3:,.0f}",
            f"{row['sim_speedup']:.0f}x",
            f"{row['functional_s'] * 1e3:.2f}",
            f"{row['numpy_s'] / row['functional_s']:.0f}x",
        )
    cycles = sum(row["cycles"] * row["times"] for row in rows)
    ideal = sum(row["ideal_cycles"] * row["times"] for row in rows)
    functional = sum(row["functional_s"] * row["times"] for row in rows)
    slower = sum(row["numpy_s"] * row["times"] for row in rows) / functional
    out.add_section()
    totals = [f"{cycles:,}", f"{ideal / cycles:.1%}", "", "", "", ""]
    out.add_row("all", "", *totals, f"{functional * 1e3:.2f}", f"{slower:.0f}x")
    return out


if __name__ == "__main__":
    sys.exit(main())
