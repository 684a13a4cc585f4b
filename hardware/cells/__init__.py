"""Cells of the technologies, one module for each.

`NAME.py` wraps the cells of a technology for Amaranth; `interfaces.py` has the ports that several
technologies share. `NAME.v` models the cells that Yosys has no models of, for simulation of
netlists and for proofs, in exactly the modes that the wrappers use. Two technologies may share both
files.
"""

from pathlib import Path

from ..technology import Technology

_SHARED = {Technology.XILINX7: "xilinx", Technology.ULTRASCALE: "xilinx"}


def models(technology: Technology) -> Path:
    """Return the Verilog file with our models of a technology's cells; there may be none."""
    return Path(__file__).with_name(f"{_SHARED.get(technology, technology.value)}.v")
