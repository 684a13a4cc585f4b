"""Searches: which machines of a space to compile when there are too many to compile all."""

from .drawing import BATCH
from .method import METHODS, Method, Search, open_method

__all__ = ["BATCH", "METHODS", "Method", "Search", "open_method"]
