"""`tilewright clean`: list and remove what Tilewright keeps outside of its own folder."""

import argparse
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ....errors import UsageError
from ....runtime.known_machines import MACHINES
from ....signing import key_path
from ....sim.cache import cache_folder
from ..console import say

MADE_AGAIN: Mapping[str, str] = {
    "host": "speed of this processor",
    "kernels": "machine code for this processor",
    "native": "libraries of the simulators",
    "networks": "compiled networks",
    "rtl": "simulators of the hardware",
    "synthesis": "synthesised and placed machines",
}
"""Folder in the cache -> its content, which commands make again when they need it."""

SWEEPS = "sweeps"
RECORDS = "records.db"
"""Results of sweeps, and the journals that SQLite keeps beside them; another name is the user's."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A file or folder that Tilewright made."""

    path: Path
    content: str

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files, links not followed."""
        inside = self.path.rglob("*") if self.path.is_dir() else ()
        return sum(each.lstat().st_size for each in (self.path, *inside))

    def remove(self) -> None:
        """Remove it; a link, never what it leads to."""
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--all", action="store_true",
        help="also what does not come back by itself: the results of sweeps, the machines of "
        "boards, and the key that marks your artifacts",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(function=clean)


def clean(arguments: argparse.Namespace) -> None:
    """List, ask, and remove.

    Raises
    ------
    UsageError
        Where nobody can be asked.
    """
    found = kept(everything=arguments.all)
    if not found:
        say("nothing to remove")
        return
    for each in found:
        say(f"{megabytes(each.size_bytes):>9}  {each.path}  {each.content}")
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise UsageError("`clean`: nobody to ask; add `--yes` to remove what is listed")
        if input("remove all of this? [y/N] ").strip().lower() not in ("y", "yes"):
            say("nothing removed")
            return
    for each in found:
        each.remove()
    for folder in (cache_folder() / SWEEPS, cache_folder(), key_path().parent):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
    say(f"removed {len(found)}; `make clean` in the clone removes the rest")


def kept(*, everything: bool) -> list[Kept]:
    """Find what Tilewright keeps; other files in these folders are the user's."""
    cache = cache_folder()
    found = [Kept(cache / name, content) for name, content in MADE_AGAIN.items()]
    if everything:
        records = sorted((cache / SWEEPS).glob(f"{RECORDS}*"))
        found += [Kept(path, "results of your sweeps") for path in records]
        found.append(Kept(cache / MACHINES, "machines of the boards that you built"))
        found.append(Kept(key_path(), "the key that marks your artifacts"))
    return [each for each in found if each.path.exists() or each.path.is_symlink()]


def megabytes(count: int) -> str:
    """Return bytes as a table shows them."""
    return f"{count / 1e6:,.1f} MB"
