"""`tilewright build`: a bitstream of a configuration for a board, or its vendor's project."""

import argparse
from contextlib import nullcontext
from pathlib import Path

from ....atomic_write import refuse_foreign
from ....errors import HardwareError, UsageError
from ....hardware.technology import Technology
from ....quoting import shell_word
from ....runtime.known_machines import remember_machine
from ...board.bitstream import (
    Built,
    build,
    names_of,
    resource_sentence,
    timing_problem,
    write_bitstream,
)
from ...board.design import Design, usual_folder
from ...board.known_boards import find_board
from ...board.processors import ZynqBoard
from ...board.quartus import COMMAND as QUARTUS
from ...board.quartus import write_quartus_project
from ...board.vivado import COMMAND as VIVADO
from ...board.vivado import ZynqDesign, write_project
from ...board.vivado_system import to_json, write_system_project
from ...synthesis.devices import DEVICES
from ...synthesis.report import path_table
from ..arguments import add_configuration
from ..board_options import BOARD_HELP, configuration_of, design_of
from ..console import configuration_sentence, note, say
from ..json_output import add_json, check_json, write_json
from ..live_page import add_serve
from ..live_steps import LiveSteps
from ..progress import progress_bar
from ..tables import stdout

USUAL_SEEDS = 5


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("--board", metavar="NAME|FILE.toml", help=BOARD_HELP)
    add_configuration(parser, "the board's, see `tilewright boards`")
    parser.add_argument(
        "--clock", type=float, metavar="MHZ",
        help="clock that the design must reach (default: the board's)",
    )  # fmt: skip
    parser.add_argument(
        "--baud", type=int, metavar="N",
        help="bits a second of the serial port (default: the board's)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=int, metavar="N",
        help=f"place up to N times, until the clock is reached (default: {USUAL_SEEDS})",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER",
        help="folder for the results (default: build/BOARD)",
    )  # fmt: skip
    add_json(parser, "the report")
    add_serve(parser)
    parser.set_defaults(function=build_board)


def build_board(arguments: argparse.Namespace) -> None:
    """Build the bitstream with its report; for a chip of AMD's, write a project.

    Raises
    ------
    UsageError
        For a wrong argument.
    ToolError
        If a tool is missing.
    HardwareError
        If the design does not fit the chip, or misses its clock.
    """
    check_json(arguments.json)
    if arguments.board is None:
        raise UsageError(
            "`--board`: expected one of the boards that `tilewright boards` lists, or a board "
            "file, got none; choose one"
        )
    check_numbers(arguments)
    board = find_board(arguments.board)
    if arguments.serve and DEVICES[board.device].family.packer is None:
        raise UsageError(
            f"`--serve`: expected a board whose bitstream is built here, got `{board.name}`, whose "
            "project is written at once; leave it out"
        )
    if isinstance(board, ZynqBoard):
        build_project(board, arguments)
        return
    design = design_of(board, arguments)
    remember_machine(design.configuration)
    folder = arguments.output or usual_folder(design.board.name)
    shows = arguments.json != "-"
    if shows:
        introduce(design)
    if design.device.family.packer is None:
        build_system_project(design, arguments, folder)
        return
    refuse_foreign(folder, names_of(design))
    live = LiveSteps(f"{design.configuration.name} on {board.name}") if arguments.serve else None
    if live:
        note(f"{live.page.address}: watch the build in a browser")
    with progress_bar() as advance, live.beside(advance) if live else nullcontext(advance) as tell:
        built = build(design, arguments.seeds or USUAL_SEEDS, tell)
    bitstream = write_bitstream(built, folder) if built.meets_clock else None
    if arguments.json:
        write_json(arguments.json, built.to_json(bitstream))
    if shows:
        show(built, bitstream)
    if live:
        live.end(timing_problem(built) if bitstream is None else f"bitstream: {bitstream}")
        live.page.keep("the build")
    if bitstream is None:
        raise HardwareError(timing_problem(built))


