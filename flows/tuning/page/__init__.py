"""The page of `tilewright tune`: the logs of runs in a single HTML file, drawn as SVG."""

from .data import page_data
from .render import render

__all__ = ["page_data", "render"]
