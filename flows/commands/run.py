"""`tilewright run`: run a model or an artifact on a device, with a table per layer."""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...compiler.graph import is_accelerated
from ...compiler.importers import NeedsInputError
from ...compiler.module import Module
from ...errors import DeviceError, UsageError
from ...runtime import open_device
from ...runtime.devices import DEVICES
from ...runtime.profile import Profile
from ...sim.memory_model import MemoryModel
from .. import report
from ..arguments import (
    add_configuration,
    add_json,
    chosen_configuration,
    load_module,
    require_tools,
)
from ..calibration import add_calibration, chosen_calibration
from ..console import NO_LAYERS
from ..fixed_inputs import add_fixes, chosen_wishes, fixed_sentence, fixes_of_samples
from ..json_output import check_json, write_json
from ..placing import (
    Placing,
    add_placement,
    chosen_placing,
    placement_of,
    show_placement,
)
from ..running import Outcome, run_samples
from ..samples import Samples, random_samples, read_samples
from ..timed import require_segments, time_segments
from ..trace import write_trace

DEFAULTS = MemoryModel()

MEMORY_DEFAULTS = {
    "latency": DEFAULTS.latency_cycles,
    "bandwidth": f"{DEFAULTS.beats}/{DEFAULTS.cycles}",
    "outstanding": DEFAULTS.outstanding_bursts,
    "stalls": DEFAULTS.stall_probability,
}
"""Of the options that say how main memory behaves."""


def add(commands, common: argparse.ArgumentParser) -> None:
    """Add the parser."""
    parser = commands.add_parser("run", parents=[common], help="run a model or an artifact")
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file or artifact")
    add_configuration(parser)
    add_fixes(parser)
    parser.add_argument("--device", default="sim", help=f"{', '.join(DEVICES)} (default: sim)")
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help=".npz or .npy of samples (default: random)"
    )
    parser.add_argument("--samples", type=int, metavar="N", help="run the first N samples")
    parser.add_argument(
        "--compare", action="store_true",
        help="compare what every layer gives with the integer reference; nothing is overwritten "
        "for that, which may change the cycles a little",
    )  # fmt: skip
    add_json(parser, "the results")
    memory = add_memory(parser)
    memory.add_argument(
        "--stalls", type=float, default=DEFAULTS.stall_probability, metavar="P",
        help=f"chance that a cycle stalls a channel (default: {DEFAULTS.stall_probability})",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of stalls and random inputs")
    parser.add_argument("--waveform", type=Path, metavar="FILE", help="write an FST (rtl)")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="write the first sample's timeline for Perfetto (sim, rtl)",
    )  # fmt: skip
    add_placement(parser)
    add_calibration(parser)
    parser.set_defaults(function=run)


def add_memory(parser: argparse.ArgumentParser):
    """Add the group of options that say how main memory behaves, and return it."""
    memory = parser.add_argument_group("main memory (sim, rtl)")
    memory.add_argument(
        "--latency", type=int, default=DEFAULTS.latency_cycles, metavar="CYCLES",
        help=f"from a read's address to its first beat (default: {DEFAULTS.latency_cycles})",
    )  # fmt: skip
    memory.add_argument(
        "--bandwidth", default=f"{DEFAULTS.beats}/{DEFAULTS.cycles}", metavar="BEATS/CYCLES",
        help=f"most beats in so many cycles (default: {DEFAULTS.beats}/{DEFAULTS.cycles})",
    )  # fmt: skip
    memory.add_argument(
        "--outstanding", type=int, default=DEFAULTS.outstanding_bursts, metavar="BURSTS",
        help=f"bursts under way per direction (default: {DEFAULTS.outstanding_bursts})",
    )  # fmt: skip
    return memory


