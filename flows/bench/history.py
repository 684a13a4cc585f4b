"""Exact cycles of the demo's network by commit: `docs/reference/history.md`.

A commit is unpacked into a folder of its own and compiles the same file as all others, for a few
machines. Cycles have no noise, so every difference between two lines is a change that was made.

    make history                            # the commit that is checked out
    make history COMMITS="main~50 main~9"   # others, in any order
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ...atomic_write import write_output
from ...errors import UsageError
from ...isa.markdown import cell_text
from ..cli.main import guarded

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples" / "digits" / "digits_int8_qdq.onnx"
RECORDS = Path(__file__).with_name("history.jsonl")
PAGE = ROOT / "docs" / "reference" / "history.md"
MACHINES = ("4x4", "8x8", "16x16", "ecp5-25")
TIME_LIMIT_S = 600

HEADING = f"""\
# Exact cycles by commit

Cycles of the demo's network (`examples/digits`) on {len(MACHINES)} machines, each compiled by that
commit for a memory with a latency of 64 cycles. `make history` adds the commit that is checked out,
`make history COMMITS="A B"` others. The cycles are exact, so every difference is a change of the
compiler or the machine, made by this commit or since the one in the row below. A fall is bold.

"""


@dataclass(frozen=True, slots=True)
class Line:
    """A commit, its date, and the cycles by machine; None where it could not compile for one."""

    commit: str
    date: str
    title: str
    cycles: dict[str, int | None]


def git(*arguments: str) -> str:
    """Run git in the clone, and return its output.

    Raises
    ------
    UsageError
        If it fails, for example at an unknown commit.
    """
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UsageError(f"`git {' '.join(arguments)}`: {done.stderr.strip()}; check the commit")
    return done.stdout.strip()


def measured(commit: str) -> Line:
    """Unpack a commit, and compile the network with it."""
    short, date, title = git("log", "-1", "--format=%h%x00%cI%x00%s", commit).split("\0")
    with TemporaryDirectory() as folder:
        tree = Path(folder) / "tilewright"  # the name that it is imported by
        packed = Path(folder) / "tree.tar"
        git("archive", f"--output={packed}", commit)
        shutil.unpack_archive(packed, tree, filter="data")
        cycles = {machine: _cycles(folder, machine) for machine in MACHINES}
    return Line(short, date, title, cycles)


def _cycles(folder: str, machine: str) -> int | None:
    """Return the cycles that the package in a folder gives; it has its own cache there."""
    code = "import sys; from tilewright.flows.cli.main import main; sys.exit(main(sys.argv[1:]))"
    output = Path(folder) / "network.tw"
    command = [sys.executable, "-c", code, "compile", str(MODEL), "--config", machine, "--json"]
    try:
        done = subprocess.run(
            [*command, "-o", str(output)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder, "TILEWRIGHT_CACHE": f"{folder}/cache"},
            capture_output=True, text=True, check=True, timeout=TIME_LIMIT_S,
        )  # fmt: skip
    except subprocess.SubprocessError:
        return None
    return int(json.loads(done.stdout)["cycles"])


def read_lines(path: Path) -> list[Line]:
    """Read the records."""
    if not path.exists():
        return []
    return [Line(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def page(lines: Iterable[Line]) -> str:
    """Return the page: newest first, and lines without any difference left out."""
    ordered = sorted(lines, key=lambda line: line.date)
    rows: list[str] = []
    before: dict[str, int | None] = {}
    for line in ordered:
        if line.cycles != before:
            shown = (_cell(line.cycles.get(name), before.get(name)) for name in MACHINES)
            title = cell_text(line.title)
            rows.append(f"| `{line.commit}` | {line.date[:10]} | {title} | {' | '.join(shown)} |")
            before = line.cycles
    head = ["commit", "date", "title", *(f"`{name}`" for name in MACHINES)]
    rule = "| --- | --- | --- |" + " ---: |" * len(MACHINES)
    return HEADING + "\n".join([f"| {' | '.join(head)} |", rule, *reversed(rows)]) + "\n"


def _cell(cycles: int | None, before: int | None) -> str:
    if cycles is None:
        return "-"
    fell = before is not None and cycles < before
    return f"**{cycles:,}**" if fell else f"{cycles:,}"


def record(commits: Sequence[str], records: Path, written: Path) -> None:
    """Measure commits that have no line yet, and write the records and the page."""
    lines = read_lines(records)
    known = {line.commit for line in lines}
    for commit in commits:
        if git("log", "-1", "--format=%h", commit) not in known:
            lines.append(measured(commit))
            print(f"{lines[-1].commit} {lines[-1].title}: {lines[-1].cycles}")
    lines.sort(key=lambda line: line.date)
    text = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
    write_output(records, text, "records")
    write_output(written, page(lines), "page")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.history", description=__doc__
    )
    parser.add_argument("commits", nargs="*", default=["HEAD"], help="default: HEAD")
    parser.add_argument("--records", type=Path, default=RECORDS, help=argparse.SUPPRESS)
    parser.add_argument("--page", type=Path, default=PAGE, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    return guarded(lambda: record(options.commits, options.records, options.page))


if __name__ == "__main__":
    sys.exit(main())
