"""The source files that determine the generated Verilog: the hardware and its imports.

Hashing all of `isa/` would be simpler, but then a change to the checker would discard the cached
Verilog of every configuration.
"""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]

_IMPORT = re.compile(r"^ *from (?P<dots>\.+)(?P<module>[\w.]*) import", re.MULTILINE)


@cache
def hardware_sources() -> tuple[Path, ...]:
    """All files of `hardware/`, and all files of the package that they import, directly or not."""
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
    for match in _IMPORT.finditer(path.read_text()):
        folder = path.parents[len(match["dots"]) - 1]
        target = folder.joinpath(*match["module"].split(".")) if match["module"] else folder
        candidates = (target.with_suffix(".py"), target / "__init__.py")
        files += [file for file in candidates if file.is_file()]
    return files
