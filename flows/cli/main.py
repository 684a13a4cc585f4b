"""The command line `tilewright`: parse, call the command, turn errors into one line and a code.

Exit codes: 0 success, 1 an error in the user's model, design or data, 2 usage, 3 a missing tool,
129 the terminal was closed, 130 interrupted, 141 the reader of a pipe closed it, 143 terminated.
"""

import argparse
import io
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, NoReturn

from typing_extensions import override

from ... import __version__
from ...errors import TilewrightError, UsageError, did_you_mean
from ...quoting import printable
from ...wording import counted
from .signals import signals_interrupt

GROUPS: Mapping[str, Mapping[str, str]] = {
    "run and explain": {
        "run": "run a model or an artifact",
        "report": "write a page that shows where a network's cycles went",
        "what-if": "time the same program with other memories and hardware",
        "passes": "show what each pass of the front end does to a model",
        "inspect": "disassemble an artifact",
        "evaluate": "judge schedules of a layer: legal or not, exact cycles, what binds",
        "asm": "assemble, check and run a program of one's own",
    },
    "compile": {
        "compile": "compile a model into one file",
        "quantise": "quantise a float model with a few samples",
        "tune": "find faster schedules of a network's kernels by trials, and keep them",
        "export": "write a network as C for a board without an operating system, or as hex files",
    },
    "choose a machine": {
        "config": "list, explain and check configurations",
        "sweep": "find the machines of a space that no other one beats",
        "ablation": "measure what each optimisation gains",
        "boards": "list boards, and how fast each one runs a model",
        "synth": "synthesise a configuration for an FPGA: area, clock, critical path",
    },
    "build and run on a board": {
        "build": "build a bitstream for a board",
        "flash": "load a bitstream into a board",
        "measure": "measure the main memory of a board, and its error in each layer",
        "board": "serve a virtual board",
        "verilog": "write the Verilog of a configuration",
    },
    "use devices of other machines": {
        "agent": "lend the devices of this machine to clients on others",
        "devices": "list devices, here and on other machines, and add agents",
    },
    "check and maintain": {
        "doctor": "check the tools",
        "clean": "remove what is kept in the cache and elsewhere",
        "completion": "print a script that completes words in a shell",
        "conformance": "run ONNX's own operator tests on the host",
    },
}
"""Summary of each file of `commands/`, in the groups and the order of `--help`."""

COMMANDS: Mapping[str, str] = {
    name: text for group in GROUPS.values() for name, text in group.items()
}

EXAMPLES: Mapping[str, str] = {
    "run": "tilewright run model.onnx --config 8x16 --latency 200",
    "report": "tilewright report model.onnx -o report.html",
    "what-if": "tilewright what-if model.onnx --latency 16,64,200",
    "passes": "tilewright passes model.onnx --until scheduled --layer conv1",
    "inspect": "tilewright inspect model.tw",
    "evaluate": "tilewright evaluate model.onnx --layer conv1 --schedule steps.txt --json",
    "asm": "tilewright asm program.asm --config 4x4 --device rtl",
    "compile": "tilewright compile model.onnx --config ecp5-45 -o model.tw",
    "quantise": "tilewright quantise float.onnx --calibrate samples.npz -o int8.onnx",
    "tune": "tilewright tune model.onnx --budget 5m",
    "export": "tilewright export --c firmware model.onnx --config 4x4",
    "config": "tilewright config show 16x16 --chip ecp5-85",
    "sweep": "tilewright sweep model.onnx --chip ecp5-45 --rate 50 --vary lanes=4x4,8x8",
    "ablation": "tilewright ablation model.onnx --config 8x8",
    "boards": "tilewright boards model.onnx",
    "synth": "tilewright synth --config 4x4 --chip ecp5-45 --no-place",
    "build": "tilewright build --board ULX3S-25F",
    "flash": "tilewright flash --board ULX3S-25F",
    "measure": "tilewright measure 'serial:///dev/ttyUSB0?baud=3000000' net.onnx --config ecp5-25",
    "board": "tilewright board --virtual ULX3S-25F",
    "verilog": "tilewright verilog --config 8x8 -o core.v",
    "agent": "tilewright agent --listen 0.0.0.0:7462 --board lab=serial:///dev/ttyUSB0",
    "devices": "tilewright devices --add lab=lab.example:7462 --certificate lab.pem",
    "doctor": "tilewright doctor",
    "clean": "tilewright clean --all",
    "completion": "tilewright completion "
    "bash > ~/.local/share/bash-completion/completions/tilewright",
    "conformance": "tilewright conformance --kernels",
}
"""An example of each command, which ends its `--help`."""

SPELLINGS = {"quantize": "quantise"}
"""Other spellings of commands, which `--help` omits."""

INVALID_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)")
"""Message of argparse for a word that is not one of the choices."""

