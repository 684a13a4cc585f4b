"""Sweeps: every machine of a space against networks, and the machines that no other one beats."""

from .ladder import sweep
from .measured import Build
from .outcome import Network, Outcome, Result
from .records import Database
from .search import Search
from .space import Point, Space

__all__ = ["Build", "Database", "Network", "Outcome", "Point", "Result", "Search", "Space", "sweep"]
