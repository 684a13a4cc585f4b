"""Stress the tool where processes and threads meet, and where they die; no figure is a time.

`python -m tilewright.flows.verify.stress --rounds 10` lets processes race on an empty cache, kills
writers before each of their lines, forks after and during use, and lets threads share a module. The
load of the machine changes the order of events, but a right result never.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from ....errors import UsageError
from ...cli.main import guarded
from .forks import fork_after_use
from .kills import KINDS, kill_writers
from .races import race
from .threads import share_module

ROUNDS = 10


def stress(rounds: int) -> None:
    """Run every test, and print a line for each.

    Raises
    ------
    StressError
        When a test finds a fault.
    """
    for name in KINDS:
        found = Counter(kill_writers(name))
        seen = ", ".join(f"{number} {what}" for what, number in sorted(found.items()))
        print(f"stress: {name}: {found.total()} writers, all but one killed: {seen}", flush=True)
    for name, test in (
        ("processes raced on an empty cache", race),
        ("forks after and during use", fork_after_use),
        ("threads shared a module", share_module),
    ):
        for _ in range(rounds):
            test()
        print(f"stress: {name} {rounds} times: all results right", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.verify.stress", description=__doc__
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"of races, forks, threads (default: {ROUNDS})"
    )
    options = parser.parse_args(arguments)

    def call() -> None:
        if options.rounds < 1:
            raise UsageError(f"`--rounds {options.rounds}`: expected at least 1; correct it")
        stress(options.rounds)

    return guarded(call)


if __name__ == "__main__":
    sys.exit(main())
