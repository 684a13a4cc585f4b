"""Sweeps: every machine of a space against networks, and the machines that no other one beats.

The public names are loaded on first use, so that commands which only read records start faster.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ladder import sweep
    from .measured import Build
    from .outcome import PointResult, SweepNetwork, SweepOutcome
    from .records import Database
    from .search import Search
    from .space import Point, Space

_HOMES = {
    "Build": ".measured",
    "Database": ".records",
    "Point": ".space",
    "PointResult": ".outcome",
    "Search": ".search",
    "Space": ".space",
    "SweepNetwork": ".outcome",
    "SweepOutcome": ".outcome",
    "sweep": ".ladder",
}

__all__ = [
    "Build",
    "Database",
    "Point",
    "PointResult",
    "Search",
    "Space",
    "SweepNetwork",
    "SweepOutcome",
    "sweep",
]


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name], __name__), name)
