"""`tilewright flash`: load a bitstream into a board through openFPGALoader."""

import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path

from ....errors import HardwareError, ToolError, UsageError
from ....hardware.soc.boards import BOARDS, Board, find_board
from ...board.bitstream import REPORT
from ...board.design import usual_folder
from ..console import say

PROGRAM, VARIABLE = "openFPGALoader", "OPENFPGALOADER"


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "folder", type=Path, nargs="?", metavar="FOLDER", help="folder that `build` wrote"
    )
    parser.add_argument(
        "--board", metavar="NAME", help="the board, for its usual folder build/BOARD"
    )
    parser.add_argument(
        "--keep", action="store_true",
        help="write the board's flash memory, so that the bitstream stays after power-off",
    )  # fmt: skip
    parser.set_defaults(function=flash)


def flash(arguments: argparse.Namespace) -> None:
    """Run openFPGALoader on the bitstream of a build.

    Raises
    ------
    UsageError
        Without a build.
    ToolError
        If openFPGALoader is missing.
    HardwareError
        If it fails.
    """
    board, bitstream = find_bitstream(chosen_folder(arguments))
    command = [find_loader(), "-b", board.programmer]
    command += ["-f"] if arguments.keep else []
    say(f"{board.name}: loading {bitstream}")
    code = subprocess.run([*command, str(bitstream)], check=False).returncode
    if code:
        raise HardwareError(
            f"board `{board.name}`: openFPGALoader failed with code {code}; check that the board "
            "is connected, and that you may open its USB device"
        )


def chosen_folder(arguments: argparse.Namespace) -> Path:
    """Return the folder of the build.

    Raises
    ------
    UsageError
        Without a folder and a board, or with both.
    """
    if (arguments.folder is None) == (arguments.board is None):
        raise UsageError(
            "`flash`: expected either the folder of a build or `--board`; give one of them"
        )
    return arguments.folder or usual_folder(find_board(arguments.board).name)


def find_bitstream(folder: Path) -> tuple[Board, Path]:
    """Return the board and the bitstream of a build.

    Raises
    ------
    UsageError
        If the folder holds no build.
    """
    try:
        report = json.loads((folder / REPORT).read_text("utf-8"))
        board, bitstream = BOARDS[report["board"]], folder / Path(report["bitstream"]).name
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            f"folder `{folder}`: expected the bitstream of a build, got none; run `tilewright "
            "build --board NAME` first"
        ) from None
    if not bitstream.is_file():
        raise UsageError(f"file `{bitstream}`: there is none; run `tilewright build` again")
    return board, bitstream


def find_loader() -> str:
    """Return the path of openFPGALoader.

    Raises
    ------
    ToolError
        If it is missing.
    """
    found = shutil.which(os.environ.get(VARIABLE, PROGRAM))
    if found is None:
        raise ToolError(
            f"flash: no `{PROGRAM}` found; install it (Debian and Ubuntu: `apt install "
            f"openfpgaloader`), or set `{VARIABLE}`"
        )
    return found
