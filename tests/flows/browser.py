"""A browser without a window, and the text of the pages that it shows."""

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

BROWSERS = "chromium", "chromium-browser", "google-chrome"

BROWSER_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000",
)  # fmt: skip

MAKER = ("google.com", "googleapis.com", "gstatic.com", "gvt1.com")
"""A Chromium asks its maker for the time and more, whatever page it shows."""


def open_page(page: Path, folder: Path, width: int = 1280) -> tuple[str, list[str]]:
    """Open a page; its document once scripts ran, and what it requested.

    `folder` is for the browser's own files.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert browser, f"no browser: expected one of {BROWSERS}; `apt install chromium`"
    log = folder / "net.json"
    done = subprocess.run(
        [
            browser, *BROWSER_OPTIONS, f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},900", f"--log-net-log={log}", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, check=True, timeout=240,
    )  # fmt: skip
    found = json.loads(log.read_text())
    start = found["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    urls = [e.get("params", {}).get("url", "") for e in found["events"] if e["type"] == start]
    hosts = [(urlsplit(url).hostname or "", url) for url in urls if url.startswith("http")]
    makers = tuple(f".{host}" for host in MAKER)
    asked = [url for host, url in hosts if not f".{host}".endswith(makers)]
    return done.stdout, asked


class Text(HTMLParser):
    """The visible text by id of the element around it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids, self.text = [""], {}
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "br", "input"):
            self.ids.append(dict(attrs).get("id") or self.ids[-1])

    def handle_endtag(self, tag):
        self.ids.pop()

    def handle_data(self, data):
        self.text[self.ids[-1]] = self.text.get(self.ids[-1], "") + data
