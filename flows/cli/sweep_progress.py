"""The progress of a sweep on stderr: machines done, rate, remaining time, and the front so far."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..sweep.outcome import Progress

TEXTS = {"bound": "bounding", "sim": "compiling", "rtl": "simulating"}
"""A verb for each rung."""


@contextlib.contextmanager
def sweep_progress() -> Iterator[Callable[["Progress"], None]]:
    """Show a progress bar if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as shown:
        task = shown.add_task("starting", total=None, rate="")
        rung = ""

        def show(progress: "Progress") -> None:
            nonlocal rung
            if progress.rung != rung:
                rung = progress.rung
                shown.reset(task, total=progress.total, rate="")
            speed = shown.tasks[0].speed
            front = f", {progress.front} on the front" if progress.front else ""
            shown.update(
                task,
                description=f"{TEXTS[rung]} machines{front}",
                completed=progress.done,
                total=progress.total,
                rate=f"{speed:.1f}/s" if speed else "",
            )

        yield show
