"""The command line `tilewright`: parse, call the command, turn errors into one line and a code.

Exit codes: 0 all went well, 1 the user's model, design or data, 2 usage, 3 a missing tool,
130 interrupted, 141 the reader of a pipe went away.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from ... import __version__
from ...errors import TilewrightError, UsageError
from ...isa.configuration import CONTRACT_VERSION

COMMANDS = (
    *("run", "report", "what_if", "ablation", "compile", "inspect", "passes", "config", "doctor"),
    *("quantise", "conformance"),
)
"""Files of `commands/`, in the order in which `--help` shows them."""

INTERRUPTED = 130
PIPE_CLOSED = 141


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print, so that all errors look alike."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} --help` shows what there is")


def parser(given: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of all commands, or of the one that a command line names.

    Each command imports what it works with, and nobody shall wait for what another one needs.
    """
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
    commands = made.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True
    )
    word = next((word for word in given if not word.startswith("-")), "")
    named = [name for name in COMMANDS if name.replace("_", "-") == word]
    for name in named or COMMANDS:
        import_module(f".commands.{name}", __package__).add(commands, common)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)

    def call() -> None:
        parsed, unknown = parser(given).parse_known_args(given)
        if unknown:
            raise UsageError(
                f"unknown arguments `{' '.join(unknown)}`; `tilewright {parsed.command} --help` "
                "shows what there is"
            )
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
