"""Sweeps: every machine of a space against networks, and the machines that no other one beats."""

from .records import Database
from .space import Point, Space
from .sweep import Outcome, sweep

__all__ = ["Database", "Outcome", "Point", "Space", "sweep"]
