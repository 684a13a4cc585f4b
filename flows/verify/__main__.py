"""`make verify`: random programs on definition, simulators and RTL; every byte and every cycle.

Each program runs on the integer definition, on `sim` and on the Verilated core; main memory, all
scratchpads, the start and the retirement of every instruction, the cycles and all performance
counters are compared. Every fourth program also runs on the RTL with a memory that stalls at
random, where the timing model does not apply and only values are compared.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from itertools import cycle
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ...atomic_write import write_output
from ...errors import TilewrightError, UsageError
from ...isa.configuration import Configuration
from ...isa.settings import load_configuration
from .comparison import VerifyTally, verify_programs
from .programs.random_configurations import verification_configurations

CHUNK_PROGRAMS = 20
"""Programs between two checks of the time budget."""


def chunks(names: Sequence[str], programs: int, seed: int) -> Iterator[tuple[str, range]]:
    """Seeds to run on each configuration, in chunks, configurations in turn."""
    share, more = divmod(programs, len(names))
    left = {name: share + (place < more) for place, name in enumerate(names)}
    begin = dict.fromkeys(names, seed)
    for name in cycle(names):
        if not any(left.values()):
            return
        count = min(CHUNK_PROGRAMS, left[name])
        if count:
            yield name, range(begin[name], begin[name] + count)
        begin[name] += count
        left[name] -= count


def table(tallies: Sequence[VerifyTally]) -> Table:
    """Table of runs, and the largest difference between model and RTL."""
    out = Table(title="Random programs: definition, sim and RTL")
    for name in (
        "configuration",
        "programs",
        "stalled too",
        "instructions",
        "RTL cycles",
        "largest error",
        "failed",
        "model Mi/s",
        "Python ki/s",
        "against RTL",
    ):
        out.add_column(name, justify="left" if name == "configuration" else "right")
    total = VerifyTally("all")
    for tally in tallies:
        out.add_row(*_row(tally))
        total.add(tally)
    out.add_section()
    out.add_row(*_row(total))
    return out


def _row(tally: VerifyTally) -> list[str]:
    return [
        tally.configuration,
        f"{tally.programs:,}",
        f"{tally.stalled:,}",
        f"{tally.instructions:,}",
        f"{tally.cycles:,}",
        f"{tally.largest_error}",
        f"{tally.failed}",
        f"{tally.instructions / max(tally.model_s, 1e-9) / 1e6:.2f}",
        f"{tally.definition_instructions / max(tally.definition_s, 1e-9) / 1e3:.1f}",
        f"{tally.rtl_s / max(tally.model_s, 1e-9):,.0f}x",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if anything differs."""
    options = _parser().parse_args(arguments)
    try:
        return _verify(options)
    except TilewrightError as problem:
        print(f"verify: {problem}", file=sys.stderr)
        return problem.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tilewright.flows.verify", description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000, help="in all (default 10000)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="stop after so long")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (default 0)")
    parser.add_argument("--length", type=int, default=40, help="instructions (default 40)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--configurations",
        metavar="NAMES",
        help="comma-separated: presets, names of the table, or files (default: all of the table)",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="write failing programs here, made small"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    return parser


def chosen_configurations(names: str | None) -> dict[str, Configuration]:
    """Configurations by name; all of those made for verification by default."""
    known = verification_configurations()
    if names is None:
        return known
    chosen = [known.get(name) or load_configuration(name) for name in names.split(",")]
    return {each.name: each for each in chosen}  # a file's machine has a name of its own


def _verify(options: argparse.Namespace) -> int:
    if options.programs < 1 or options.jobs < 1 or options.length < 1:
        raise UsageError("`--programs`, `--jobs` and `--length` must be at least 1")
    configurations = chosen_configurations(options.configurations)
    tallies = {name: VerifyTally(name) for name in configurations}
    console = Console(stderr=True)
    deadline = time.monotonic() + (options.budget or 1e9)
    work = chunks(list(configurations), options.programs, options.seed)
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(options.jobs, mp_context=context) as pool,
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        ) as bar,
    ):
        task = bar.add_task("programs", total=options.programs)
        running: set[Future[VerifyTally]] = set()
        while True:
            while len(running) < options.jobs and time.monotonic() < deadline:
                chunk = next(work, None)
                if chunk is None:
                    break
                name, seeds = chunk
                work_of = configurations[name], seeds, options.length, options.keep
                running.add(pool.submit(verify_programs, *work_of))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                tally = future.result()
                tallies[tally.configuration].add(tally)
                bar.advance(task, tally.programs)
                _say_progress(console, tallies, options.programs, tally.programs)
                for failure in tally.failures:
                    console.print(f"[red]{failure}")
    return _report(list(tallies.values()), options)


def _say_progress(
    console: Console, tallies: Mapping[str, VerifyTally], programs: int, more: int
) -> None:
    """Progress without a terminal: one line for every tenth."""
    done = sum(tally.programs for tally in tallies.values())
    if not console.is_terminal and 10 * done // programs != 10 * (done - more) // programs:
        console.print(f"verify: {done} of {programs} programs")


def _report(tallies: Sequence[VerifyTally], options: argparse.Namespace) -> int:
    seen = [tally for tally in tallies if tally.programs]
    Console(width=130).print(table(seen))
    if options.json:
        text = json.dumps([asdict(tally) for tally in seen], indent=2) + "\n"
        write_output(options.json, text, f"`--json {options.json}`")
    programs = sum(tally.programs for tally in seen)
    if programs < options.programs:
        print(f"verify: {programs} of {options.programs} programs within the time budget")
    if failed := sum(tally.failed for tally in seen):
        print(
            f"verify: {failed} of {programs} programs differ; a line above names configuration and "
            "seed, which run again with `--configurations NAME --seed SEED --programs 1`",
            file=sys.stderr,
        )
        return 1
    print(f"verify: {programs} programs equal in every byte and every cycle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
