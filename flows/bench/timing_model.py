"""Speed of the timing model compared with the RTL, in one run: those of docs/reference/figures.md.

Every program is compiled once. The RTL's time excludes building the simulator. The model's time is
given without decoding the program (as in a sweep) and with decoding (as in one run).
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ...atomic_write import write_output
from ...compiler.frontend import import_model
from ...compiler.pipeline import compile_module
from ...isa.configuration import Configuration
from ...isa.encoding import encode_program
from ...isa.instructions import Instruction
from ...isa.memory_model import MemoryModel
from ...isa.settings import load_configuration
from ...sim.rtl import RtlCore
from ...sim.timing import ExactMeasure
from ...sim.timing.definition import Model
from ...sim.timing.native import TimedProgram
from ..verify.programs.random_programs import random_program
from .resnet18_layers import RESNET18, layer_graph

RANDOM_LENGTH = 1500
"""Instructions of the random programs: short ones, with many tokens."""

REPEATS = 15
"""Runs of the model; the median counts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Time programs on the model and the RTL; return 1 if their cycles differ."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.timing_model", description=__doc__
    )
    parser.add_argument("models", nargs="*", type=Path, help="ONNX models besides the layers")
    parser.add_argument("--config", default="16x16", help="preset or file (default 16x16)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args(arguments)
    configuration = load_configuration(options.config)
    console, rows = Console(stderr=True), []
    core = RtlCore(configuration)
    for name, program, image in programs(options.models, configuration):
        row = measure(name, program, image, core)
        console.print(f"{name}: {row['cycles']:,} cycles, {row['speedup']:,.0f}x the RTL")
        rows.append(row)
    core.close()
    Console(width=120).print(table(rows, configuration))
    if options.json:
        text = json.dumps(rows, indent=2) + "\n"
        write_output(options.json, text, f"`--json {options.json}`")
    return 1 if any(row["cycles"] != row["rtl_cycles"] for row in rows) else 0


def programs(
    models: Sequence[Path], configuration: Configuration
) -> Iterator[tuple[str, tuple[Instruction, ...], np.ndarray]]:
    """Name, program and memory image of each measured program."""
    for model in models:
        for segment in compile_module(import_model(model), configuration).segments:
            zeros = {each.name: np.zeros(each.shape, dtype=np.int8) for each in segment.inputs}
            yield model.stem, segment.program, segment.image(zeros)
    for shape in RESNET18:
        graph = layer_graph(shape)
        (segment,) = compile_module(graph, configuration, measure=ExactMeasure()).segments
        x = np.zeros(graph.inputs[0].type.shape, dtype=np.int8)
        yield shape.name, segment.program, segment.image({"x": x})
    for seed in (1, 2):
        yield f"random {seed}", *random_program(configuration, seed, RANDOM_LENGTH)


def measure(
    name: str, program: tuple[Instruction, ...], image: np.ndarray, core: RtlCore
) -> dict[str, Any]:
    """Time one program on the RTL, by the compiled model and by its definition."""
    configuration, memory = core.configuration, MemoryModel()
    code = encode_program(program, configuration)
    began = time.perf_counter()
    run = core.run(code, image.copy(), program)
    rtl_s = time.perf_counter() - began
    timed = TimedProgram(code, configuration)
    cycles, _ = timed.run(memory)
    warm_s = _median(lambda: timed.run(memory))
    cold_s = _median(lambda: TimedProgram(code, configuration).run(memory))
    began = time.perf_counter()
    defined, _ = Model(program, configuration, memory).run()
    definition_s = time.perf_counter() - began
    assert defined == cycles
    return {
        "name": name,
        "instructions": len(program),
        "cycles": cycles,
        "rtl_cycles": run.cycles,
        "rtl_s": rtl_s,
        "model_s": warm_s,
        "model_with_decoding_s": cold_s,
        "definition_s": definition_s,
        "speedup": rtl_s / warm_s,
        "instructions_per_s": len(program) / warm_s,
    }


def _median(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def table(rows: Sequence[dict], configuration: Configuration) -> Table:
    """One row per program, and the means."""
    out = Table(title=f"Timing model and RTL on `{configuration.name}`")
    for name in (
        "program",
        "instructions",
        "cycles",
        "error",
        "RTL s",
        "model us",
        "decoding too",
        "M instr/s",
        "M cycles/s",
        "x RTL",
        "Python k instr/s",
    ):
        out.add_column(name, justify="left" if name == "program" else "right")
    for row in rows:
        out.add_row(
            row["name"],
            f"{row['instructions']:,}",
            f"{row['cycles']:,}",
            f"{row['cycles'] - row['rtl_cycles']}",
            f"{row['rtl_s']:.3f}",
            f"{row['model_s'] * 1e6:,.0f}",
            f"{row['model_with_decoding_s'] * 1e6:,.0f}",
            f"{row['instructions_per_s'] / 1e6:.2f}",
            f"{row['cycles'] / row['model_s'] / 1e6:,.0f}",
            f"{row['speedup']:,.0f}",
            f"{row['instructions'] / row['definition_s'] / 1e3:.1f}",
        )
    speedups = np.array([row["speedup"] for row in rows])
    out.add_section()
    for label, value in (
        ("mean", speedups.mean()),
        ("median", np.median(speedups)),
        ("least", speedups.min()),
    ):
        out.add_row(label, *[""] * 8, f"{value:,.0f}", "")
    return out


if __name__ == "__main__":
    sys.exit(main())
