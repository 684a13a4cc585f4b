"""One file of HTML that needs nothing else: template, style, scripts and data put together.

The page's policy forbids every request, so that it cannot even by mistake fetch anything.
"""

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "assets"

SCRIPTS = (
    *("common", "summary", "layers", "activity", "timeline", "roofline", "tables", "placement"),
    "main",
)
"""In the order in which the page runs them."""


def render(data: Mapping[str, Any]) -> str:
    """The page for data of `report_data`."""
    parts = {
        "title": html.escape(f"{data['network']} on {data['configuration']['name']}"),
        "style": (FOLDER / "page.css").read_text(),
        "data": embed(data),
        "script": "\n".join((FOLDER / f"{name}.js").read_text() for name in SCRIPTS),
    }
    page = (FOLDER / "page.html").read_text()
    for name, text in parts.items():
        head, mark, tail = page.partition(f"[[{name}]]")
        assert mark, f"the template has no place for {name}"
        page = head + text + tail
    return page


def embed(data: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element, whatever names are in it."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("[[", "[ [")
