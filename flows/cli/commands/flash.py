"""`tilewright flash`: load a bitstream into a board through openFPGALoader."""

import argparse
import os
import re
import shutil
import subprocess
from pathlib import Path

from ....errors import HardwareError, ToolError, UsageError
from ....file_access import read_json
from ....quoting import shell_word
from ...board.bitstream import REPORT
from ...board.board_schema import NAME
from ...board.design import usual_folder
from ...board.known_boards import find_board, known_boards
from ..console import say

PROGRAM, VARIABLE = "openFPGALoader", "OPENFPGALOADER"


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, nargs="?", metavar="FOLDER", help="folder that `build` wrote"
    )
    parser.add_argument(
        "--board", metavar="NAME|FILE.toml", help="the board, for its usual folder build/BOARD"
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
    board, programmer, bitstream = find_bitstream(chosen_folder(arguments), arguments.board)
    if not programmer:
        raise UsageError(
            f"board `{board}`: expected `programmer` in its file, the name by which openFPGALoader "
            f"knows it, got none; load `{bitstream}` with the vendor's tool"
        )
    command = [find_loader(), "-b", programmer]
    command += ["-f"] if arguments.keep else []
    say(f"{board}: loading {bitstream}")
    code = subprocess.run([*command, str(bitstream)], check=False).returncode
    if code:
        raise HardwareError(
            f"board `{board}`: openFPGALoader failed with code {code}; check that the board "
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


def find_bitstream(folder: Path, asked: str | None = None) -> tuple[str, str, Path]:
    """Return the name of the board, that of its programmer, and the bitstream of a build.

    Parameters
    ----------
    asked
        The board as the user named it, for messages; None for the one of the folder's name.

    Raises
    ------
    UsageError
        If the folder holds no build.
    """
    try:
        report = read_json(folder / REPORT)
        board, programmer, file = (report[key] for key in ("board", "programmer", "bitstream"))
        file = Path(file).name
        if not all(re.fullmatch(NAME, name) for name in (board, programmer or "none", file)):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            f"folder `{folder}`: expected the bitstream of a build, got none; "
            + (_vendor_remedy(folder) or _build_remedy(folder, asked))
        ) from None
    bitstream = folder / file
    if not bitstream.is_file():
        raise UsageError(f"file `{bitstream}`: there is none; run `tilewright build` again")
    return board, programmer, bitstream


def _vendor_remedy(folder: Path) -> str:
    """Tell what follows on a project for the vendor's tool; empty if the folder has none."""
    from ...board import quartus, vivado, vivado_system  # slow: they bring the hardware

    for script, command in (
        (vivado.SCRIPT, vivado.COMMAND),
        (vivado_system.SCRIPT, vivado.COMMAND),
        (quartus.SCRIPT, quartus.COMMAND),
    ):
        if (folder / script).is_file():
            return (
                f"the vendor's tool makes it, `{command} {shell_word(str(folder / script))}`, and "
                "loads it as `tilewright build` printed"
            )
    return ""


def _build_remedy(folder: Path, asked: str | None) -> str:
    if asked is None:
        name = folder.resolve().name
        asked = name if name in known_boards() else "NAME"
    return f"run `tilewright build --board {shell_word(asked)}` first"


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
