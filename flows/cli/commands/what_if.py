"""`tilewright what-if`: the same compiled network under other memories and machines, in cycles."""

import argparse
from collections.abc import Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

from ....compiler.module import Module
from ....errors import UsageError
from ....sim.memory_model import MemoryModel
from ...execution.retiming import VARIABLE, Setting, check_variable, retime, settings
from ...execution.timed import require_segments
from ...reports import terminal as report
from ..arguments import add_configuration, chosen_configuration, load_module
from ..calibration_options import add_calibration, chosen_calibration
from ..input_options import add_fixes, chosen_wishes
from ..json_output import write_json

LATENCIES = 16, 64, 200
BANDWIDTHS = (1, 4), (1, 2), (1, 1)
"""What is tried where nothing is asked for."""


def add(commands, common: argparse.ArgumentParser) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "what-if", parents=[common], help="time one program under other memories and machines"
    )
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file or artifact")
    add_configuration(parser)
    add_fixes(parser)
    parser.add_argument("--latency", metavar="CYCLES,...", help="of main memory")
    parser.add_argument("--bandwidth", metavar="BEATS/CYCLES,...", help="of main memory")
    parser.add_argument("--outstanding", metavar="BURSTS,...", help="that main memory accepts")
    parser.add_argument("--queue-depth", metavar="N,...", help="as `--vary queue_depth=N,...`")
    parser.add_argument(
        "--vary", action="append", default=[], metavar="PARAM=N,...",
        help=f"of the machine, one of {', '.join(VARIABLE)}; may be repeated",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the table for machines")
    add_calibration(parser)
    parser.set_defaults(function=what_if)


def what_if(arguments: argparse.Namespace) -> None:
    """Time all combinations and print a row for each.

    Raises
    ------
    UsageError
        For values that are no numbers, and parameters that the program depends on.
    TilewrightError
        For whatever is wrong with the model, the machines or the memories.
    """
    memories, machines = asked(arguments)
    wishes = chosen_wishes(arguments)
    module = load_module(
        arguments.source,
        chosen_configuration(arguments),
        calibration=chosen_calibration(arguments),
        wishes=wishes,
    )
    require_segments(module)
    for name in machines:
        check_variable(module.configuration, name)
    base_memory = MemoryModel()
    found = settings(module.configuration, base_memory, memories, machines)
    base, *cycles = retime(module, [Setting({}, module.configuration, base_memory), *found])
    if arguments.json:
        write_json("-", to_json(module, base_memory, base, found, cycles))
    else:
        show(module, base_memory, base, found, cycles)


def asked(
    arguments: argparse.Namespace,
) -> tuple[dict[str, Sequence[Any]], dict[str, list[int]]]:
    """What is varied of the memory, and of the machine."""
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
    """Whole numbers with commas between them.

    Raises
    ------
    UsageError
        Naming the option.
    """
    try:
        return [int(part, 0) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"`{option}{separator}{text}`: expected whole numbers with commas between them, for "
            f"example `{option}{separator}16,64`"
        ) from None


def bandwidths(text: str) -> list[tuple[int, int]]:
    """Pairs of beats and cycles.

    Raises
    ------
    UsageError
        When one is not of the form.
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
) -> None:
    """Print the table."""
    report.say(f"network        {module.name}")
    report.say(f"configuration  {report.configuration_sentence(module.configuration)}")
    report.say(
        f"1.00 is        {base:,} cycles: latency {memory.latency_cycles}, bandwidth "
        f"{memory.beats}/{memory.cycles}, {memory.outstanding_bursts} bursts outstanding, "
        "the machine as it is"
    )
    report.say("")
    names = list(found[0].chosen)
    rows = [
        [*setting.chosen.values(), f"{count:,}", f"{count / base:.2f}"]
        for setting, count in zip(found, cycles, strict=True)
    ]
    report.stdout().print(report.table([*names, "cycles", "ratio"], rows, left=0))


def to_json(
    module: Module,
    memory: MemoryModel,
    base: int,
    found: Sequence[Setting],
    cycles: Sequence[int],
) -> dict[str, Any]:
    """The table as JSON values."""

    def row(setting: Setting, count: int) -> dict[str, Any]:
        machine = setting.machine.parameters()
        return {
            "latency": setting.memory.latency_cycles,
            "bandwidth": f"{setting.memory.beats}/{setting.memory.cycles}",
            "outstanding": setting.memory.outstanding_bursts,
            **{name: machine[name] for name in VARIABLE},
            "cycles": count,
            "ratio": count / base,
        }

    return {
        "network": module.name,
        "configuration": module.configuration.name,
        "base": row(Setting({}, module.configuration, memory), base),
        "rows": list(starmap(row, zip(found, cycles, strict=True))),
    }
