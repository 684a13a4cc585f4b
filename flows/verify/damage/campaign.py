"""A campaign of damaged files: try each in a worker, count the results, report the failures.

Seeds determine all damage, so a campaign that was interrupted goes on with the next `--seed`.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

from ....errors import UsageError
from ...cli.json_output import write_json
from ...cli.main import guarded
from .operator_models import operator_models
from .workers import LIMIT_BYTES, DamageWorker, OpenTrial

WORKERS = 2
PASSED = ("equal", "refused", "interrupted")
"""Kinds of results that are no failures; only campaigns of command lines interrupt."""

Operators = Sequence[tuple[str, bytes]]
"""Names and bytes of ONNX's operator tests."""

Files = Callable[[range], Iterator[tuple[int, str, bytes]]]
"""Makes the seed, the source and the bytes of each file, from a range of seeds."""


@dataclass(frozen=True, slots=True)
class FileResult:
    """Result for one file: `equal`, `refused` or the kind of failure, with its message."""

    seed: int
    source: str
    kind: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: seed {self.seed}, {self.source}: {self.text[:300]}"


@dataclass(slots=True)
class Count:
    """Totals of a run."""

    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[FileResult] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, result: FileResult) -> None:
        """Count a file."""
        self.kinds[result.kind] += 1
        if result.kind not in PASSED:
            self.failures.append(result)
            print(result, file=sys.stderr, flush=True)


def try_files(
    files: Iterator[tuple[int, str, bytes]],
    workers: Sequence[DamageWorker],
    told: Callable[[Count], None] = lambda count: None,
) -> Count:
    """Try files until there are no more.

    Parameters
    ----------
    files
        Seed, source and bytes of each.
    workers
        Processes that share the files; the caller stops them.
    told
        Called after each file.
    """
    count, started = Count(), time.monotonic()
    busy: dict[int, tuple[int, str]] = {}
    following = next(files, None)
    while following is not None or busy:
        for index, worker in enumerate(workers):
            if index not in busy and following is not None:
                seed, source, data = following
                busy[index] = seed, source
                worker.send(seed, data)
                following = next(files, None)  # made while the worker is busy
        for index in list(busy):
            answer = workers[index].answer()
            if answer is not None:
                count.add(FileResult(*busy.pop(index), *answer))
                count.seconds = time.monotonic() - started
                told(count)
    return count


def run_command(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    what: str,
    count: int,
    files: Callable[[argparse.Namespace, Operators], Files],
    open_trial: OpenTrial,
    limit_bytes: int = LIMIT_BYTES,
) -> int:
    """Run the campaign that a command line asks for, and return 1 if a file failed.

    Parameters
    ----------
    parser
        Has the options of `files`; those of every campaign are added.
    arguments
        The command line; by default that of the process.
    what
        Name of the files, in the plural.
    count
        Default number of files.
    files
        Makes the files from the options and ONNX's operator tests, which are empty by default.
    open_trial, limit_bytes
        As for `DamageWorker`.
    """
    _add_options(parser, what, count)
    options = parser.parse_args(arguments)
    passed = False

    def call() -> None:
        nonlocal passed
        operators = operator_models() if options.operators else []
        made = files(options, operators)
        passed = run_campaign(f"damaged {what}", options, made, open_trial, limit_bytes)

    return guarded(call) or int(not passed)


def _add_options(parser: argparse.ArgumentParser, what: str, count: int) -> None:
    parser.add_argument("--operators", action="store_true", help="damage ONNX's operator tests too")
    parser.add_argument(
        f"--{what}", dest="files", type=int, default=count, help=f"how many (default: {count})"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first (default: 1)")
    parser.add_argument(
        "--workers", type=int, default=WORKERS, help=f"processes (default: {WORKERS})"
    )
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="figures as JSON")


def run_campaign(
    what: str,
    options: argparse.Namespace,
    files: Files,
    open_trial: OpenTrial,
    limit_bytes: int = LIMIT_BYTES,
) -> bool:
    """Try files, print the results, and return whether all were refused or right.

    Parameters
    ----------
    what
        Name of the files in messages, in the plural.
    options
        Those of `run_command`.
    files, open_trial, limit_bytes
        As for `run_command`, and for `DamageWorker`.

    Raises
    ------
    UsageError
        For fewer than one worker.
    """
    if options.workers < 1:
        raise UsageError(f"`--workers {options.workers}`: expected at least 1; correct it")
    seeds = range(options.seed, options.seed + options.files)
    with ExitStack() as stack:
        workers = []
        for _ in range(options.workers):
            workers.append(DamageWorker(open_trial, limit_bytes=limit_bytes))
            stack.callback(workers[-1].stop)
        count = try_files(files(seeds), workers, lambda count: _tell(what, count, seeds))
    if options.json:
        failures = [asdict(result) for result in count.failures]
        figures = {"kinds": dict(count.kinds), "failures": failures}
        write_json(options.json, {**figures, "seconds": count.seconds})
    if options.json != "-":
        print(report(what, count))
    return not count.failures


def report(what: str, count: Count) -> str:
    """Summary for people."""
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(count.kinds.items()))
    lines = [f"{what}: {count.kinds.total()} in {count.seconds:.0f} s: {kinds}"]
    lines += [f"  {result}" for result in count.failures]
    return "\n".join(lines)


def _tell(what: str, count: Count, seeds: range) -> None:
    tried = count.kinds.total()
    if tried % 500 == 0:
        print(
            f"{what}: {tried} of {len(seeds)}, {len(count.failures)} failed, {count.seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )
