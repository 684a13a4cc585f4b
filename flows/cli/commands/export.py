"""`tilewright export`: a network as C for a board without an operating system, or as hex files."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ....atomic_write import make_output_folder
from ....compiler.module import Module
from ....errors import UsageError
from ....isa.memory_model import MemoryModel
from ....quoting import shell_word
from ...bare_metal.folder import ObjectFile, check_folder, object_code, write_folder
from ...bare_metal.network import Sizes, network_in_c
from ...execution.samples import random_samples, read_samples
from ...execution.timed import require_segments
from ..arguments import USUAL_OR_BOARDS, add_configuration, chosen_configuration, load_module
from ..console import configuration_sentence, say
from ..json_output import add_json, check_json, write_json
from ..memory_options import add_memory, memory_model
from ..operator_options import add_operators
from ..progress import progress_bar


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file or artifact")
    add_operators(parser)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--c", type=Path, dest="folder", metavar="DIR",
        help="folder for driver, program, constants and host steps in C99, and their Makefile",
    )  # fmt: skip
    target.add_argument(
        "--hex", type=Path, metavar="DIR",
        help="folder for main memory before and after a run as hex files, the core, and benches in "
        "Verilog and cocotb",
    )  # fmt: skip
    parser.add_argument(
        "--input", type=Path, metavar="FILE",
        help=".npz or .npy whose first sample `--hex` runs (default: random)",
    )  # fmt: skip
    add_configuration(parser, USUAL_OR_BOARDS)
    add_memory(parser, "main memory of the board")
    add_json(parser, "the sizes")
    parser.set_defaults(function=export)


def export(arguments: argparse.Namespace) -> None:
    """Write a network as C or as hex files, and print its sizes.

    Raises
    ------
    TilewrightError
        For a problem with the model, a host step that C cannot express, or the folder.
    """
    check_json(arguments.json)
    given, bench = arguments.input, arguments.hex
    if bench is None and given is not None:
        raise UsageError("`--input`: expected `--hex DIR`; the C takes its inputs when it runs")
    folder = arguments.folder
    if folder is not None:
        check_folder(folder)
    elif bench is not None:  # argparse wants one of them
        make_output_folder(bench, "--hex")
    module = load_module(
        arguments.source,
        chosen_configuration(arguments),
        memory=memory_model(arguments, arguments.source),
        check=lambda graph: given and read_samples(given, graph),
    )
    require_segments(module, "programs to export")
    if folder is None:
        export_hex(arguments, module)
    else:
        export_c(arguments, module, folder)


def export_c(arguments: argparse.Namespace, module: Module, folder: Path) -> None:
    """Write a network as C, and print its sizes."""
    network = network_in_c(module)
    files = write_folder(folder, network)
    code = object_code(folder)
    if arguments.json:
        write_json(
            arguments.json,
            {
                **_written(module, folder, files),
                "bytes": asdict(network.sizes),
                "code": code and asdict(code),
            },
        )
    if arguments.json != "-":
        show(folder, module, network.sizes, code)


def _written(module: Module, folder: Path, files: Sequence[str]) -> dict[str, object]:
    """Return what both exports tell machines."""
    machine = module.configuration
    return {
        "network": module.name,
        "configuration": {"name": machine.name, "hash": f"{machine.hash:#010x}"},
        "folder": str(folder),
        "files": files,
    }


def export_hex(arguments: argparse.Namespace, module: Module) -> None:
    """Write a network with benches, and print its sizes."""
    # Imported here: it brings the hardware description language, which takes time.
    from ...hex_export.folder import network_in_hex, write_hex

    graph, folder = module.graph, arguments.hex
    samples = (
        read_samples(arguments.input, graph) if arguments.input else random_samples(graph, 1, 0)
    )
    with progress_bar() as advance:
        advance("running the network and generating the core", 0, None)
        export = network_in_hex(module, next(iter(samples)))
        files = write_hex(folder, export)
    if arguments.json:
        write_json(
            arguments.json,
            {
                **_written(module, folder, files),
                "bytes": {"memory": export.memory_bytes},
                "runs": export.runs,
                "cycles": export.cycles,
            },
        )
    if arguments.json != "-":
        say(f"network        {module.name}, in `{folder}`")
        say(f"configuration  {configuration_sentence(module.configuration)}")
        say(f"memory         {export.memory_bytes:,} bytes, with programs, constants and inputs")
        usual = MemoryModel().latency_cycles
        say(
            f"runs           {export.runs}, about {export.cycles:,} cycles with a latency of "
            f"{usual}; fewer in the benches, whose memory is faster"
        )
        say(f"next           python {shell_word(str(folder / 'run_cocotb.py'))} test_network")
        say("or             run `bench.v` with `core.v` elsewhere; see docs/guide/integrate.md")


def show(folder: Path, module: Module, sizes: Sizes, code: ObjectFile | None) -> None:
    """Print the sizes."""
    say(f"network        {module.name}, in `{folder}`")
    say(f"configuration  {configuration_sentence(module.configuration)}")
    say(f"program        {sizes.program:,} bytes, {sizes.clearing:,} more clear the scratchpads")
    say(f"constants      {sizes.constants:,} bytes")
    say(f"memory         {sizes.memory:,} bytes that CPU and core share, with all of these")
    say(f"values         {sizes.values:,} bytes of the CPU's own memory")
    if code is not None:
        say(f"code           {code.text_bytes:,} bytes (`{code.compiler} -Os`)")
    say("next           write `board.h` beside the folder; its lines: docs/guide/bare-metal.md")
    say(f"then           make -C {shell_word(str(folder))} BOARD=../board.h")
