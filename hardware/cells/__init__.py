"""Cells of the technologies, one module for each.

`NAME.py` wraps the cells of a technology for Amaranth. `NAME.v` models those cells that Yosys has
no models of, for simulation of netlists and for proofs, in exactly the modes that the wrappers use.
"""

from pathlib import Path

from ..technology import Technology


def models(technology: Technology) -> Path:
    """Return the Verilog file with our models of a technology's cells; there may be none."""
    return Path(__file__).with_name(f"{technology.value}.v")
