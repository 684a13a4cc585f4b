"""Cells of the technologies, one module for each.

A technology, or two that share their cells' modes, has two files: `NAME.py` wraps its cells for
Amaranth, and `NAME.v` models them, for simulation of netlists and for proofs, in exactly the modes
that the wrappers use.
"""

from pathlib import Path

from ..technology import Technology

_SHARED = {Technology.XILINX7: "xilinx", Technology.ULTRASCALE: "xilinx"}


def models(technology: Technology) -> Path:
    """Return the Verilog file with the models of a technology's cells."""
    return Path(__file__).with_name(f"{_SHARED.get(technology, technology.value)}.v")