def check_numbers(arguments: argparse.Namespace) -> None:
    """Reject numbers that are out of range.

    Raises
    ------
    UsageError
        For the first one.
    """
    for option, least, most in (("clock", 1, 400), ("baud", 1_200, 12_000_000), ("seeds", 1, 1000)):
        value = getattr(arguments, option)
        if value is not None and not least <= value <= most:
            raise UsageError(f"`--{option} {value:g}`: expected {least} to {most}; correct it")


def build_project(board: ZynqBoard, arguments: argparse.Namespace) -> None:
    """Write a project for Vivado.

    Raises
    ------
    UsageError
        For an argument that is wrong, or has no effect.
    TilewrightError
        For an illegal configuration, or one that does not fit the chip.
    """
    for option in ("baud", "seeds"):
        if getattr(arguments, option) is not None:
            raise UsageError(f"`--{option}`: board `{board.name}` has no use for it; leave it out")
    configuration = configuration_of(board.configuration, arguments)
    remember_machine(configuration)
    clock_mhz = arguments.clock or board.clock_mhz
    design = ZynqDesign(board, configuration, clock_mhz)
    files = write_project(design, arguments.output or usual_folder(board.name))
    if arguments.json:
        write_json(arguments.json, design.to_json(files))
    if arguments.json == "-":
        return
    address = f"zynq:///PATH/{board.name}.bit"
    say(f"board          {board.name}: {board.part}")
    say(f"configuration  {configuration_sentence(configuration)}")
    say(f"clock          {clock_mhz:g} MHz")
    say(f"project        {', '.join(str(file) for file in files)}")
    say(f"next           {VIVADO} {shell_word(str(files[-1]))}")
    say(f"then           on the board: open_device({address!r}, configuration)")


def build_system_project(design: Design, arguments: argparse.Namespace, folder: Path) -> None:
    """Write a project for the vendor's tool of a board without processors.

    Raises
    ------
    UsageError
        For an argument that has no effect, or a folder that cannot be written.
    """
    board = design.board
    if arguments.seeds is not None:
        raise UsageError(f"`--seeds`: board `{board.name}` has no use for it; leave it out")
    quartus = design.technology is Technology.CYCLONE5
    files = (write_quartus_project if quartus else write_system_project)(design, folder)
    if arguments.json:
        write_json(arguments.json, to_json(design, files))
    if arguments.json == "-":
        return
    say(f"project        {', '.join(str(file) for file in files)}")
    tool = QUARTUS if quartus else VIVADO
    say(f"next           {tool} {shell_word(str(files[-1]))}")
    if board.programmer:
        bitstream = folder / f"{board.name}.bit"
        say(f"then           openFPGALoader -b {board.programmer} {shell_word(str(bitstream))}")


def introduce(design: Design) -> None:
    """Print what is built."""
    board = design.board
    say(f"board          {board.name}: {board.part}, oscillator {board.oscillator_hz / 1e6:g} MHz")
    say(f"configuration  {configuration_sentence(design.configuration)}")
    say(f"clock          {design.clock_hz / 1e6:g} MHz")
    say(f"memory         {design.memory_sentence}")
    say(f"serial port    {board.baud:,} baud, {board.adapter}")


def show(built: Built, bitstream: Path | None) -> None:
    """Print the result."""
    say(f"resources      {resource_sentence(built)}")
    clocks = [f"{each.clock_mhz:.1f} MHz with seed {each.seed}" for each in built.placements]
    say(f"placed         {', '.join(clocks)}")
    if bitstream is None:
        stdout().print(path_table(built.best.path))
        return
    board, configuration = built.design.board, built.design.configuration
    say(f"bitstream      {bitstream} ({bitstream.stat().st_size:,} bytes)")
    if board.programmer:
        say(f"next           tilewright flash {shell_word(str(bitstream.parent))}")
    address = shell_word(f"serial:///dev/ttyUSB0?baud={board.baud}")
    say(
        f"then           tilewright run MODEL --config {shell_word(configuration.name)} "
        f"--device {address}"
    )
