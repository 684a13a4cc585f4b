"""Technologies whose netlists can be simulated, with the models of their cells."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import DeviceError, did_you_mean
from .mapping import ECP5, GOWIN, ICE40, CellMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class CellModels:
    """Models of a technology's cells.

    Parameters
    ----------
    name
        The name of the technology in messages.
    mapping
        Maps a design to the cells.
    multipliers
        As `Core` takes them: those of the smallest chip. Nothing is placed, so no other size of the
        chip matters.
    yosys
        The file with Yosys' own models, relative to the folder of its data.
    lut, output, inputs, table
        A look-up table of four inputs and its ports, and the parameter with its content. It becomes
        one operator, which simulates fast.
    """

    name: str
    mapping: CellMapping
    multipliers: int | None = None
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


MODELS: Mapping[str, CellModels] = {
    "ecp5": CellModels(
        name="ECP5",
        mapping=ECP5,
        multipliers=28,
        yosys="ecp5/cells_sim.v",
        lut="LUT4",
        output="Z",
        inputs=("A", "B", "C", "D"),
        table="INIT",
    ),
    "gowin": CellModels(
        name="Gowin GW2A",
        mapping=GOWIN,
        yosys="gowin/cells_sim.v",
        lut="LUT4",
        output="F",
        inputs=("I0", "I1", "I2", "I3"),
        table="INIT",
    ),
    "ice40": CellModels(
        name="iCE40 UltraPlus",
        mapping=ICE40,
        yosys="ice40/cells_sim.v",
        lut="SB_LUT4",
        output="O",
        inputs=("I0", "I1", "I2", "I3"),
        table="LUT_INIT",
    ),
}
"""By the name of the technology."""


def find_cells(technology: str) -> CellModels:
    """Return the models of a technology's cells, by the technology's name.

    Raises
    ------
    DeviceError
        For an unknown technology, or one without models of its cells.
    """
    found = MODELS.get(technology)
    if found is None:
        raise DeviceError(
            f"device `gate`: technology `{technology}`: expected one of {', '.join(MODELS)}"
            + did_you_mean(technology, MODELS, "; choose one")
        )
    return found
