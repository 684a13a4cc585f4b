"""Code lines by folder: what remains without docstrings, comments, blank lines and imports.

`python -m tilewright.flows.bench.code_lines [FOLDER ...]` counts the Python files of the folders,
by default all of the package, and of each of their subfolders.
"""

import argparse
import ast
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..cli.main import guarded

ROOT = Path(__file__).parents[2]
FOLDERS = ("isa", "hardware", "compiler", "sim", "runtime", "flows", "tests", "examples")
SILENT = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER, tokenize.ENCODING,
)  # fmt: skip
"""Tokens that make no line of code."""


def code_lines(path: Path) -> int:
    """Return the code lines of a Python file.

    A string that is a whole statement counts as a docstring, since it documents what is above it.
    """
    tree = ast.parse(path.read_bytes())
    left_out = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    with path.open("rb") as file:
        lines = {
            line
            for token in tokenize.tokenize(file.readline)
            if token.type not in SILENT
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(lines - left_out)


def count(folders: Iterable[Path]) -> Counter[str]:
    """Return the code lines of each folder and each of its subfolders, by path."""
    found: Counter[str] = Counter()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            inner = path.relative_to(folder).parts[:-1]
            lines = code_lines(path)
            found[folder.name] += lines
            if inner:
                found[f"{folder.name}/{inner[0]}"] += lines
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.code_lines", description=__doc__
    )
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER")
    folders = parser.parse_args(arguments).folders or [ROOT / name for name in FOLDERS]

    def call() -> None:
        for name, lines in sorted(count(folders).items()):
            print(f"{lines:8,}  {name}")

    return guarded(call)


if __name__ == "__main__":
    sys.exit(main())
