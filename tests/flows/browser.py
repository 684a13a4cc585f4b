"""A browser without a window, and the text of the pages that it shows."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

BROWSERS = "chromium", "chromium-browser", "google-chrome"

WAIT_MS = 60_000
"""Milliseconds that a page may take on a busy computer."""

NO_VALUE = re.compile(r"\b(undefined|NaN|null|unknown)\b|\[object")
"""Text that a script writes for a value that the page's data lack."""

STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@contextmanager
def opened(
    page: Path, width: int = 1280, scheme: Literal["light", "dark"] = "light"
) -> Iterator[tuple[Any, list[str]]]:
    """Open a page; Playwright's page once its scripts ran, and the addresses that it asked for.

    At the start and at the end the page shows no value that its data lack.
    """
    from playwright.sync_api import sync_playwright  # tests without a browser need not have it

    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert browser, f"no browser: expected one of {BROWSERS}; `apt install chromium`"
    asked: list[str] = []
    with sync_playwright() as player:
        chromium = player.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        try:
            view = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            view.set_default_timeout(WAIT_MS)
            view.on("request", lambda request: asked.append(request.url))
            view.goto(page.as_uri())
            view.wait_for_load_state("networkidle")
            asked.remove(page.as_uri())
            assert not missing(view)
            yield view, asked
            assert not missing(view)
        finally:
            chromium.close()


def missing(view: Any) -> list[str]:
    """The lines of a page that show a missing value."""
    lines = view.locator("body").inner_text().splitlines()
    return [line for line in lines if NO_VALUE.search(line)]


def open_page(page: Path, width: int = 1280) -> tuple[str, list[str]]:
    """Open a page; its document once scripts ran, and what it requested."""
    with opened(page, width) as (view, asked):
        return view.content(), asked


def violations(view: Any) -> list[str]:
    """Return what axe-core finds against WCAG 2.2 AA, with the first elements concerned."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(view, options={"runOnly": STANDARDS}).response["violations"]
    return [
        f"{each['id']}: {[node['target'] for node in each['nodes'][:3]]} "
        f"{each['nodes'][0]['failureSummary']}"
        for each in found
    ]


class Text(HTMLParser):
    """The visible text by id of the element around it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids, self.text = [""], {}
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "br", "wbr", "input"):
            self.ids.append(dict(attrs).get("id") or self.ids[-1])

    def handle_endtag(self, tag):
        self.ids.pop()

    def handle_data(self, data):
        text = self.text.get(self.ids[-1], "") + data.replace("\u00a0", " ")
        self.text[self.ids[-1]] = text
