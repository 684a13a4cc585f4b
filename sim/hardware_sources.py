"""The source files that the generated Verilog follows from: the hardware and what it imports.

Everything in `isa/` would do as well, but a change of the checker or of the random programs would
then cost every configuration its kept Verilog.
"""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]

_IMPORT = re.compile(r"^ *from (?P<dots>\.+)(?P<module>[\w.]*) import", re.MULTILINE)


@cache
def hardware_sources() -> tuple[Path, ...]:
    """All files of `hardware/`, and all files of the package that they import, in turn."""
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
