"""The page of `tilewright report`: data from the timing model, one file of HTML to show them."""

from .data import report_data
from .render import render

__all__ = ["render", "report_data"]
