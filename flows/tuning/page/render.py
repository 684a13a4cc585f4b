"""Rendering of the page with shell, style and helpers of the report's page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...reports.page.render import FOLDER as SHARED
from ...reports.page.render import build_page

FOLDER = Path(__file__).parent / "assets"

SCRIPTS = "plot", "tasks", "curves", "scatter", "trials", "main"
"""Scripts in the order in which the page runs them, after the shared one."""


def render(data: Mapping[str, Any]) -> str:
    """Return the page for the data of `page_data`."""
    return build_page(
        f"{data['name']}: tuning",
        FOLDER / "tuning.html",
        style=[SHARED / "page.css", FOLDER / "tuning.css"],
        script=[SHARED / "common.js", *(FOLDER / f"{name}.js" for name in SCRIPTS)],
        data=data,
    )
