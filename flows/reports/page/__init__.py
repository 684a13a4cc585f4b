"""The pages of `tilewright report`: one run, or two side by side, in a single HTML file."""

from .compare import SUFFIXES as REPORT_SUFFIXES
from .compare import comparison, read_report, render_comparison
from .data import report_data
from .render import render

__all__ = [
    "REPORT_SUFFIXES",
    "comparison",
    "read_report",
    "render",
    "render_comparison",
    "report_data",
]
