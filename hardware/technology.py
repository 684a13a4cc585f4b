"""Technologies: chip families with multipliers and memories that blocks can be built from.

Amaranth passes its `platform` argument through every `elaborate`. Here it is a `Technology`, or
None for the portable description, which every synthesis tool understands.
"""

from enum import Enum


class Technology(Enum):
    """A target of a block. A platform of None selects the portable description."""

    SIMULATION = "simulation"
    """Same behaviour as the portable description; simulates faster."""
    ECP5 = "ecp5"
    """Lattice ECP5: MULT18X18D, DP16KD, TRELLIS_DPR16X4."""
    XILINX7 = "xilinx7"
    """Xilinx 7 series: DSP48E1, RAMB18E1."""
    ULTRASCALE = "ultrascale"
    """Xilinx UltraScale+: DSP48E2, RAMB18E2."""
    GOWIN = "gowin"
    """Gowin GW2A: MULT9X9, MULT18X18, SDPX9B, SDPB."""
    ICE40 = "ice40"
    """Lattice iCE40 UltraPlus: SB_MAC16, SB_RAM40_4K."""
    GATEMATE = "gatemate"
    """Cologne Chip GateMate: CC_BRAM_20K; multipliers are logic."""
    CYCLONE5 = "cyclone5"
    """Intel Cyclone V; built from the portable description, with a memory for each granule."""
    ASIC = "asic"
    """Gates and memory macros; built from the portable description."""
