"""`tilewright report`: write an HTML page that shows where a network's cycles went, and why."""

import argparse
from pathlib import Path

from ....atomic_write import write_output
from ....compiler.module import Module
from ....errors import UsageError, did_you_mean
from ....runtime import Session, open_device
from ....runtime.device import Result
from ....sim.memory_model import MemoryModel
from ...execution.samples import random_samples, read_samples
from ...execution.timed import require_segments, time_segments
from ...reports import terminal
from ...reports.page import render, report_data
from ...reports.placement_table import placement_of, show_placement
from ..arguments import (
    add_configuration,
    add_json,
    add_trust,
    chosen_configuration,
    load_module,
    require_tools,
)
from ..calibration_options import add_calibration, chosen_calibration
from ..clock_options import cycles_text
from ..input_options import add_fixes, chosen_overrides
from ..json_output import check_json, write_json
from ..memory_options import add_memory, memory_model
from ..placement_options import add_placement, chosen_placing

DEVICES = "sim", "rtl"


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file or artifact")
    add_configuration(parser)
    add_fixes(parser)
    parser.add_argument(
        "--device",
        type=str.lower,
        default="sim",
        help="sim: exact timing model; rtl: hardware too",
    )
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help="sample for rtl, .npz or .npy (default: random)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: MODEL.html")
    add_json(parser, "the page's data")
    add_memory(parser)
    add_placement(parser)
    add_calibration(parser)
    add_trust(parser)
    parser.set_defaults(function=write_report, stalls=0.0, seed=0)


def write_report(arguments: argparse.Namespace) -> None:
    """Time the network and write the page.

    Raises
    ------
    TilewrightError
        For a problem with the model, the arguments or the tools.
    """
    check_json(arguments.json)
    if arguments.device not in DEVICES:
        raise UsageError(
            f"`--device {arguments.device}`: expected one of {', '.join(DEVICES)}"
            + did_you_mean(arguments.device, DEVICES, "; choose one")
        )
    memory, overrides = memory_model(arguments), chosen_overrides(arguments)
    placing = chosen_placing(arguments, places=True)
    require_tools(arguments.device)
    module = load_module(
        arguments.source,
        chosen_configuration(arguments),
        calibration=chosen_calibration(arguments),
        overrides=overrides,
        placing=placing,
        trust_code=arguments.trust_code,
    )
    require_segments(module)
    results = measure(module, memory, arguments.input) if arguments.device == "rtl" else ()
    segments = time_segments(module, memory, results)
    data = report_data(module, segments, arguments.device, memory, placing.clock)
    placement = placement_of(module, placing, memory)
    data["placement"] = placement
    target = arguments.output or Path(arguments.source.with_suffix(".html").name)
    write_output(target, render(data), f"`--output {target}`")
    if arguments.json:
        write_json(arguments.json, data)
    if arguments.json != "-":
        causes = data["path"]["causes"]
        largest = max(causes, key=causes.__getitem__)
        summary = data["summary"]
        terminal.say(
            f"{target}: {cycles_text(summary['cycles'], placing.clock)}, "
            f"{terminal.percent(summary['of_peak'])} of peak, mostly bound by {largest}; open the "
            "page in a browser"
        )
        if arguments.table:
            show_placement(placement)


def measure(module: Module, memory: MemoryModel, path: Path | None) -> tuple[Result, ...]:
    """Return the hardware's measurements for one sample."""
    if path is None:
        samples = random_samples(module.graph, 1, 0)
    else:
        samples = read_samples(path, module.graph)
    with open_device("rtl", module.configuration, memory) as device:
        return Session(module, device).run(next(iter(samples))).results
