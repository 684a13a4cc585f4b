"""`tilewright config`: list the presets, show a configuration, check a file of parameters."""

import argparse

from ....isa.configuration import PRESETS, Configuration, Memory, load_configuration
from ....isa.encoding import word_bytes
from ...reports import terminal as report
from ..arguments import changed


def add(commands, common: argparse.ArgumentParser) -> None:
    """Add the parsers."""
    parser = commands.add_parser(
        "config", parents=[common], help="list, show, check configurations"
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    actions.add_parser("list", parents=[common], help="the presets").set_defaults(function=list_)
    for name, text, function in (
        ("show", "all parameters and what follows from them", show),
        ("check", "say whether the parameters are legal", check),
    ):
        action = actions.add_parser(name, parents=[common], help=text)
        action.add_argument("config", metavar="NAME|FILE", help="preset or JSON file")
        action.add_argument(
            "--set", action="append", default=[], metavar="PARAM=VALUE", dest="changes",
            help="change one parameter; may be repeated",
        )  # fmt: skip
        action.set_defaults(function=function)
        if name == "show":
            action.add_argument(
                "--json", action="store_true", help="as a file that `--config` reads"
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
    report.stdout().print(report.table([*headings, "hash"], rows))


def show(arguments: argparse.Namespace) -> None:
    """Print one configuration.

    Raises
    ------
    ConfigurationError
        When there is none, or it breaks a rule.
    """
    configuration = _chosen(arguments)
    if arguments.json:
        report.say(configuration.to_json())
        return
    rows = [(name, str(value)) for name, value in configuration.parameters().items()]
    console = report.stdout()
    report.say(f"configuration {report.configuration_sentence(configuration)}")
    console.print(report.table(["parameter", "value"], rows))
    derived = [
        (memory.name, f"{configuration.rows(memory)} x {configuration.row_bytes(memory)}",
         str(configuration.banks(memory)), f"{configuration.size_bytes(memory):,}")
        for memory in Memory if memory is not Memory.DRAM
    ]  # fmt: skip
    report.say("")
    console.print(report.table(["scratchpad", "rows x bytes", "banks", "bytes"], derived))
    report.say(f"\ninstruction words of {word_bytes(configuration)} bytes")


def check(arguments: argparse.Namespace) -> None:
    """Say that a configuration is legal.

    Raises
    ------
    ConfigurationError
        When it is not, with every broken rule.
    """
    report.say(f"legal: {report.configuration_sentence(_chosen(arguments))}")


def _chosen(arguments: argparse.Namespace) -> Configuration:
    return changed(load_configuration(arguments.config), arguments.changes)
