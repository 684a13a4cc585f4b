"""Rendering of a self-contained HTML file: a shell that pages share, body, style, scripts and data.

The page's security policy forbids every request, so the page cannot fetch anything by mistake.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ....quoting import html_text, script_json

FOLDER = Path(__file__).parent / "assets"

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

SCRIPTS = (
    "common",
    "causes",
    "summary",
    "layers",
    "network",
    "activity",
    "timeline",
    "roofline",
    "tables",
    "placement",
    "main",
)
"""Scripts in the order in which the page runs them."""


def render(data: Mapping[str, Any]) -> str:
    """Return the page for the data of `report_data`."""
    title = f"{data['network']} on {data['configuration']['name']}"
    return build_report(title, "page", SCRIPTS, data)


def build_report(title: str, body: str, scripts: Iterable[str], data: Mapping[str, Any]) -> str:
    """Return a page in the style of the report, from a body and scripts in `FOLDER`."""
    return build_page(
        title,
        FOLDER / f"{body}.html",
        style=[FOLDER / "page.css"],
        script=[FOLDER / f"{name}.js" for name in scripts],
        data=data,
    )


def build_page(
    title: str,
    body: Path,
    *,
    style: Iterable[Path],
    script: Iterable[Path],
    data: Mapping[str, Any],
    library: str = "",
    policy: str = POLICY,
) -> str:
    """Return a self-contained page.

    Parameters
    ----------
    library
        A script that runs before those of the page.
    policy
        The page's security policy.
    """
    parts = {
        "policy": policy,
        "title": html_text(title),
        "style": "".join(path.read_text("utf-8") for path in style),
        "body": body.read_text("utf-8"),
        "library": f"<script>\n{library}\n</script>\n" if library else "",
        "data": script_json(data),
        "script": "\n".join(path.read_text("utf-8") for path in script),
    }
    shell = (FOLDER / "shell.html").read_text("utf-8")
    return re.sub(r"\[\[(\w+)\]\]", lambda place: parts[place[1]], shell)