def run(arguments: argparse.Namespace) -> None:
    """Load, run, compare, report.

    Raises
    ------
    TilewrightError
        For whatever is wrong with the model, the inputs, the arguments or the tools; DeviceError
        where a comparison was asked for and something differs.
    """
    check_json(arguments.json)
    check_arguments(arguments)
    placing = chosen_placing(arguments)
    memory = memory_model(arguments)
    require_tools(arguments.device)
    module = load_fixed(arguments, placing)
    if arguments.trace:
        require_segments(module)
    samples = choose_samples(arguments, module)
    options = {"trace": arguments.waveform} if arguments.waveform else {}
    with open_device(arguments.device, module.configuration, memory, **options) as device:
        beside = 0 if device.name == "sim" else 1
        outcome = run_samples(module, device, samples, compare=arguments.compare, beside=beside)
    placement = placement_of(module, placing, memory) if arguments.table else None
    if arguments.json:
        more = {} if placement is None else {"placement": placement}
        write_json(arguments.json, {**to_json(outcome), **more})
    if arguments.trace:
        segments = time_segments(module, memory, outcome.results)
        write_trace(arguments.trace, segments, module.name, outcome.device.name)
    if arguments.json != "-":
        show(outcome)
        if placement is not None:
            show_placement(placement)
    difference = outcome.comparison.first_difference() if outcome.comparison else None
    if difference:
        raise DeviceError(
            f"device `{outcome.device.name}`: {difference}; this is a fault of the device or the "
            "compiler: report it with the model"
        )


def load_fixed(arguments: argparse.Namespace, placing: Placing) -> Module:
    """The module; inputs that shapes depend on are fixed at what the input file says of them.

    Raises
    ------
    TilewrightError
        As `load_module`; `NeedsInputError` for an input that nothing says anything of.
    """
    calibration, wishes = chosen_calibration(arguments), chosen_wishes(arguments)
    given = set(wishes.fixed)
    while True:
        try:
            module = load_module(
                arguments.source,
                chosen_configuration(arguments),
                keep_all=arguments.compare,
                calibration=calibration,
                wishes=wishes,
                placing=placing,
            )
            break
        except NeedsInputError as need:
            if calibration is not None:
                raise
            more = fixes_of_samples(need, arguments.input)
            wishes = replace(wishes, fixed={**wishes.fixed, **more})
    found = [name for name in wishes.fixed if name not in given]
    if found and arguments.json != "-":
        report.say(fixed_sentence(found))
    return module


def check_arguments(arguments: argparse.Namespace) -> None:
    """Refuse arguments that make no sense together.

    Raises
    ------
    UsageError
        Naming the argument.
    """
    if arguments.device not in DEVICES:
        raise UsageError(
            f"`--device {arguments.device}`: expected one of {', '.join(DEVICES)}; choose one"
        )
    if arguments.samples is not None and arguments.samples < 1:
        raise UsageError(f"`--samples {arguments.samples}`: expected 1 or more; correct it")
    if arguments.seed < 0:
        raise UsageError(f"`--seed {arguments.seed}`: expected 0 or more; correct it")
    if arguments.waveform and arguments.device != "rtl":
        raise UsageError(
            f"`--waveform`: expected `--device rtl`, got `{arguments.device}`; only hardware has "
            "waveforms"
        )
    if arguments.trace and arguments.device == "reference":
        raise UsageError(
            "`--trace`: expected `--device sim` or `rtl`, got `reference`; the definition of the "
            "instructions knows no time"
        )
    memory = [name for name, usual in MEMORY_DEFAULTS.items() if getattr(arguments, name) != usual]
    if memory and arguments.device in ("cpu", "reference"):
        raise UsageError(
            f"`--{memory[0]}`: expected `--device sim` or `rtl`, got `{arguments.device}`; "
            "nothing follows from it there, leave it out"
        )
    if arguments.trace and arguments.device == "cpu":
        raise UsageError(
            "`--trace`: expected `--device sim` or `rtl`, got `cpu`; there are no cycles without "
            "an accelerator"
        )


