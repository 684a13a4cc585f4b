"""Searches: which machines of a space to compile when there are too many to compile all."""

from .method import METHODS, Method, Search, open_method

__all__ = ["METHODS", "Method", "Search", "open_method"]
