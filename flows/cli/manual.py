"""Write the reference of all commands, `docs/reference/commands.md`, from their parsers.

`python -m tilewright.flows.cli.manual` rewrites it; a test fails while it is out of date.
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...isa.markdown import table
from .main import COMMANDS, parser

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"

INTRODUCTION = """\
# Commands

All commands and options of `tilewright`. The page is generated from the parsers, so that
`tilewright COMMAND --help` says the same. Every command also takes `-h` (`--help`), and `-v`
(`--verbose`), which shows the traceback of an error.

"""

TITLES = {"positional arguments": "argument", "options": "option"}
"""Headings of the groups that every parser has."""

COMMON = frozenset({"-h", "-v"})
"""Options of all commands."""


class _Markdown(argparse.HelpFormatter):
    """Collects the help of a parser as Markdown; `argparse` calls these methods in order."""

    def __init__(self, prog: str, **_: object) -> None:
        super().__init__(prog)
        self._lines: list[str] = []
        self._title = ""

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], *_: object, **__: object
    ) -> None:
        words = [_words(each) for each in actions if not each.option_strings]
        self._lines += [f"`{' '.join([self._prog, *words, '[OPTIONS]'])}`", ""]

    def start_section(self, heading: str | None) -> None:
        self._title = heading or ""

    def end_section(self) -> None:
        self._title = ""

    def add_text(self, text: str | None) -> None:
        if text and text != argparse.SUPPRESS:
            example = text.removeprefix("example: ")
            self._lines += (
                ["", f"Example: `{example}`"] if example != text else [_escaped(text), ""]
            )

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        rows = [
            (f"`{_words(each)}`", _escaped(self._expand_help(each) if each.help else ""))
            for each in actions
            if each.help != argparse.SUPPRESS
            and not _parsers(each)
            and COMMON.isdisjoint(each.option_strings)
        ]
        if rows:
            self._lines += table([TITLES.get(self._title, self._title), "meaning"], rows)

    def format_help(self) -> str:
        return "\n".join(self._lines) + "\n"


def manual() -> str:
    """The page, as Markdown."""
    parts = [INTRODUCTION]
    rows = ((f"[{name}](#{name})", _escaped(text)) for name, text in COMMANDS.items())
    parts += ["\n".join(table(["command", "does"], rows)), "\n"]
    for name in COMMANDS:
        (commands,) = filter(None, map(_parsers, _actions(parser([name]))))
        parts.append(f"## {name}\n\n{_capital(COMMANDS[name])}.\n\n")
        parts += _help(commands[name])
    return "".join(parts).rstrip() + "\n"


def _help(command: argparse.ArgumentParser) -> Iterator[str]:
    """The help of a command, and of its actions."""
    command.formatter_class = _Markdown
    yield command.format_help()
    for parsers in map(_parsers, _actions(command)):
        for action in parsers.values():
            yield from _help(action)


def _actions(command: argparse.ArgumentParser) -> list[argparse.Action]:
    """All actions of a parser, which `argparse` gives only to a formatter."""
    found: list[argparse.Action] = []

    class Collector(_Markdown):
        def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
            found.extend(actions)

    command.formatter_class = Collector
    argparse.ArgumentParser.format_help(command)  # the help of all commands has a form of its own
    return found


def _parsers(action: argparse.Action) -> dict[str, argparse.ArgumentParser]:
    """The parsers that an action chooses from, by name; none for other actions."""
    known = action.choices.items() if isinstance(action.choices, dict) else ()
    return {name: one for name, one in known if isinstance(one, argparse.ArgumentParser)}


def _words(action: argparse.Action) -> str:
    """An option or argument as it is typed."""
    listed = "|".join(map(str, action.choices)) if action.choices else ""
    value = action.metavar or listed or action.dest.upper()
    if isinstance(value, tuple):
        value = " ".join(value)
    elif action.nargs == 0:
        value = ""
    elif action.nargs == "?":
        value = f"[{value}]"
    elif action.nargs in ("*", "+"):
        value = f"{value}..."
    return " ".join(filter(None, [", ".join(action.option_strings), value]))


def _escaped(text: str) -> str:
    """Escape a text, apart from its code, in which Markdown knows no entities."""
    parts = text.split("`")
    return "`".join(
        part if position % 2 else part.replace("<", "&lt;") for position, part in enumerate(parts)
    )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


if __name__ == "__main__":
    MANUAL.write_text(manual(), "utf-8")
