"""`tilewright export`: a network as C, for a board without an operating system."""

import argparse
from dataclasses import asdict
from pathlib import Path

from ....compiler.module import Module
from ...bare_metal.folder import ObjectCode, check_folder, object_code, write_folder
from ...bare_metal.network import Sizes, network_in_c
from ...execution.timed import require_segments
from ..arguments import add_configuration, add_json, chosen_configuration, load_module
from ..console import configuration_sentence, say
from ..json_output import check_json, write_json
from ..memory_options import add_memory, memory_model
from ..operator_options import add_operators


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file or artifact")
    add_operators(parser)
    parser.add_argument(
        "--c", type=Path, required=True, dest="folder", metavar="DIR",
        help="folder for driver, program, constants and host steps in C99, and their Makefile",
    )  # fmt: skip
    add_configuration(parser)
    add_memory(parser, "main memory of the board")
    add_json(parser, "the sizes")
    parser.set_defaults(function=export)


def export(arguments: argparse.Namespace) -> None:
    """Write a network as C, and print its sizes.

    Raises
    ------
    TilewrightError
        For a problem with the model, a host step that C cannot express, or the folder.
    """
    check_json(arguments.json)
    check_folder(arguments.folder)
    memory = memory_model(arguments, arguments.source)
    module = load_module(arguments.source, chosen_configuration(arguments), memory=memory)
    require_segments(module, "programs to export")
    network = network_in_c(module)
    folder = arguments.folder
    files = write_folder(folder, network)
    code = object_code(folder)
    if arguments.json:
        machine = module.configuration
        write_json(
            arguments.json,
            {
                "network": module.name,
                "configuration": {"name": machine.name, "hash": f"{machine.hash:#010x}"},
                "folder": str(folder),
                "files": files,
                "bytes": asdict(network.sizes),
                "code": code and asdict(code),
            },
        )
    if arguments.json != "-":
        show(folder, module, network.sizes, code)


def show(folder: Path, module: Module, sizes: Sizes, code: ObjectCode | None) -> None:
    """Print the sizes."""
    say(f"network        {module.name}, in `{folder}`")
    say(f"configuration  {configuration_sentence(module.configuration)}")
    say(f"program        {sizes.program:,} bytes, {sizes.clearing:,} more clear the scratchpads")
    say(f"constants      {sizes.constants:,} bytes")
    say(f"memory         {sizes.memory:,} bytes that CPU and core share, with all of these")
    say(f"values         {sizes.values:,} bytes of the CPU's own memory")
    if code is not None:
        say(f"code           {code.text_bytes:,} bytes (`{code.compiler} -Os`)")
    say(f"next           make -C {folder} BOARD=../board.h; see docs/bare-metal.md")
