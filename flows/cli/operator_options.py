"""`--operators FILE.py`: operators of the user's own, registered before a model is read.

The option runs the file. So it is never implied: not by a model, an artifact or a folder.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ...errors import CompileError, TilewrightError, UsageError


def add_operators(parser: argparse.ArgumentParser) -> None:
    """Add `--operators`."""
    parser.add_argument(
        "--operators", action="append", type=Path, default=[], metavar="FILE.py",
        help="Python file that is run first, and registers operators of your own with "
        "`tilewright.register_operator`; may be repeated",
    )  # fmt: skip


def load_operators(files: Iterable[Path]) -> None:
    """Run files that register operators.

    Raises
    ------
    UsageError
        If a file cannot be read, or registers nothing.
    TilewrightError
        If a file fails; the message has the line.
    """
    for file in files:
        _load(file)


def _load(file: Path) -> None:
    from ...compiler.registered import REGISTERED

    if not os.path.isfile(file) or file.suffix != ".py":
        raise UsageError(f"`--operators {file}`: expected a Python file, `FILE.py`; check the path")
    before = dict(REGISTERED)
    module = ModuleType(f"tilewright_operators_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        # Not by Python's loader: it would leave compiled code beside the user's file.
        exec(compile(file.read_bytes(), file, "exec"), module.__dict__)
    except TilewrightError:
        raise
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if _is(f, file)]
        where = f", line {lines[-1]}" if lines else ""
        raise CompileError(
            f"`--operators {file}`{where}: expected it to run, got "
            f"`{type(error).__name__}: {error}`; correct the file"
        ) from error
    if all(before.get(key) is found for key, found in REGISTERED.items()):
        raise UsageError(
            f"`--operators {file}`: expected a file that calls `tilewright.register_operator`, got "
            "one that registers nothing"
        )


def _is(frame: traceback.FrameSummary, file: Path) -> bool:
    return Path(frame.filename).resolve() == file.resolve()
