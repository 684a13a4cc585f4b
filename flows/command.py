"""The command line `tilewright`: parse, call the command, turn errors into one line and a code.

Exit codes: 0 all went well, 1 the user's model, design or data, 2 usage, 3 a missing tool,
130 interrupted, 141 the reader of a pipe went away.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from .. import __version__
from ..errors import TilewrightError, UsageError
from ..isa.configuration import CONTRACT_VERSION
from .commands import ablation, config, doctor, inspect, run, what_if
from .commands import compile as compile_command
from .commands import report as report_command

INTERRUPTED = 130
PIPE_CLOSED = 141


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print, so that all errors look alike."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} --help` shows what there is")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "-v", "--verbose", action="store_true", default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )  # fmt: skip
    made = _Parser(
        prog="tilewright",
        description="Compile quantised networks for a tensor accelerator and run them on it.",
        parents=[common],
    )
    made.add_argument(
        "--version",
        action="version",
        version=f"tilewright {__version__} (contract {CONTRACT_VERSION})",
    )
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listed = run, report_command, what_if, ablation, compile_command, inspect, config, doctor
    for command in listed:
        command.add(commands, common)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)

    def call() -> None:
        parsed = parser().parse_args(given)
        parsed.function(parsed)

    return guarded(call, verbose=not {"-v", "--verbose"}.isdisjoint(given))


def guarded(call: Callable[[], None], *, verbose: bool = False) -> int:
    """Call, turn what is raised into one line on stderr, and return the exit code.

    Parameters
    ----------
    verbose
        Show the traceback too.
    """
    try:
        call()
        sys.stdout.flush()
    except TilewrightError as problem:
        return _fail(str(problem), problem.exit_code, verbose)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED, verbose)
    except BrokenPipeError:
        # What is still buffered would raise again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as problem:
        return _fail(
            f"unexpected {type(problem).__name__}: {problem}; this is a fault of Tilewright: call "
            "the command again with `-v` and report what it prints",
            1,
            verbose,
        )
    return 0


def _fail(message: str, code: int, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
