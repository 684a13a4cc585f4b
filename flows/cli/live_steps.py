"""The page of `build --serve`: the steps of a long build, with their times, while tools work."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape

from ...html_tables import html_table
from .live_page import LivePage
from .progress import Advance

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color-scheme:light dark}table{border-collapse:collapse}caption{text-align:left}"
    "td,th{padding:.2rem 1rem .2rem 0}"
)


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One step; `until_s` is when it was last heard of, in seconds from the beginning."""

    text: str
    began_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class BuildSteps:
    """The steps so far, and how the work ended: empty while it goes on."""

    title: str
    steps: tuple[BuildStep, ...] = ()
    end: str = ""


def steps_page(found: BuildSteps) -> str:
    """Return the page."""
    rows = [(one.text, round(one.began_s), round(one.until_s - one.began_s)) for one in found.steps]
    state = found.end or "at work; the page loads itself again"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>{escape(found.title)}</title><style>{STYLE}</style>"
        f"<main><h1>{escape(found.title)}</h1><p role=status>{escape(state)}</p>"
        f"{html_table('seconds', ('step', 'from', 'takes'), rows)}</main>"
    )


class LiveSteps:
    """A page that shows each step that a tool reports."""

    def __init__(self, title: str) -> None:
        self.page = LivePage(steps_page)
        self._began, self._found = time.monotonic(), BuildSteps(title)
        self.page.show(self._found)

    @contextmanager
    def beside(self, advance: Advance) -> Iterator[Advance]:
        """Yield a function that tells the page, and `advance` too; an error ends the page."""

        def both(text: str, done: int, total: int | None) -> None:
            advance(text, done, total)
            now, steps = time.monotonic() - self._began, self._found.steps
            if steps and steps[-1].text == text:
                steps = (*steps[:-1], replace(steps[-1], until_s=now))
            else:
                steps = (*steps, BuildStep(text, now, now))
            self._found = replace(self._found, steps=steps)
            self.page.show(self._found)

        try:
            yield both
        except BaseException as problem:
            self.end(str(problem) or "interrupted")
            self.page.close()
            raise

    def end(self, text: str) -> None:
        """Say how the work ended; the page is not loaded again."""
        self._found = replace(self._found, end=text)
        self.page.show(self._found, done=True)
