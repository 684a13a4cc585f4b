"""Cells of the technologies, one module for each.

A technology has two files: `NAME.py` wraps its cells for Amaranth, and `NAME.v` models them, for
simulation of netlists and for proofs, in exactly the modes that the wrappers use.
"""

from pathlib import Path

from ..technology import Technology


def models(technology: Technology) -> Path:
    """Return the Verilog file with the models of a technology's cells."""
    return Path(__file__).with_name(f"{technology.value}.v")