def memory_model(arguments: argparse.Namespace) -> MemoryModel:
    """Main memory as asked for.

    Raises
    ------
    UsageError
        When the bandwidth is not of the form.
    """
    beats, _, cycles = arguments.bandwidth.partition("/")
    try:
        rate = int(beats), int(cycles or 1)
    except ValueError:
        raise UsageError(
            f"`--bandwidth {arguments.bandwidth}`: expected BEATS/CYCLES, for example "
            "`--bandwidth 1/4`"
        ) from None
    return MemoryModel(
        latency_cycles=arguments.latency,
        beats=rate[0],
        cycles=rate[1],
        outstanding_bursts=arguments.outstanding,
        stall_probability=arguments.stalls,
        seed=arguments.seed,
    )


def choose_samples(arguments: argparse.Namespace, module: Module) -> Samples:
    """From the input file, or random ones; one alone where a waveform is written."""
    if arguments.input is None:
        return random_samples(module.graph, arguments.samples or 1, arguments.seed)
    samples = read_samples(arguments.input, module.graph)
    count = arguments.samples or (1 if arguments.waveform else samples.count)
    return samples.first(count)


def show(outcome: Outcome, say: Callable[[str], None] = report.say) -> None:
    """Print the tables and sentences of a run."""
    profile, count = outcome.profile, outcome.samples.count
    plural = "s" * (count != 1)
    say(f"network        {outcome.module.name}: {report.host_sentence(profile)}")
    say(f"configuration  {report.configuration_sentence(outcome.module.configuration)}")
    say(f"device         {outcome.device.name}")
    say(f"inputs         {count} sample{plural} of {outcome.samples.source}")
    say("")
    report.stdout().print(report.layer_table(profile))
    say("")
    if not outcome.module.segments:
        able = any(map(is_accelerated, outcome.module.graph.nodes))
        if not able and outcome.device.name != "cpu":
            say(NO_LAYERS)
    elif profile.cycles is not None:
        say_cycles(profile, say)
    lines = report.agreement_sentences(report.agreement(outcome.outputs, outcome.samples), count)
    if outcome.comparison is not None:
        lines += report.comparison_sentences(outcome.comparison, outcome.module)
    for line in lines:
        say(line)
    if any(layer.microseconds for layer in profile.layers):
        runs = outcome.host_runs
        said = f"median of {runs:,} runs" if runs > 1 else "of one run; later ones take less"
        say(f"host times: {said}")
    say(f"{count} sample{plural} in {outcome.seconds:.1f} s")


def say_cycles(profile: Profile, say: Callable[[str], None] = report.say) -> None:
    """Print the cycles of all layers, and how a layer's are counted."""
    kind = "exact" if profile.exact else "without the memory's random stalls"
    say(f"cycles per sample: {profile.cycles:,} ({kind}); a layer's are what it adds")
    if profile.all_macs != profile.macs:
        say(f"use: of the multiplier array, for the accelerator's {profile.macs:,} MACs")
    if any((layer.utilisation or 0) > 1 for layer in profile.layers):
        say("use above 100%: that layer did part of its work before those ahead were complete")


def to_json(outcome: Outcome) -> dict[str, Any]:
    """A run as JSON values."""
    configuration = outcome.module.configuration
    result: dict[str, Any] = {
        "network": outcome.module.name,
        "configuration": {
            "name": configuration.name,
            "hash": f"{configuration.hash:#010x}",
            **configuration.parameters(),
        },
        "device": outcome.device.name,
        "memory": asdict(outcome.device.memory),
        "samples": outcome.samples.count,
        "inputs": outcome.samples.source,
        "seconds": outcome.seconds,
        "host_runs": outcome.host_runs,
        **outcome.profile.to_json(),
        **report.agreement(outcome.outputs, outcome.samples),
    }
    if outcome.comparison is not None:
        result["comparison"] = {
            "equal": outcome.comparison.equal,
            "not_kept": outcome.comparison.not_kept,
            "on_chip": outcome.comparison.on_chip,
            "tallies": [asdict(tally) for tally in outcome.comparison.tallies],
        }
    return json.loads(json.dumps(result))
