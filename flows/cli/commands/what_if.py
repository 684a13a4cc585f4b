"""`tilewright what-if`: time the same program with other memories and hardware."""

import argparse
from collections.abc import Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

from ....compiler.module import Module
from ....errors import UsageError
from ....isa.memory_model import MemoryModel
from ...execution.retiming import VARIABLE, Setting, check_variable, retime, settings
from ...execution.timed import require_segments
from ...reports import terminal as report
from ..arguments import add_configuration, chosen_configuration, load_module
from ..calibration_options import add_calibration, chosen_calibration
from ..clock_options import add_clock, chosen_clock, cycles_text, milliseconds_text
from ..input_options import add_fixes, chosen_overrides
from ..json_output import write_json

LATENCIES = 16, 64, 200
BANDWIDTHS = (1, 4), (1, 2), (1, 1)
"""Properties that vary by default."""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file or artifact")
    add_configuration(parser)
    add_fixes(parser)
    parser.add_argument("--latency", metavar="CYCLES,...", help="latencies of main memory")
    parser.add_argument("--bandwidth", metavar="BEATS/CYCLES,...", help="bandwidths of main memory")
    parser.add_argument("--outstanding", metavar="BURSTS,...", help="open bursts")
    parser.add_argument("--queue-depth", metavar="N,...", help="same as `--vary queue_depth=N,...`")
    parser.add_argument(
        "--vary", action="append", default=[], metavar="PARAM=N,...",
        help=f"vary a hardware parameter, one of {', '.join(VARIABLE)}; may be repeated",
    )  # fmt: skip
    add_clock(parser)
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    add_calibration(parser)
    parser.set_defaults(function=what_if)


def what_if(arguments: argparse.Namespace) -> None:
    """Time all combinations and print a row for each.

    Raises
    ------
    UsageError
        For values that are not numbers, and parameters that the program depends on.
    TilewrightError
        For a problem with the model, the machines or the memories.
    """
    memories, machines = asked(arguments)
    clock_mhz = chosen_clock(arguments)
    overrides = chosen_overrides(arguments)
    module = load_module(
        arguments.source,
        chosen_configuration(arguments),
        calibration=chosen_calibration(arguments),
        overrides=overrides,
    )
    require_segments(module)
    for name in machines:
        check_variable(module.configuration, name)
    base_memory = MemoryModel()
    found = settings(module.configuration, base_memory, memories, machines)
    base, *cycles = retime(module, [Setting({}, module.configuration, base_memory), *found])
    if arguments.json:
        write_json("-", to_json(module, base_memory, base, found, cycles, clock_mhz))
    else:
        show(module, base_memory, base, found, cycles, clock_mhz)


def asked(
    arguments: argparse.Namespace,
) -> tuple[dict[str, Sequence[Any]], dict[str, list[int]]]:
    """Return the properties of the memory and of the hardware that vary."""
    memories: dict[str, Sequence[Any]] = {}
    machines: dict[str, list[int]] = {}
    for name in ("latency", "outstanding"):
        if getattr(arguments, name):
            memories[name] = numbers(f"--{name}", getattr(arguments, name))
    if arguments.bandwidth:
        memories["bandwidth"] = bandwidths(arguments.bandwidth)
    if arguments.queue_depth:
        machines["queue_depth"] = numbers("--queue-depth", arguments.queue_depth)
    for change in arguments.vary:
        name, _, text = change.partition("=")
        machines[name.strip()] = numbers(f"--vary {name}", text, separator="=")
    if not memories and not machines:
        memories = {"latency": LATENCIES, "bandwidth": BANDWIDTHS}
    return memories, machines


def numbers(option: str, text: str, separator: str = " ") -> list[int]:
    """Parse integers separated by commas.

    Raises
    ------
    UsageError
        For anything else; the message names the option.
    """
    try:
        return [int(part, 0) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"`{option}{separator}{text}`: expected whole numbers with commas between them, for "
            f"example `{option}{separator}16,64`"
        ) from None


def bandwidths(text: str) -> list[tuple[int, int]]:
    """Parse pairs of beats and cycles.

    Raises
    ------
    UsageError
        For anything else.
    """
    try:
        parts = (part.partition("/") for part in text.split(","))
        return [(int(beats), int(cycles or 1)) for beats, _, cycles in parts]
    except ValueError:
        raise UsageError(
            f"`--bandwidth {text}`: expected BEATS/CYCLES with commas between them, for example "
            "`--bandwidth 1/4,1/2,1`"
        ) from None


def show(
    module: Module,
    memory: MemoryModel,
    base: int,
    found: Sequence[Setting],
    cycles: Sequence[int],
    clock_mhz: float,
) -> None:
    """Print the table."""

    def milliseconds(count: int) -> str:
        return milliseconds_text(count / clock_mhz / 1e3).removesuffix(" ms")

    report.say(f"network        {module.name}")
    report.say(f"configuration  {report.configuration_sentence(module.configuration)}")
    report.say(
        f"baseline       {cycles_text(base, clock_mhz)}: latency {memory.latency_cycles}, "
        f"bandwidth {memory.beats}/{memory.cycles}, {memory.outstanding_bursts} open bursts"
    )
    report.say("")
    report.say("other hardware, same program (not recompiled):")
    names = list(found[0].chosen)
    rows = [
        [*setting.chosen.values(), f"{count:,}", milliseconds(count), f"{count / base:.2f}"]
        for setting, count in zip(found, cycles, strict=True)
    ]
    report.stdout().print(report.table([*names, "cycles", "ms", "ratio"], rows, left=0))


def to_json(
    module: Module,
    memory: MemoryModel,
    base: int,
    found: Sequence[Setting],
    cycles: Sequence[int],
    clock_mhz: float,
) -> dict[str, Any]:
    """Return the table as JSON values."""

    def row(setting: Setting, count: int) -> dict[str, Any]:
        machine = setting.machine.parameters()
        return {
            "latency": setting.memory.latency_cycles,
            "bandwidth": f"{setting.memory.beats}/{setting.memory.cycles}",
            "outstanding": setting.memory.outstanding_bursts,
            **{name: machine[name] for name in VARIABLE},
            "cycles": count,
            "ms": count / clock_mhz / 1e3,
            "ratio": count / base,
        }

    return {
        "network": module.name,
        "configuration": module.configuration.name,
        "clock_mhz": clock_mhz,
        "base": row(Setting({}, module.configuration, memory), base),
        "rows": list(starmap(row, zip(found, cycles, strict=True))),
    }
