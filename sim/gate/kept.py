"""Netlists and reports in the cache, compressed."""

import gzip
from pathlib import Path

KIND, TASK = "synthesis", "synthesis"
"""Folder of the cache, and name in messages."""


def write_kept(path: Path, text: str) -> Path:
    """Write a text; return the path."""
    path.write_bytes(gzip.compress(text.encode(), 1, mtime=0))
    return path


def read_kept(path: Path) -> str:
    """Return the text in a file that `write_kept` wrote, such as a mapped netlist."""
    return gzip.decompress(path.read_bytes()).decode()
