"""`tilewright run`: run a model or an artifact on a device and print a table of its layers."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import DeviceError, UsageError
from ....runtime import open_device
from ....runtime.devices import DEVICES, GpuDevice, kind_of, without_gpu
from ...execution.run_module import chosen_module
from ...execution.run_samples import run_samples
from ...execution.samples import Samples, random_samples, read_samples
from ...execution.timed import require_segments, time_segments
from ...reports import terminal as report
from ...reports.placement_table import placement_of, show_placement
from ...reports.run_tables import show, to_json
from ...reports.trace import trace_sentence, write_trace
from ..arguments import USUAL_OR_BOARDS, add_configuration, add_trust, require_tools
from ..calibration_options import add_calibration
from ..console import search_sentence
from ..device_options import add_device
from ..gate_options import add_technology, technology_options
from ..input_options import add_fixes, add_states, chosen_states
from ..json_output import add_json, check_json, write_json
from ..memory_options import (
    add_memory,
    add_program_for,
    add_stalls,
    memory_model,
    refuse_memory,
    refuse_program_for,
)
from ..operator_options import add_operators
from ..placement_options import add_placement, chosen_placing
from ..record_options import add_records, choose_records, records_sentence
from ..recording_options import (
    add_recordings,
    check_recording_files,
    check_recordings,
    waveform_options,
    waveform_sentence,
)
from ..schedule_options import add_schedule, change_sentences

if TYPE_CHECKING:
    from ....compiler.graph import Graph

SIMULATED_HARDWARE = ("rtl", "gate")
"""Devices that take so long that one more run on `sim`, to compare data windows, is nothing."""

TRUSTED = ("reference", "sim", "host")
"""Devices that results are compared with; no sentence asks for a comparison of theirs."""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file or artifact")
    add_configuration(parser, USUAL_OR_BOARDS)
    add_operators(parser)
    add_fixes(parser)
    add_states(parser)
    add_device(
        parser, tuple(DEVICES),
        "; host: this computer's processor, without an accelerator; gpu: its GPU, gpu:DRIVER with "
        "a certain driver, and with ?tf32 at the end, products of float32 are rounded to TF32; "
        "sim+gpu, or another device before +gpu: a GPU runs the host's steps",
        beside=True,
    )  # fmt: skip
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help=".npz or .npy of samples (default: random)"
    )
    parser.add_argument("--samples", type=int, metavar="N", help="run the first N samples")
    parser.add_argument(
        "--repeat", type=int, metavar="N",
        help="repetitions when host times are measured, at least 20 ms each (default: 10, or 3 of "
        "long runs)",
    )  # fmt: skip
    parser.add_argument(
        "--compare", action="store_true",
        help="compare the output of every layer with the integer reference; a model is then "
        "compiled to store all of them, which takes some more cycles (rtl and gate always compare "
        "the memory of the first sample with sim)",
    )  # fmt: skip
    add_technology(parser)
    add_json(parser, "the results")
    memory = add_memory(parser)
    add_stalls(memory)
    add_program_for(memory)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N",
        help="seed of stalls and random inputs (default: 0)",
    )  # fmt: skip
    add_recordings(parser, "the first sample")
    add_placement(parser)
    add_calibration(parser)
    add_schedule(parser)
    add_records(parser)
    add_trust(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> None:
    """Load a network, run it, compare and report.

    Raises
    ------
    TilewrightError
        For a problem with the model, the inputs, the arguments or the tools. A difference in a
        comparison raises DeviceError.
    """
    check_json(arguments.json)
    check_recording_files(arguments, [arguments.source, arguments.input])
    choose_records(arguments)
    check_arguments(arguments)
    placing = chosen_placing(arguments)
    memory = memory_model(arguments, arguments.source)
    options = {**technology_options(arguments), **waveform_options(arguments)}
    require_tools(arguments.device)
    quiet = arguments.json == "-"
    module = chosen_module(
        arguments, placing, (lambda line: None) if quiet else report.say,
        lambda graph: choose_samples(arguments, graph),
    )  # fmt: skip
    if arguments.trace:
        require_segments(module)
    samples = choose_samples(arguments, module.graph)
    with open_device(arguments.device, module.configuration, memory, **options) as device:
        memory, placing = device.memory, placing.on(device)
        checked = arguments.compare or kind_of(device.name) in SIMULATED_HARDWARE
        compare_with = int(checked and kind_of(device.name) != "sim")
        outcome = run_samples(
            module, device, samples, compare=arguments.compare, compare_with=compare_with,
            states=chosen_states(arguments), repeat=arguments.repeat,
        )  # fmt: skip
    placement = placement_of(module, placing, memory) if arguments.table else None
    if arguments.json:
        more = {} if placement is None else {"placement": placement}
        kept = ("search", "schedules_given", "cycles_before", "layers_changed")
        search = {key: module.report[key] for key in kept if key in module.report}
        write_json(arguments.json, {**to_json(outcome, placing.clock), **search, **more})
    if arguments.trace:
        segments = time_segments(module, memory, outcome.results)
        write_trace(arguments.trace, segments, module.name, outcome.device.name, placing.clock)
    if not quiet:
        show(outcome, clock_mhz=placing.clock)
        if module.segments and "search" in module.report:
            report.say(search_sentence(module.report["search"]))
        for line in change_sentences(module.report):
            report.say(line)
        if recorded := records_sentence(_choices_on(outcome.device.name, module.choices)):
            report.say(recorded)
        if arguments.trace:
            report.say(trace_sentence(arguments.trace, placing.clock))
        if arguments.waveform:
            report.say(waveform_sentence(arguments.waveform))
        if outcome.comparison is None and kind_of(outcome.device.name) not in TRUSTED:
            report.say("the results were not compared with `sim`; add `--compare`")
        if placement is not None:
            show_placement(placement)
    difference = outcome.comparison.first_difference() if outcome.comparison else None
    if difference:
        raise DeviceError(
            f"device `{outcome.device.name}`: {difference}; this is a fault of the device or the "
            "compiler: report it with the model"
        )


def check_arguments(arguments: argparse.Namespace) -> None:
    """Reject arguments that conflict.

    Raises
    ------
    UsageError
        If arguments conflict; the message names one.
    """
    for option in ("samples", "repeat"):
        count = getattr(arguments, option)
        if count is not None and count < 1:
            raise UsageError(f"`--{option} {count}`: expected 1 or more; correct it")
    if arguments.seed < 0:
        raise UsageError(f"`--seed {arguments.seed}`: expected 0 or more; correct it")
    check_recordings(arguments)
    refuse_memory(arguments)
    refuse_program_for(arguments, arguments.source, arguments.device)


def choose_samples(arguments: argparse.Namespace, graph: "Graph") -> Samples:
    """Return the samples of the input file, or random ones; a single one for a waveform."""
    if arguments.input is None:
        count = arguments.samples or 1
        return random_samples(graph, count, arguments.seed, chosen_states(arguments))
    samples = read_samples(arguments.input, graph, chosen_states(arguments))
    count = arguments.samples or (1 if arguments.waveform else samples.count)
    return samples.first(count)


def _choices_on(device: str, choices: Mapping[str, str]) -> dict[str, str]:
    """The recorded schedules for a GPU, or for the processor on other devices."""
    if not choices:
        return {}
    from ....compiler.cpu.kernels.choices import is_device_key

    on_gpu = kind_of(device) == GpuDevice.name or bool(without_gpu(device)[1])
    return {key: text for key, text in choices.items() if is_device_key(key) == on_gpu}
