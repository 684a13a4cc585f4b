"""`tilewright report`: write an HTML page that shows where a network's cycles went, and why.

With `--pair A B`, the page has two reports side by side: earlier ones, or two of this call.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from ....atomic_write import PAGE_SUFFIXES, check_output, write_output
from ....compiler.graph import Graph
from ....compiler.module import Module
from ....errors import DeviceError, UsageError
from ....isa.configuration import Configuration
from ....isa.memory_model import MemoryModel
from ....isa.settings import read_machine_and_memory
from ....runtime import Session, open_device
from ....runtime.device import Device, Result
from ...execution.samples import random_samples, read_samples
from ...execution.timed import require_segments, time_segments
from ...reports import terminal
from ...reports.page import (
    REPORT_SUFFIXES,
    comparison,
    read_report,
    render,
    render_comparison,
    report_data,
)
from ...reports.placement_table import placement_of, show_placement
from ..arguments import (
    USUAL_OR_BOARDS,
    add_configuration,
    add_trust,
    chosen_configuration,
    connected_board,
    load_module,
    require_tools,
)
from ..calibration_options import add_calibration, chosen_calibration
from ..clock_options import cycles_text
from ..device_options import add_device
from ..gate_options import add_technology, technology_options
from ..input_options import add_fixes, chosen_overrides
from ..json_output import add_json, check_json, write_json
from ..memory_options import (
    add_memory,
    add_program_for,
    memory_model,
    program_memory,
    refuse_memory,
    refuse_program_for,
)
from ..operator_options import add_operators
from ..placement_options import add_placement, chosen_placing
from ..schedule_options import add_schedule, change_sentences, chosen_schedules

DEVICES = "sim", "rtl", "gate"


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, nargs="?", metavar="MODEL", help="ONNX file or artifact"
    )
    parser.add_argument(
        "--pair", nargs=2, metavar=("A", "B"),
        help="two reports side by side; with MODEL, A and B are machines or memories "
        "(8x8, 16x16,act_depth=512, latency=200), without it reports (pages or files of --json), "
        "models or artifacts",
    )  # fmt: skip
    add_configuration(parser, USUAL_OR_BOARDS)
    add_operators(parser)
    add_fixes(parser)
    add_device(parser, DEVICES, "; all but sim run the hardware too")
    add_technology(parser)
    parser.add_argument(
        "--input",
        type=Path,
        metavar="FILE",
        help="sample for hardware, .npz or .npy (default: random)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE.html",
        help="page to write (default: MODEL.html, or compare.html)",
    )
    add_json(parser, "the page's data")
    add_program_for(add_memory(parser))
    add_placement(parser)
    add_calibration(parser)
    add_schedule(parser)
    add_trust(parser)
    parser.set_defaults(function=write_report)


def write_report(arguments: argparse.Namespace) -> None:
    """Time the network, or both sides of a comparison, and write the page.

    Raises
    ------
    TilewrightError
        For a problem with the model, the arguments or the tools.
    """
    check_json(arguments.json)
    refuse_memory(arguments)
    technology_options(arguments)
    if arguments.input is not None and arguments.device == "sim":
        raise UsageError(
            "`--input`: expected a device that runs the network, got `sim`, whose times do not "
            "depend on inputs; add `--device rtl`, or leave it out"
        )
    if arguments.pair:
        target = arguments.output or Path("compare.html")
        inputs = [arguments.source, *map(Path, arguments.pair)]
        check_output(target, f"`--output {target}`", inputs, PAGE_SUFFIXES)
        write_comparison(arguments, target)
        return
    if arguments.source is None:
        raise UsageError(
            "MODEL: expected an ONNX file or an artifact; name one, or two reports with "
            "`--pair A B`"
        )
    target = arguments.output or Path(arguments.source.with_suffix(".html").name)
    check_output(target, f"`--output {target}`", [arguments.source], PAGE_SUFFIXES)
    memory = memory_model(arguments, arguments.source)
    data = timed(arguments, arguments.source, chosen_configuration(arguments), memory)
    write_output(target, render(data), f"`--output {target}`")
    if arguments.json:
        write_json(arguments.json, data)
    if arguments.json != "-":
        causes = data["path"]["causes"]
        largest = max(causes, key=causes.__getitem__)
        summary = data["summary"]
        terminal.say(
            f"{target}: {cycles_text(summary['cycles'], data['clock_mhz'])}, "
            f"{terminal.percent(summary['of_peak'])} of peak, mostly bound by {largest}; open the "
            "page in a browser"
        )
        if arguments.table:
            show_placement(data["placement"])


def write_comparison(arguments: argparse.Namespace, target: Path) -> None:
    """Write the page of two sides.

    Raises
    ------
    TilewrightError
        For a problem with a side, the arguments or the tools.
    """
    if arguments.table:
        raise UsageError(
            "`--table`: expected a report of one network, got `--pair`; leave one of them out"
        )
    read = all(Path(text).suffix in REPORT_SUFFIXES for text in arguments.pair)
    if read and arguments.source is None and (arguments.config or arguments.changes):
        raise UsageError(
            "`--config`, `--set`: expected a model to time, got two reports after `--pair`; "
            "leave them out"
        )
    sides = [side_data(arguments, text) for text in arguments.pair]
    data = comparison(*sides)
    write_output(target, render_comparison(data), f"`--output {target}`")
    if arguments.json:
        write_json(arguments.json, data)
    if arguments.json != "-":
        for name, text, side in zip("AB", arguments.pair, data["sides"], strict=True):
            time = cycles_text(side["figures"]["cycles"], side["clock_mhz"])
            machine = side["configuration"]["name"]
            terminal.say(f"{name}  {text}: {side['network']} on {machine}, {time}")
        a, b = (side["figures"]["ms"] for side in data["sides"])
        terminal.say(
            f"B takes {b / a:.3f} times as long as A" if a != b else "B takes as long as A"
        )
        terminal.say(f"{target}: open the page in a browser")


def side_data(arguments: argparse.Namespace, text: str) -> dict[str, Any]:
    """Return the report of one side of a comparison.

    Raises
    ------
    TilewrightError
        As `write_comparison`.
    """
    if arguments.source is not None:
        side = read_machine_and_memory(
            text, f"`--pair {text}`", chosen_configuration(arguments),
            memory_model(arguments, arguments.source),
            arguments.changes,
        )  # fmt: skip
        return timed(arguments, arguments.source, *side)
    path, option = Path(text), f"`--pair {text}`"
    if path.suffix in REPORT_SUFFIXES:
        return read_report(path, option)
    if not os.path.exists(path):
        raise UsageError(
            f"{option}: expected a report, a model or an artifact, found no such file; to compare "
            "machines, name the model too: `tilewright report MODEL --pair A B`"
        )
    return timed(arguments, path, chosen_configuration(arguments), memory_model(arguments, path))


def timed(
    arguments: argparse.Namespace,
    source: Path,
    configuration: Configuration | None,
    memory: MemoryModel,
) -> dict[str, Any]:
    """Return the report's data of a model or an artifact, placement included.

    Parameters
    ----------
    configuration
        None for the default, or an artifact's own.

    Raises
    ------
    TilewrightError
        For a problem with the model, the arguments or the tools.
    """
    refuse_program_for(arguments, source)
    overrides, placing = chosen_overrides(arguments), chosen_placing(arguments, places=True)
    require_tools(arguments.device)
    board = connected_board(arguments.device, source, configuration)
    if board:
        configuration, placing = board.configuration, placing.on(board)
    module = load_module(
        source,
        configuration,
        calibration=chosen_calibration(arguments),
        overrides=overrides,
        placing=placing,
        trust_code=arguments.trust_code,
        memory=program_memory(arguments, board.memory if board else memory),
        schedules=chosen_schedules(arguments),
        check=lambda graph: choose_sample(arguments, graph),
    )
    if arguments.json != "-":
        for line in change_sentences(module.report):
            terminal.say(line)
    require_segments(module)
    results: tuple[Result, ...] = ()
    if arguments.device != "sim":
        options = technology_options(arguments)
        results, device = measure(
            module, arguments.device, memory, choose_sample(arguments, module.graph), options
        )
        memory, placing = device.memory, placing.on(device)
    segments = time_segments(module, memory, results)
    data = report_data(module, segments, arguments.device, memory, placing.clock)
    return {**data, "placement": placement_of(module, placing, memory)}


def choose_sample(arguments: argparse.Namespace, graph: Graph) -> dict[str, np.ndarray]:
    """Return the sample for the hardware."""
    path = arguments.input
    samples = random_samples(graph, 1, 0) if path is None else read_samples(path, graph)
    return next(iter(samples))


def measure(
    module: Module,
    name: str,
    memory: MemoryModel,
    sample: dict[str, np.ndarray],
    options: dict[str, Any],
) -> tuple[tuple[Result, ...], Device]:
    """Return the hardware's measurements for one sample, and the device, closed again.

    Raises
    ------
    DeviceError
        If the hardware fails, or took another time than the exact model, which explains the cycles.
    """
    with open_device(name, module.configuration, memory, **options) as device:
        results = Session(module, device).run(sample).results
        if any(result.spans is None for result in results):
            raise DeviceError(
                f"device `{name}`: the run took other cycles than the exact model expects with its "
                "memory, so no page can explain them; `tilewright run` shows what was measured"
            )
        return results, device
