"""`tilewright what-if`: time the same program with other memories and hardware."""

import argparse
from collections.abc import Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

from ....compiler.module import Module
from ....errors import UsageError
from ....isa.memory_model import MemoryModel
from ....isa.settings import MACHINE, Value, memory_text, read_values
from ...execution.retiming import VARIABLE, RetimedMachine, check_variable, retime, settings
from ...execution.timed import require_segments
from ...reports import terminal as report
from ..arguments import USUAL_OR_BOARDS, add_configuration, chosen_configuration, load_module
from ..board_options import apply_board
from ..calibration_options import add_calibration, chosen_calibration
from ..clock_options import add_clock, chosen_clock, cycles_text, milliseconds_text
from ..input_options import add_fixes, chosen_overrides
from ..json_output import add_json, check_json, write_json
from ..memory_options import (
    SETTINGS,
    add_program_for,
    memory_model,
    program_memory,
    refuse_program_for,
)
from ..operator_options import add_operators

LATENCIES = 16, 64, 200
BANDWIDTHS = (1, 4), (1, 2), (1, 1)
"""Properties that vary by default."""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file or artifact")
    add_configuration(parser, USUAL_OR_BOARDS)
    add_operators(parser)
    add_fixes(parser)
    parser.add_argument("--latency", metavar="CYCLES,...", help="latencies of main memory")
    parser.add_argument("--bandwidth", metavar="BEATS/CYCLES,...", help="bandwidths of main memory")
    parser.add_argument("--outstanding", metavar="BURSTS,...", help="open bursts")
    parser.add_argument("--queue-depth", metavar="N,...", help="same as `--vary queue_depth=N,...`")
    parser.add_argument(
        "--vary", action="append", default=[], metavar="PARAM=N,...",
        help=f"vary a hardware parameter, one of {', '.join(VARIABLE)}; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--board", metavar="NAME|FILE.toml",
        help="take machine, memory and clock from a board, unless other options choose them; the "
        "memories to try differ from its own",
    )  # fmt: skip
    add_program_for(parser)
    add_clock(parser)
    add_json(parser, "the table")
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
    check_json(arguments.json)
    refuse_program_for(arguments, arguments.source)
    memories, machines = asked(arguments)
    base_machine = base_of(arguments)
    clock_mhz = chosen_clock(base_machine)
    overrides = chosen_overrides(arguments)
    module = load_module(
        arguments.source,
        chosen_configuration(base_machine),
        calibration=chosen_calibration(arguments),
        overrides=overrides,
        memory=program_memory(arguments, memory_model(base_machine)),
    )
    require_segments(module)
    base_memory = module.memory
    rejected: dict[str, str] = {}
    found = settings(module.configuration, base_memory, memories, machines, rejected)
    base, *cycles = retime(module, [RetimedMachine({}, module.configuration, base_memory), *found])
    if arguments.json:
        values = to_json(module, base_memory, base, found, cycles, clock_mhz)
        values["rejected"] = [{"chosen": chosen, "reason": why} for chosen, why in rejected.items()]
        write_json(arguments.json, values)
    if arguments.json != "-":
        show(module, base_memory, base, found, cycles, clock_mhz)
        for chosen, why in rejected.items():
            report.say(f"rejected       {chosen}: {why}")


def base_of(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return the options of the machine and memory from which others differ.

    Raises
    ------
    UsageError
        For a board beside another memory that the program is made for.
    """
    from ....runtime.artifact import is_artifact

    none = dict.fromkeys(name.replace("-", "_") for name in SETTINGS)
    base = argparse.Namespace(**{**vars(arguments), **none, "stalls": None, "seed": 0})
    if arguments.board:
        if arguments.program_for is not None or is_artifact(arguments.source):
            raise UsageError(
                f"`--board {arguments.board}`: expected a model without `--program-for`, since "
                "others differ from the memory that the program is made for; leave it out"
            )
        apply_board(arguments.board, base)
    return base


def asked(
    arguments: argparse.Namespace,
) -> tuple[dict[str, Sequence[Value]], dict[str, Sequence[int]]]:
    """Return the properties of the memory and of the hardware that vary."""
    memories: dict[str, Sequence[Value]] = {}
    machines: dict[str, Sequence[int]] = {}
    for name in ("latency", "bandwidth", "outstanding"):
        if getattr(arguments, name):
            text = getattr(arguments, name)
            memories[name] = read_values(name, text, f"`--{name} {text}`")
    if text := arguments.queue_depth:
        machines["queue_depth"] = read_values("queue_depth", text, f"`--queue-depth {text}`")
    for change in arguments.vary:
        name, given, text = (part.strip() for part in change.partition("="))
        if not given:
            raise UsageError(
                f"`--vary {change}`: expected PARAM=N,... such as `bus_bits=64,128`; correct it"
            )
        check_variable(name)
        values = read_values(name, text, f"`--vary {change}`", MACHINE)
        machines[name] = tuple(dict.fromkeys((*machines.get(name, ()), *values)))
    if not memories and not machines:
        memories = {"latency": LATENCIES, "bandwidth": BANDWIDTHS}
    return memories, machines


def show(
    module: Module,
    memory: MemoryModel,
    base: int,
    found: Sequence[RetimedMachine],
    cycles: Sequence[int],
    clock_mhz: float,
) -> None:
    """Print the table."""

    def milliseconds(count: int) -> str:
        return milliseconds_text(count / clock_mhz / 1e3).removesuffix(" ms")

    report.say(f"network        {module.name}")
    report.say(f"configuration  {report.configuration_sentence(module.configuration)}")
    report.say(
        f"baseline       {cycles_text(base, clock_mhz)} with the memory that the program was made "
        f"for: {memory_text(memory)}"
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
    found: Sequence[RetimedMachine],
    cycles: Sequence[int],
    clock_mhz: float,
) -> dict[str, Any]:
    """Return the table as JSON values."""

    def row(setting: RetimedMachine, count: int) -> dict[str, Any]:
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
        "program_for": memory_text(memory),
        "base": row(RetimedMachine({}, module.configuration, memory), base),
        "rows": list(starmap(row, zip(found, cycles, strict=True))),
    }
