"""The page of `tilewright sweep`: the outcome in a single HTML file, drawn by Plotly inside it."""

from .render import page_data, plotly_source, render

__all__ = ["page_data", "plotly_source", "render"]
