"""`tilewright config`: list the presets, explain a configuration, check a file of parameters."""

import argparse

from ....errors import ConfigurationError
from ....isa.configuration import (
    DEFAULT,
    PARAMETERS,
    PRESETS,
    Configuration,
    Memory,
)
from ....isa.encoding import word_bytes
from ....isa.settings import changed, load_configuration
from ....quoting import shell_word
from ...area.clock import clock_of, measured_rows
from ...area.provenance import (
    outdated,
    outdated_sentences,
    unmeasured_options,
)
from ...area.resources import Resources, resources, smallest_device
from ...synthesis.devices import RESOURCES, find_device
from ..console import configuration_sentence, say
from ..device_options import add_chip
from ..json_output import add_json, check_json, write_json
from ..tables import stdout, table, terminal_columns


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", parents=[common], help="list the presets")
    add_json(listing, "the presets, with all parameters,")
    listing.set_defaults(function=list_)
    for name, text, function in (
        ("show", "explain every parameter of a configuration", show),
        ("check", "check whether the parameters are legal", check),
    ):
        action = actions.add_parser(name, parents=[common], help=text)
        either = action.add_mutually_exclusive_group()
        either.add_argument(
            "config", metavar="NAME|FILE", nargs="?", default=argparse.SUPPRESS,
            help=f"preset or JSON file (default: {DEFAULT.name})",
        )  # fmt: skip
        either.add_argument("--config", default=DEFAULT.name, help=argparse.SUPPRESS)
        action.add_argument(
            "--set", action="append", default=[], metavar="PARAM=VALUE", dest="changes",
            help="change one parameter; may be repeated",
        )  # fmt: skip
        action.set_defaults(function=function)
        if name == "show":
            add_chip(
                action, "whose resources are compared (default: the smallest ECP5 with enough)"
            )
            add_json(action, "the parameters, which `--config` reads,")
        else:
            add_json(action, "the verdict")


def list_(arguments: argparse.Namespace) -> None:
    """Print the presets."""
    check_json(arguments.json)
    if arguments.json:
        presets = [{**each.to_dict(), "hash": f"{each.hash:#010x}"} for each in PRESETS.values()]
        write_json(arguments.json, presets)
    if arguments.json == "-":
        return
    rows = [
        (
            configuration.name,
            f"{configuration.lanes_in}x{configuration.lanes_out}",
            str(configuration.vector_lanes),
            str(configuration.bus_bits),
            *(
                f"{configuration.size_bytes(memory) / 1024:g}"
                for memory in (Memory.ACT, Memory.WGT, Memory.ACC)
            ),
            f"{configuration.hash:#010x}",
        )
        for configuration in PRESETS.values()
    ]
    headings = ["name", "MACs a cycle", "vector lanes", "bus bits", "ACT KiB", "WGT KiB", "ACC KiB"]
    stdout().print(table([*headings, "hash"], rows))


def show(arguments: argparse.Namespace) -> None:
    """Print one configuration: value, meaning and legal values of each parameter, resources.

    Raises
    ------
    ConfigurationError
        If it does not exist, or breaks a rule.
    UsageError
        For an unknown device, or one whose resources only synthesis can tell.
    """
    check_json(arguments.json)
    configuration = _chosen(arguments)
    device = find_device(arguments.chip) if arguments.chip else None
    found = resources(configuration, device) if device else smallest_device(configuration)
    if arguments.json:
        write_json(arguments.json, configuration.to_dict())
    if arguments.json == "-":
        return
    rows = [
        (name, str(getattr(configuration, name)), about.meaning, about.legal)
        for name, about in PARAMETERS.items()
    ]
    console = stdout()
    say(f"configuration {configuration_sentence(configuration)}")
    say("")
    explained = table(["parameter", "value", "meaning", "legal values"], rows, left=4)
    for column, share in zip(explained.columns[2:], (3, 2), strict=True):
        column.no_wrap, column.overflow, column.ratio = False, "fold", share
    console.width = terminal_columns()
    console.print(explained)
    derived = [
        (memory.name, f"{configuration.rows(memory)} x {configuration.row_bytes(memory)}",
         str(configuration.banks(memory)), f"{configuration.size_bytes(memory):,}")
        for memory in Memory if memory is not Memory.DRAM
    ]  # fmt: skip
    say("")
    console.print(table(["scratchpad", "rows x bytes", "banks", "bytes"], derived))
    if configuration.extra_operations:
        say(f"\nextra operations: {'; '.join(configuration.extra_operations)}")
    say(f"\ninstruction words of {word_bytes(configuration)} bytes\n")
    _show_resources(configuration, found)


def _show_resources(configuration: Configuration, found: Resources) -> None:
    """Print the resources by unit and their share of a chip, as `tilewright synth` does."""
    device, used = found.device, found.used
    names = device.family.resources
    made = table(
        [f"{device.name}, unit", *(RESOURCES[name] for name in names)],
        (
            [unit, *(f"{of[name]:,}" if of.get(name) else "-" for name in names)]
            for unit, of in found.units.items()
            if any(of.values())
        ),
    )
    made.add_section()
    core = [f"{used[name]:,}" if name in used else "unknown" for name in names]
    made.add_row("core", *core, style="bold")
    if device.capacity:
        shares = (
            f"{used[name] / device.capacity[name]:.0%}" if name in used else "-" for name in names
        )
        made.add_row("chip", *(f"{device.capacity[name]:,}" for name in names))
        made.add_row("share", *shares)
    stdout().print(made)
    errors = {
        RESOURCES[name]: f"{error:.1%}"
        for name in names
        if (error := found.error(name)) is not None
    }
    if errors:
        say(
            f"{' and '.join(errors)} are estimates, in the median {' and '.join(errors.values())} "
            f"off; others are {'counted' if outdated(names) else 'exact'}"
        )
        if left_out := unmeasured_options((configuration,)):
            say(f"the estimates leave out {' and '.join(left_out)}, which no measured machine has")
    for line in outdated_sentences(used):
        say(line)
    if len(used) < len(names):
        words = ["--config", configuration.name, "--chip", device.name, "--no-place"]
        command = " ".join(map(shell_word, words))
        say(f"only synthesis tells what is unknown: `tilewright synth {command}`")
    if found.short:
        say(f"{device.name} has too few: {', '.join(RESOURCES[name] for name in found.short)}")
    clock = clock_of(configuration, device)
    if clock is not None:
        say(f"clock: {clock}")
    elif measured_rows(device):
        say("clock: unknown for this size; measure it with `tilewright synth`")


def check(arguments: argparse.Namespace) -> None:
    """Check that a configuration is legal, and say so.

    Raises
    ------
    ConfigurationError
        If it is not legal; the message lists every broken rule.
    """
    check_json(arguments.json)
    try:
        configuration = _chosen(arguments)
    except ConfigurationError as problem:
        if arguments.json:
            write_json(arguments.json, {"legal": False, "reason": str(problem)})
        raise
    if arguments.json:
        verdict = {"legal": True, "hash": f"{configuration.hash:#010x}", **configuration.to_dict()}
        write_json(arguments.json, verdict)
    if arguments.json != "-":
        say(f"legal: {configuration_sentence(configuration)}")


def _chosen(arguments: argparse.Namespace) -> Configuration:
    return changed(load_configuration(arguments.config), arguments.changes)
