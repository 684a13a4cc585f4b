"""Rendering of a sweep's page from template, style, scripts, library and data.

Shell, style and helpers are those of the report page. The page contains Plotly's script, from the
Python package, so it needs no network. Plotly's parallel coordinates create functions at run time,
so the security policy allows `unsafe-eval`; it still forbids every request.
"""

from collections.abc import Mapping
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from ....errors import ToolError, install_command
from ...reports.page.render import FOLDER as SHARED
from ...reports.page.render import POLICY, build_page
from ..figures import FIGURES
from ..outcome import STATES, SweepOutcome
from ..outcome_json import outcome_json
from ..path_limits import LIMITS
from ..verdict import exclusion_sentence

FOLDER = Path(__file__).parent / "assets"

SCRIPTS = "points", "scatter", "parallel", "heat", "pair", "rows", "main"
"""Scripts in the order in which the page runs them, after the shared one."""


def page_data(outcome: SweepOutcome) -> dict[str, Any]:
    """Return the page's data: the outcome, and the meanings of figures and states."""
    values = outcome_json(outcome)
    return {
        **values,
        "date": datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
        "figures": {name: FIGURES[name] for name in outcome.shown},
        "states": STATES,
        "excluded": exclusion_sentence(outcome),
        "limits": dict(LIMITS),
        "memory": [dimension.name for dimension in outcome.space.dimensions if dimension.in_memory],
        "own_clock": outcome.own_clock,
        "compiled": outcome.compiled,
        "reused": outcome.reused,
        "seconds": round(outcome.seconds, 1),
    }


def render(data: Mapping[str, Any]) -> str:
    """Return the page for the data of `page_data`.

    Raises
    ------
    ToolError
        When Plotly is not installed.
    """
    names = " + ".join(network["name"] for network in data["networks"])
    return build_page(
        f"{names}: sweep",
        FOLDER / "sweep.html",
        style=[SHARED / "page.css", FOLDER / "sweep.css"],
        script=[SHARED / "common.js", *(FOLDER / f"{name}.js" for name in SCRIPTS)],
        data=data,
        library=plotly_source(),
        policy=f"{POLICY} 'unsafe-eval'; img-src data: blob:",
    )


def plotly_source() -> str:
    """Return the script of Plotly.

    Raises
    ------
    ToolError
        When Plotly is not installed.
    """
    try:
        return import_module("plotly.offline").get_plotlyjs()
    except ImportError:
        raise ToolError(
            "Plotly: not installed, so no page can be drawn; install it with "
            f"`{install_command('sweep')}`, or leave `--output` out"
        ) from None
