"""`tilewright completion`: print a script with which a shell completes commands and options."""

import argparse

import shtab

from ..console import say

SHELLS = ("bash", "zsh", "tcsh")


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(function=completion)


def completion(arguments: argparse.Namespace) -> None:
    """Print the script."""
    from ..main import parser  # it imports the commands

    say(shtab.complete(parser(complete=True), shell=arguments.shell))
