"""The folder of an export: its files, and the size of its object code."""

import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ...atomic_write import RECORD, write_files
from ...errors import UsageError
from ...sim.toolchain import call
from .network import FILES, CNetwork

ASSETS = Path(__file__).parent / "assets"
"""The driver, the host steps and the Makefile, which are the same for all networks."""

CODE = ("host_steps.c", "network.c", "tilewright.c")
"""Files with code; the others hold data."""

BUILT_SUFFIXES = (".o", ".a")
"""Suffixes of the files that the Makefile writes."""

FLAGS = ("-std=c99", "-Os", "-DTILEWRIGHT_REGISTERS=0x40000000u", "-DTILEWRIGHT_MEMORY=0x80000000u")
"""Flags for measuring the size of the code; the addresses are arbitrary."""


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """Bytes of machine code, and of read-only data beside programs and constants."""

    text_bytes: int
    compiler: str


def check_folder(folder: Path) -> None:
    """Reject a folder with files that neither an export nor its Makefile writes.

    Raises
    ------
    UsageError
        With the name of one.
    """
    ours = {*(path.name for path in ASSETS.iterdir()), *FILES, RECORD}
    try:
        others = sorted(
            path.name
            for path in folder.iterdir()
            if path.name not in ours and path.suffix not in BUILT_SUFFIXES
        )
    except FileNotFoundError:
        return
    except OSError as problem:
        raise _refusal(folder, problem) from None
    if others:
        raise UsageError(
            f"`--c {folder}`: expected a new folder or an earlier export, got one with "
            f"`{others[0]}`; choose another folder"
        )


def write_folder(folder: Path, network: CNetwork) -> list[str]:
    """Write all files of an export, over those of an earlier one, and return their names.

    Raises
    ------
    UsageError
        If the folder holds other files, or cannot be written.
    """
    check_folder(folder)
    files = {path.name: path.read_text("utf-8") for path in ASSETS.iterdir()} | dict(network.files)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise _refusal(folder, problem) from None
    write_files(folder, files)
    return sorted(files)


def _refusal(folder: Path, problem: OSError) -> UsageError:
    return UsageError(
        f"`--c {folder}`: expected a folder, got `{problem.strerror}`; choose another path"
    )


def object_code(folder: Path) -> ObjectFile | None:
    """Compile the code of an export for size; None without a compiler or `size`.

    Raises
    ------
    ToolError
        If the compiler, `CC` or `cc`, does not compile it.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not compiler or not shutil.which(compiler[0]) or not shutil.which("size"):
        return None
    with tempfile.TemporaryDirectory() as beside:
        objects = [str(Path(beside) / f"{name}.o") for name in CODE]
        for name, target in zip(CODE, objects, strict=True):
            command = [*compiler, *FLAGS, "-c", str(folder / name), "-o", target]
            call(command, name, "size of the code")
        done = subprocess.run(["size", *objects], capture_output=True, text=True, check=False)
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    if done.returncode or len(rows) != len(CODE):
        return None
    return ObjectFile(sum(int(row[0]) for row in rows), shlex.join(compiler))
