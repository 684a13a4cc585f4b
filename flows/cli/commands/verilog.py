"""`tilewright verilog`: write the Verilog of a configuration, for other tools and for reading."""

import argparse
import json
import sys
from pathlib import Path

from ....atomic_write import make_output_folder, write_files, write_output
from ....errors import UsageError, did_you_mean
from ....hardware.technology import Technology
from ....isa.configuration import DEFAULT
from ..arguments import add_configuration, chosen_configuration
from ..console import configuration_sentence, say
from ..progress import progress_bar

PORTABLE = "portable"
TECHNOLOGIES = {
    PORTABLE: None,
    **{kind.value: kind for kind in Technology if kind is not Technology.SIMULATION},
}
"""Technologies by name; the simulator's stays inside."""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    add_configuration(parser)
    parser.add_argument(
        "--technology", type=str.lower, default=PORTABLE, metavar="NAME",
        help=f"cells to build from: {', '.join(TECHNOLOGIES)} (default: {PORTABLE})",
    )  # fmt: skip
    parser.add_argument(
        "--multipliers", type=int, metavar="N",
        help="18 x 18 multipliers of the chip; without enough, products are built from logic",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.v", help="file to write (default: stdout)"
    )
    parser.add_argument(
        "--memories", type=Path, metavar="FILE.json",
        help="also list the memories: instance, words, bits, ports",
    )  # fmt: skip
    parser.add_argument(
        "--package", type=Path, metavar="DIR",
        help="folder for the core with an AXI4 wrapper, a FuseSoC and an IP-XACT description, and "
        "a data sheet",
    )  # fmt: skip
    parser.set_defaults(function=verilog)


def verilog(arguments: argparse.Namespace) -> None:
    """Write the Verilog.

    Raises
    ------
    UsageError
        For an unknown technology, or a file that cannot be written.
    ConfigurationError
        For an unknown configuration, or one that breaks a rule.
    """
    name, output = arguments.technology, arguments.output
    if name not in TECHNOLOGIES:
        raise UsageError(
            f"`--technology {name}`: expected one of {', '.join(TECHNOLOGIES)}"
            + did_you_mean(name, TECHNOLOGIES, "; choose one")
        )
    if output is not None and output.suffix not in (".v", ".sv"):
        raise UsageError(
            f"`--output {output}`: expected a name that ends in `.v` or `.sv`; rename it"
        )
    listed = arguments.memories
    if listed is not None and listed.suffix != ".json":
        raise UsageError(f"`--memories {listed}`: expected a name that ends in `.json`; rename it")
    folder = arguments.package
    if arguments.multipliers is not None and arguments.multipliers < 0:
        raise UsageError(f"`--multipliers {arguments.multipliers}`: expected 0 or more; correct it")
    if folder is not None and (output or listed or arguments.multipliers is not None):
        raise UsageError(
            "`--package`: expected no `-o`, `--memories` or `--multipliers` beside it; the folder "
            "holds all files"
        )
    configuration = chosen_configuration(arguments) or DEFAULT
    # Imported here: a wrong argument needs no hardware description language.
    from ....hardware.verilog import TOP
    from ...verilog.package import write_package
    from ...verilog.readable import write_core

    if folder is not None:
        make_output_folder(folder, "--package")
    with progress_bar() as advance:
        advance(f"generating the Verilog of `{configuration.name}`", 0, None)
        if folder is None:
            text, memories = write_core(configuration, TECHNOLOGIES[name], arguments.multipliers)
        else:
            package = write_package(configuration, TECHNOLOGIES[name])
    if folder is not None:
        for path in write_files(folder, package.files):
            say(str(path))
        return
    if listed is not None:
        rows = [memory.to_json() for memory in memories]
        write_output(listed, json.dumps(rows, indent=2) + "\n", f"`--memories {listed}`")
    if output is None:
        sys.stdout.write(text)
        return
    write_output(output, text, f"`--output {output}`")
    lines = text.count("\n")
    say(f"{output}: {lines:,} lines, top module `{TOP}`, {configuration_sentence(configuration)}")
