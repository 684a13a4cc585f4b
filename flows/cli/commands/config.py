"""`tilewright config`: list the presets, explain a configuration, check a file of parameters."""

import argparse

from ....isa.configuration import (
    DEFAULT,
    PARAMETERS,
    PRESETS,
    Configuration,
    Memory,
    load_configuration,
)
from ....isa.encoding import word_bytes
from ...area.clock import clock_of
from ...area.resources import Resources, resources, smallest_device
from ...synthesis.devices import RESOURCES, find_device
from ..arguments import changed
from ..console import configuration_sentence, say
from ..tables import stdout, table, terminal_columns


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", parents=[common], help="list the presets")
    listing.set_defaults(function=list_)
    for name, text, function in (
        ("show", "explain every parameter of a configuration", show),
        ("check", "check whether the parameters are legal", check),
    ):
        action = actions.add_parser(name, parents=[common], help=text)
        action.add_argument(
            "config", metavar="NAME|FILE", nargs="?", default=argparse.SUPPRESS,
            help=f"preset or JSON file (default: {DEFAULT.name})",
        )  # fmt: skip
        action.add_argument("--config", default=DEFAULT.name, help=argparse.SUPPRESS)
        action.add_argument(
            "--set", action="append", default=[], metavar="PARAM=VALUE", dest="changes",
            help="change one parameter; may be repeated",
        )  # fmt: skip
        action.set_defaults(function=function)
        if name == "show":
            action.add_argument(
                "--device", metavar="NAME",
                help="chip whose resources are compared (default: the smallest ECP5 with enough)",
            )  # fmt: skip
            action.add_argument(
                "--json", action="store_true", help="print a file that `--config` reads"
            )


def list_(arguments: argparse.Namespace) -> None:
    """Print the presets."""
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
    configuration = _chosen(arguments)
    device = find_device(arguments.device) if arguments.device else None
    found = resources(configuration, device) if device else smallest_device(configuration)
    if arguments.json:
        say(configuration.to_json())
        return
    rows = [
        (name, str(configuration.parameters()[name]), about.meaning, about.legal)
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
    device = found.device
    rows = []
    for name, capacity in device.capacity.items():
        used, error = found.used.get(name), found.error(name)
        kind = "exact" if error is None else f"estimate, {error:.1%} off in the median"
        if used is None:
            rows.append((RESOURCES[name], "-", "-", "only synthesis can tell"))
        else:
            rows.append((RESOURCES[name], f"{used:,}", f"{used / capacity:.0%}", kind))
    about = table(["resources", device.name, "share", ""], rows)
    about.columns[3].justify = "left"
    stdout().print(about)
    if found.short:
        short = ", ".join(RESOURCES[name] for name in found.short)
        say(f"{device.name} has too few: {short}")
    clock = clock_of(configuration, device)
    if clock is not None:
        say(f"clock: {clock}")


def check(arguments: argparse.Namespace) -> None:
    """Check that a configuration is legal, and say so.

    Raises
    ------
    ConfigurationError
        If it is not legal; the message lists every broken rule.
    """
    say(f"legal: {configuration_sentence(_chosen(arguments))}")


def _chosen(arguments: argparse.Namespace) -> Configuration:
    return changed(load_configuration(arguments.config), arguments.changes)
