"""The progress of a sweep on stderr: machines done, rate, remaining time, and the front so far."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .progress import steady_lines

if TYPE_CHECKING:
    from ..sweep.outcome import Progress

TEXTS = {
    "listing": "listing",
    "bound": "bounding",
    "sim": "compiling",
    "rtl": "simulating",
    "synthesis": "synthesising",
    "placement": "placing",
}
"""A verb for each rung."""


def text_of(progress: "Progress") -> str:
    """Return the rung, the size of the front and the step of a tool as text."""
    front = f", {progress.front} on the front" if progress.front else ""
    step = f": {progress.step}" if progress.step else ""
    return f"{TEXTS[progress.rung]} machines{front}{step}"


@contextlib.contextmanager
def sweep_progress() -> Iterator[Callable[["Progress"], None]]:
    """Show a progress bar on stderr; a line every few seconds if stderr is not a terminal."""
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
    if not console.is_terminal:
        with steady_lines() as advance:
            yield lambda progress: advance(text_of(progress), progress.done, progress.total)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("starting", total=None, rate="")
        rung = ""

        def show(progress: "Progress") -> None:
            nonlocal rung
            if progress.rung != rung:
                rung = progress.rung
                shown.reset(task, total=progress.total, rate="")
            speed = shown.tasks[0].speed
            shown.update(
                task,
                description=text_of(progress),
                completed=progress.done,
                total=progress.total,
                rate=f"{speed:.1f}/s" if speed else "",
            )

        yield show