INVALID_VALUE = re.compile(r"argument (\S+): invalid (\w+) value: '(.*)'", re.DOTALL)
"""Message of argparse for a word that its type does not accept; all types here are numbers."""

MEMORY = ("latency", "bandwidth", "outstanding", "shared_bus")
"""Properties of main memory, which `--vary` sets where a command has no option for them."""

OTHER_WORDS = {"--shape": "--dim", "--shapes": "--dim", "--compare": "--pair", "--db": "--database"}
"""Options of other tools and of earlier versions, with ours."""

MAX_MESSAGE = 4_000
"""Characters of an error; a longer one repeats what the user gave."""

SIGNALLED = 128
"""An exit code is this, plus the number of the signal that ended the command."""
PIPE_CLOSED = 141


class _Parser(argparse.ArgumentParser):
    """A parser that raises the errors that argparse would print, so that all errors look alike."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        # A beginning that names one option today may name two tomorrow, or that of another command.
        super().__init__(*arguments, allow_abbrev=False, **settings)

    @override
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = self._hint(unknown[0].partition("=")[0])
            raise UsageError(f"unknown arguments `{' '.join(unknown)}`{hint}")
        return parsed, unknown

    def _hint(self, word: str) -> str:
        """Return the end of a message about an argument that this parser does not know."""
        from ...isa.settings import MACHINE

        known = self._option_string_actions
        name = word.lstrip("-")
        parameter = name.replace("-", "_")
        usual = f"; `{self.prog} --help` shows what there is"
        taken = [each.metavar for each in self._get_positional_actions() if each.metavar]
        if not word.startswith("-"):
            return f"; `{self.prog}` takes one {taken[-1]}" if taken else usual
        if parameter in (*MEMORY, *MACHINE) and "--vary" in known:
            return f"; give `--vary {parameter}=VALUES`"
        if parameter in MACHINE and "--set" in known:
            return f"; give `--set {parameter}=VALUE`"
        if OTHER_WORDS.get(word) in known:
            return f"; did you mean `{OTHER_WORDS[word]}`?"
        if others := [f"`{each}`" for each in commands_with(word)]:
            more = f" and {counted(len(others) - 3, 'other')}" if len(others) > 3 else ""
            return f"; it is an option of {', '.join(others[:3])}{more}{usual}"
        near = did_you_mean(name, [each.lstrip("-") for each in known])
        return near.replace("`", "`--", 1) or usual

    @override
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
        if found := INVALID_VALUE.fullmatch(message):
            option, kind, word = found.groups()
            expected = {"int": "a whole number"}.get(kind, "a number")
            raise UsageError(f"`{option} {word}`: expected {expected}; correct it")
        raise UsageError(f"{message}; `{self.prog} --help` shows what there is")


class _Overview(_Parser):
    """The parser of all commands, whose help lists them by group."""

    def format_help(self) -> str:
        width = max(map(len, COMMANDS)) + 2
        lines = [f"usage: {self.prog} [--version] COMMAND [OPTIONS]", "", str(self.description)]
        for title, commands in GROUPS.items():
            lines += ["", f"{title}:"]
            lines += [f"  {name:{width}}{text}" for name, text in commands.items()]
        lines += [
            "",
            f"`{self.prog} COMMAND --help` explains a command, with an example.",
            f"`{self.prog} --version` shows the versions.",
        ]
        return "\n".join(lines) + "\n"


class _Version(argparse.Action):
    """Print the versions; only this action imports the contract."""

    def __call__(self, parser, namespace, values, option_string=None) -> NoReturn:
        from ...isa.configuration import CONTRACT_VERSION

        print(f"tilewright {__version__} (contract {CONTRACT_VERSION})")
        parser.exit()


def parser(given: Sequence[str] = (), *, complete: bool = False) -> argparse.ArgumentParser:
    """Return the parser of all commands, with the arguments of the command that is given.

    The imports of a command take time. `--help` and other commands do not wait for them.

    Parameters
    ----------
    complete : bool
        Whether to add the arguments of all commands.
    """
    common = _Parser(add_help=False)
    common.add_argument(
        "-v", "--verbose", action="store_true", default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )  # fmt: skip
    made = _Overview(
        prog="tilewright",
        description="Compile quantised networks for a tensor accelerator and run them on it.",
        parents=[common],
    )
    made.add_argument("--version", action=_Version, nargs=0, help="show the versions and exit")
    commands = made.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True, parser_class=_Parser
    )
    word = next((word for word in given if not word.startswith("-")), "")
    for name, description in COMMANDS.items():
        command = commands.add_parser(
            name, parents=[common], help=description, epilog=f"example: {EXAMPLES[name]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        if name == word or complete:
            file = import_module(f".commands.{name.replace('-', '_')}", __package__)
            file.add(command, common)
    return made


def commands_with(option: str) -> list[str]:
    """List the commands that have an option."""
    found = []
    commands = parser(complete=True)._subparsers
    assert commands is not None
    for action in commands._group_actions:
        found += [
            name
            for name, command in dict(action.choices or {}).items()
            if option in command._option_string_actions
        ]
    return found


def as_option(given: Sequence[str]) -> list[str]:
    """Return the arguments with `help COMMAND`, `help` or nothing at all turned into `--help`."""
    if given[:1] == ["help"]:
        return [*given[1:], "--help"]
    return list(given) or ["--help"]


def refuse_empty(given: Sequence[str]) -> None:
    """Reject empty arguments, which a shell passes where a variable is not set.

    Raises
    ------
    UsageError
        With the option before it, if there is one.
    """
    for before, word in pairwise(("", *given)):
        if word.startswith("--") and word.endswith("="):
            before, word = word[:-1], ""
        if not word:
            what = f"`{before}`" if before.startswith("-") else "an argument"
            raise UsageError(
                f"{what}: expected a value, got an empty one; give one, or leave it out"
            )


def command_word(word: str) -> str:
    """Return a command's name as it is typed, from any spelling of it."""
    usual = word.lower().replace("_", "-")
    return SPELLINGS.get(usual, usual if usual in COMMANDS else word)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    given = as_option(sys.argv[1:] if arguments is None else list(arguments))
    at = next((at for at, word in enumerate(given) if not word.startswith("-")), None)
    if at is not None:
        given[at] = command_word(given[at])

    def call() -> None:
        refuse_empty(given)
        parsed = parser(given).parse_args(given)
        if files := vars(parsed).get("operators"):
            from .operator_options import load_operators

            load_operators(files)
        if (board := vars(parsed).get("modelled_board")) is not None:
            from .board_options import apply_board

            apply_board(board, parsed)
        parsed.function(parsed)

    code = guarded(call, verbose=not {"-v", "--verbose"}.isdisjoint(given))
    if code > SIGNALLED and arguments is None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C would kill Python as it ends
    return code


