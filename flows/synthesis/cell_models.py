"""Technologies whose netlists can be simulated: the models of their cells, and a chip of each."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import DeviceError, did_you_mean
from ...hardware.technology import Technology
from .devices import DEVICES, Device


@dataclass(frozen=True, slots=True, kw_only=True)
class CellModels:
    """Models of a technology's cells.

    Parameters
    ----------
    yosys
        The file with Yosys' own models, relative to the folder of its data.
    lut, output, inputs, table
        A look-up table of four inputs and its ports, and the parameter with its content. It becomes
        one operator, which simulates fast.
    """

    yosys: str
    lut: str
    output: str
    inputs: tuple[str, str, str, str]
    table: str

    @property
    def lut_map(self) -> str:
        """Verilog that maps the look-up table for Yosys' `techmap`."""
        ports = self.inputs
        return (
            f"module {self.lut}(input {', '.join(ports)}, output {self.output});\n"
            f"  parameter [15:0] {self.table} = 0;\n"
            f"  \\$lut #(.WIDTH(4), .LUT({self.table})) _TECHMAP_REPLACE_\n"
            f"    (.A({{{', '.join(reversed(ports))}}}), .Y({self.output}));\n"
            "endmodule\n"
        )


MODELS = {
    Technology.ECP5: CellModels(
        yosys="ecp5/cells_sim.v", lut="LUT4", output="Z", inputs=("A", "B", "C", "D"), table="INIT"
    ),
    Technology.GOWIN: CellModels(
        yosys="gowin/cells_sim.v",
        lut="LUT4",
        output="F",
        inputs=("I0", "I1", "I2", "I3"),
        table="INIT",
    ),
    Technology.ICE40: CellModels(
        yosys="ice40/cells_sim.v",
        lut="SB_LUT4",
        output="O",
        inputs=("I0", "I1", "I2", "I3"),
        table="LUT_INIT",
    ),
}
"""Technologies whose netlists can be simulated."""

CHIPS: Mapping[str, Device] = {
    kind.value: next(chip for chip in DEVICES.values() if chip.family.technology is kind)
    for kind in MODELS
}
"""The chip whose cells a netlist has, by the name of its technology. Nothing is placed, so a
machine may be larger than the chip; only the number of its multipliers matters."""


def find_chip(technology: str) -> Device:
    """Return the chip whose cells a technology's netlists have, by the technology's name.

    Raises
    ------
    DeviceError
        For an unknown technology, or one without models of its cells.
    """
    found = CHIPS.get(technology)
    if found is None:
        raise DeviceError(
            f"device `gate`: technology `{technology}`: expected one of {', '.join(CHIPS)}"
            + did_you_mean(technology, CHIPS, "; choose one")
        )
    return found
