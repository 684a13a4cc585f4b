"""Progress of long work on stderr: a bar, or lines where stderr is not a terminal."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from ...quoting import printable

Advance = Callable[[str, int, int | None], None]
"""Called with a description, the number of steps done, and the total."""


LINE_SECONDS = 5.0
"""Least time between two lines of progress."""


def line_progress(
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[str, int, int | None], bool]:
    """Return a function that prints lines of progress on stderr, for runs without a terminal.

    It returns whether it printed one: not if the last one is less than `LINE_SECONDS` old.
    """
    last = start = clock()

    def advance(text: str, done: int, total: int | None) -> bool:
        nonlocal last
        now = clock()
        if now - last < LINE_SECONDS:
            return False
        last = now
        count = "" if total is None else f", {done} of {total}"
        print(f"{now - start:.0f} s: {printable(text)}{count}", file=sys.stderr, flush=True)
        return True

    return advance


SILENCE_S = 20.0
"""Time after which the last line is said again, as placing alone may take many minutes."""


@contextlib.contextmanager
def steady_lines() -> Iterator[Advance]:
    """Give `line_progress`, which goes on while a step tells nothing."""
    advance = line_progress()
    lock, ended = threading.Lock(), threading.Event()
    latest: tuple[str, int, int | None] | None = None
    due_s = 0.0

    def tell(text: str, done: int, total: int | None) -> None:
        nonlocal latest, due_s
        with lock:
            latest = text, done, total
            said = advance(*latest)
            due_s = time.monotonic() + SILENCE_S if said else 0.0

    def repeat() -> None:
        nonlocal due_s
        # A step that begins soon after a line is told as soon as the next line may be.
        while not ended.wait(LINE_SECONDS):
            with lock:
                if latest is None or time.monotonic() < due_s:
                    continue
                if advance(*latest):
                    due_s = time.monotonic() + SILENCE_S

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        ended.set()
        thread.join()


_SUBJECT = ContextVar("subject", default="")


@contextlib.contextmanager
def progress_about(subject: str) -> Iterator[None]:
    """Put a subject before each text of progress, for commands that repeat the same steps."""
    token = _SUBJECT.set(f"{subject}: ")
    try:
        yield
    finally:
        _SUBJECT.reset(token)


@contextlib.contextmanager
def progress_bar() -> Iterator[Advance]:
    """Show a progress bar on stderr; a line every few seconds if stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    console, subject = Console(stderr=True), _SUBJECT.get()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    if not console.is_terminal:
        with steady_lines() as tell:
            yield lambda text, done, total: tell(subject + text, done, total)
        return
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def advance(text: str, done: int, total: int | None) -> None:
            progress.update(
                task, description=printable(subject + text), completed=done, total=total
            )

        yield advance