def guarded(call: Callable[[], None], *, verbose: bool = False) -> int:
    """Call a function, turn an exception into one line on stderr, and return the exit code.

    Parameters
    ----------
    call : callable
        The work.
    verbose : bool
        Whether to show the traceback too.
    """
    _open_closed_streams()
    _escape_what_cannot_be_printed()
    ended_by: list[signal.Signals] = []
    try:
        with signals_interrupt(ended_by, _stop_tools), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                call()
            except SystemExit:  # after `--help`
                sys.stdout.flush()
                raise
            sys.stdout.flush()
    except TilewrightError as problem:
        return _fail(str(problem), problem.exit_code, verbose)
    except KeyboardInterrupt:
        number = (*ended_by, signal.SIGINT)[0]
        says = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
        return _fail(says, SIGNALLED + number, verbose)
    except BrokenPipeError:
        _drop_buffered_output()
        return PIPE_CLOSED
    except MemoryError as problem:
        why = f", got `{problem}`" if str(problem) else ""
        return _fail(
            f"this needs more memory than there is{why}; give fewer or smaller inputs, or choose a "
            "smaller machine",
            1,
            verbose,
        )
    except OSError as problem:
        if problem.errno is None:
            return _fault(problem, verbose)
        if problem.filename is None:
            _drop_buffered_output()
        what = f"file `{problem.filename}`" if problem.filename else "output"
        return _fail(
            f"{what}: cannot be read or written, got `{problem.strerror}`; make room, check the "
            "permissions, or choose another path",
            1,
            verbose,
        )
    except Exception as problem:
        return _fault(problem, verbose)
    return 0


def _show_warning(message: Warning | str, *_: object) -> None:
    print(f"warning: {printable(' '.join(str(message).split()))}", file=sys.stderr)


def _stop_tools() -> None:
    """Stop compilers that run in the background, for which Python would wait at its end."""
    if processes := sys.modules.get(f"{str(__package__).partition('.')[0]}.sim.processes"):
        processes.stop_processes()


def _open_closed_streams() -> None:
    """Drop the output to streams that the caller closed; no other file may take their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w"), "utf-8"))


def _escape_what_cannot_be_printed() -> None:
    """Print characters that the terminal's encoding lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_buffered_output() -> None:
    """Drop output that is still buffered, because it would raise again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fault(problem: Exception, verbose: bool) -> int:
    return _fail(
        f"unexpected {type(problem).__name__}: {problem}; this is a fault of Tilewright: call the "
        "command again with `-v` and report what it prints",
        1,
        verbose,
    )


def _fail(message: str, code: int, verbose: bool) -> int:
    # Objects that were abandoned, such as Amaranth's, warn as Python removes them at exit.
    warnings.simplefilter("ignore")
    if verbose:
        traceback.print_exc()
    text = printable(" ".join(message.split()))
    if len(text) > MAX_MESSAGE:
        text = f"{text[: MAX_MESSAGE // 2]} [...] {text[-MAX_MESSAGE // 2 :]}"
    print(f"error: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
