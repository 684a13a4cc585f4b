"""Sweeps: every machine of a space against networks, and the machines that no other one beats."""

from .ladder import sweep
from .measured import Build
from .outcome import PointResult, SweepNetwork, SweepOutcome
from .records import Database
from .search import Search
from .space import Point, Space

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
