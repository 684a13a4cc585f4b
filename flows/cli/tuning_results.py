"""Results of `tilewright tune`: lists of tasks, the end of a run in sentences, and the page."""

import argparse
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...atomic_write import write_output
from ...compiler.graph.short_names import short_names
from ...errors import UsageError
from ...quoting import printable
from ...wording import counted
from ..execution.recorded_choices import records_path, usable_threads
from ..sweep.records import Database
from .clock_options import milliseconds_text
from .console import say
from .json_output import write_json
from .progress import progress_bar

if TYPE_CHECKING:
    from ...compiler.module import Module
    from ..tuning.layer_search import SearchedNetwork
    from ..tuning.tasks import KernelTask
    from ..tuning.tune import TuningReport


MACHINE = "level", "threads"
"""Parameters of a machine that a list has."""

SHOWN = 3
"""Estimated candidates of a kernel that a list for people has."""


def list_kernels(
    arguments: argparse.Namespace, tasks: "list[KernelTask]", others: Mapping[str, int]
) -> None:
    """Print the tasks with their spaces and choices, and kernels that have none."""
    rows = []
    with progress_bar() as advance:
        for done, task in enumerate(tasks):
            advance(f"listing {printable(task.title):.40}", done, len(tasks))
            space = task.space()
            rows.append(
                {
                    "kernels": list(task.names),
                    "workload": task.workload,
                    "kind": type(task.product).__name__,
                    **{n: v for n, v in task.machine.parameters.items() if n in MACHINE},
                    "macs": task.product.macs,
                    "elements": math.prod(task.product.output.shape),
                    "space": len(space),
                    "choices": {name: list(values) for name, values in space.questions.items()},
                    "left_out": task.left_out(space.points),
                    "estimated": task.machine.estimated(task.product, space.points),
                }
            )
    if arguments.json:
        write_json(arguments.json, {"tasks": rows, "without_space": dict(others)})
    if arguments.json == "-":
        return
    for task, row in zip(tasks, rows, strict=True):
        macs, elements = row["macs"], row["elements"]
        work = f"{macs:,} multiplications" if macs else f"{elements:,} elements"
        say(
            f"{task.title}: {row['kind']}, {work}, {task.machine.title}: "
            f"{counted(row['space'], 'schedule')}"
        )
        _say_choices(row["choices"])
        for each in row["estimated"][:SHOWN]:
            say(f"  {each['choice']}: {each['text']}")
        for reason, count in row["left_out"].items():
            say(f"  left out {count}: {reason}")
    for kind, count in others.items():
        say(f"no space: {count} {kind}: one schedule each")


def list_layers(
    arguments: argparse.Namespace, module: "Module", only: Collection[str] = ()
) -> None:
    """Print the layers, or these only, with their bounds and the sizes of their spaces."""
    from ..tuning.layer_search import search_layer

    names = [row["name"] for row in module.report["layers"]]
    found = [search_layer(module, name, 0) for name in names if not only or name in only]
    if arguments.json:
        write_json(arguments.json, {"layers": [one.to_json() for one in found]})
    if arguments.json != "-":
        names = short_names([one.name for one in found])
        for name, one in zip(names, found, strict=True):
            size = f"left out: {one.skipped}" if one.skipped else counted(one.space, "candidate")
            say(f"{name}: {one.default_cycles:,} cycles, lower bound {one.bound:,}: {size}")
            _say_choices(one.choices)
        say(f"left out: all tiles that do not fit the scratchpads of {module.configuration.name}")


def _say_choices(choices: Mapping[str, Sequence[int | str]]) -> None:
    for name, values in choices.items():
        say(f"  {name}: {', '.join(map(str, values))}")


def records_sentence(path: Path, threads: int | None = None) -> str:
    """Say where records are, and who uses them; `threads` are those that the user chose."""
    option, usable = "" if path == records_path() else f" --records {path}", usable_threads()
    told = f"records: {path}; `compile{option}` and `run{option}` use them"
    if threads in (None, usable):
        return told
    return f"{told} where they may use {counted(threads, 'processor')}, not {usable} as here"


def kernel_sentences(report: "TuningReport") -> list[str]:
    """Return the end of a run for people: a line for each kernel, then the network."""
    lines = []
    for state in report.states:
        found = state.ratio
        gain = f"{1 / found:.2f} times as fast" if found < 1 else "the default stays the best"
        if not state.outcomes:
            gain = "the default stays"
        failed = {name: count for name, count in state.verdicts.items() if name != "ok"}
        apart = "".join(f", {count} {name}" for name, count in sorted(failed.items()))
        lines.append(
            f"{state.task.title}: {len(state.outcomes)} of "
            f"{counted(len(state.space), 'schedule')} tried{apart}: {gain}"
        )
    if report.after_s:
        lines.append(
            f"kernels: {milliseconds_text(1e3 * report.before_s)} before, "
            f"{milliseconds_text(1e3 * report.after_s)} now, "
            f"{report.before_s / report.after_s:.2f} times as fast, after "
            f"{counted(report.trials, 'trial')}"
        )
    lines.append(f"ended: {report.stopped}")
    return lines


def layer_sentences(found: "SearchedNetwork") -> list[str]:
    """Return the end of a search for people: a line for each layer, then the network."""
    lines = []
    names = short_names([one.name for one in found.layers])
    for name, one in zip(names, found.layers, strict=True):
        if one.skipped:
            lines.append(f"{name}: left out: {one.skipped}")
            continue
        proof = one.certificate or (
            f"not proven: {one.timed:,} of {counted(one.space, 'candidate')} timed, at most "
            f"{one.gap:.1%} above the lower bound"
        )
        lines.append(
            f"{name}: {one.default_cycles:,} cycles alone with the compiler's schedule, "
            f"{one.cycles:,} with the best, lower bound {one.bound:,}: {proof}"
        )
    for made, changes in ("divided into", found.chains), ("first tiles of", found.first_tiles):
        for change in changes:
            named = ", ".join(f"`{name}`" for name in short_names(change.layers))
            kept = "kept" if change.kept else "not kept"
            lines.append(f"{made} {named}: {change.cycles:,} cycles of the network, {kept}")
    lines.append(
        f"network: {found.before:,} cycles before, {found.cycles:,} now, lower bound "
        f"{found.bound:,}; {counted(len(found.schedules), 'layer')} changed"
    )
    if found.least:
        lines.append(
            f"lower bound of all divisions into layers: {found.least:,}; no division can save more "
            f"than {1 - found.least / found.cycles:.1%}"
        )
    if found.stopped:
        lines.append(f"ended: {found.stopped}")
    return lines


def write_page(
    arguments: argparse.Namespace, database: Database, workloads: Collection[str] | None
) -> None:
    """Write the page of some workloads, or of all."""
    from ..tuning.page import page_data, render
    from ..tuning.run_log import logs_of

    logs = [one for one in logs_of(database) if workloads is None or one.workload in workloads]
    if not logs:
        raise UsageError(
            f"`--output {arguments.output}`: expected records of a run, got none in "
            f"`{database.path}`; tune a model without `--list` first"
        )
    name = arguments.source or database.path or Path("records")
    page = render(page_data(printable(name.stem), logs))
    write_output(arguments.output, page, f"`--output {arguments.output}`")
    if arguments.json != "-":
        say(f"{arguments.output}: open the page in a browser")
