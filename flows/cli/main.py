"""The command line `tilewright`: parse, call the command, turn errors into one line and a code.

Exit codes: 0 all went well, 1 the user's model, design or data, 2 usage, 3 a missing tool,
130 interrupted, 141 the reader of a pipe went away.
"""

import argparse
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from ... import __version__
from ...errors import TilewrightError, UsageError, did_you_mean
from ...isa.configuration import CONTRACT_VERSION

COMMANDS = (
    *("run", "report", "what_if", "ablation", "compile", "inspect", "passes", "config", "doctor"),
    *("quantise", "conformance"),
)
"""Files of `commands/`, in the order in which `--help` shows them."""

SPELLINGS = {"quantize": "quantise"}
"""Other spellings of commands, which `--help` leaves out."""

INVALID_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)")
"""What argparse says of a word that is none of several."""

INTERRUPTED = 130
PIPE_CLOSED = 141


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print, so that all errors look alike."""

    def error(self, message: str) -> NoReturn:
        if found := INVALID_CHOICE.fullmatch(message):
            option, word, listed = found.groups()
            known = re.findall(r"[\w-]+", listed)
            if option in ("COMMAND", "ACTION"):
                raise UsageError(
                    f"unknown {option.lower()} `{word}`"
                    + did_you_mean(word, known, f"; `{self.prog} --help` lists them")
                )
            raise UsageError(
                f"`{option} {word}`: expected one of {', '.join(known)}"
                + did_you_mean(word, known, "; choose one")
            )
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
    named = [name for name in COMMANDS if command_word(name) == word]
    for name in named or COMMANDS:
        import_module(f".commands.{name}", __package__).add(commands, common)
    return made


def command_word(word: str) -> str:
    """Return a command's name as it is typed, from any spelling of it."""
    usual = word.lower().replace("_", "-")
    return SPELLINGS.get(usual, usual if usual.replace("-", "_") in COMMANDS else word)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    at = next((at for at, word in enumerate(given) if not word.startswith("-")), None)
    if at is not None:
        given[at] = command_word(given[at])

    def call() -> None:
        parsed, unknown = parser(given).parse_known_args(given)
        if unknown:
            options = [f"--{name.replace('_', '-')}" for name in vars(parsed)]
            raise UsageError(
                f"unknown arguments `{' '.join(unknown)}`"
                + did_you_mean(
                    unknown[0].partition("=")[0],
                    options,
                    f"; `tilewright {parsed.command} --help` shows what there is",
                )
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
