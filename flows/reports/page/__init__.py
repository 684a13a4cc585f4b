"""The page of `tilewright report`: data from the timing model in a single HTML file."""

from .data import report_data
from .render import render

__all__ = ["render", "report_data"]
