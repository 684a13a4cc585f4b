"""Rendering of a self-contained HTML file from template, style, scripts and data.

The page's security policy forbids every request, so the page cannot fetch anything by mistake.
"""

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "assets"

SCRIPTS = (
    *(
        "common",
        "causes",
        "summary",
        "layers",
        "activity",
        "timeline",
        "roofline",
        "tables",
        "placement",
    ),
    "main",
)
"""Scripts in the order in which the page runs them."""


def render(data: Mapping[str, Any]) -> str:
    """Return the page for the data of `report_data`."""
    parts = {
        "title": html.escape(f"{data['network']} on {data['configuration']['name']}"),
        "style": (FOLDER / "page.css").read_text(),
        "data": embed(data),
        "script": "\n".join((FOLDER / f"{name}.js").read_text() for name in SCRIPTS),
    }
    return fill((FOLDER / "page.html").read_text(), parts)


def fill(page: str, parts: Mapping[str, str]) -> str:
    """Return a template with a text in each of its places, such as `[[title]]`."""
    for name, text in parts.items():
        head, mark, tail = page.partition(f"[[{name}]]")
        assert mark, f"the template has no place for {name}"
        page = head + text + tail
    return page


def embed(data: Mapping[str, Any]) -> str:
    """Return JSON text that is safe inside a script element, whatever names it contains."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("[[", "[ [")
