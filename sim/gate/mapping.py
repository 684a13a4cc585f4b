"""Technology mapping: Yosys turns RTLIL into the cells of a technology."""

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...hardware.technology import Technology
from ..cache import digest, keep_file, kept_folder
from .carry_chains import shorten_carry_chains
from .code_of import code_of
from .kept import KIND, TASK, write_kept
from .tools import YOSYS, run_tool, tool_version


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMapping:
    """Yosys commands that map a design to the cells of a technology.

    Parameters
    ----------
    technology
        The description of the hardware that is mapped.
    synthesis
        The Yosys command that maps a design.
    finish
        Yosys commands after that one, each followed by a semicolon.
    rewrite
        Changes the mapped top module, as Yosys' `write_json` writes it, in place.
    """

    technology: Technology
    synthesis: str
    finish: str = ""
    rewrite: Callable[[dict[str, Any]], None] | None = None

    def commands(self, top: str) -> str:
        """Return the commands for Yosys, which leave the netlist in `mapped.json`."""
        return (
            f"read_rtlil rtl.il; chformal -remove; {self.synthesis} -top {top}; "
            f"{self.finish}write_json mapped.json"
        )

    @property
    def rewriting_code(self) -> list[str]:
        """The code of `rewrite`, which figures depend on as much as on the commands."""
        module = inspect.getmodule(self.rewrite) if self.rewrite else None
        return [code_of(module)] if module else []


ECP5 = CellMapping(
    technology=Technology.ECP5,
    synthesis="synth_ecp5 -nodsp",
    rewrite=shorten_carry_chains,
)
GOWIN = CellMapping(technology=Technology.GOWIN, synthesis="synth_gowin -family gw2a -nodsp")
ICE40 = CellMapping(technology=Technology.ICE40, synthesis="synth_ice40 -device u")


def map_design(
    rtl: str,
    mapping: CellMapping,
    top: str,
    show: Callable[[str], None] = lambda step: None,
) -> Path:
    """Map RTLIL to the cells of a technology; return the path of the netlist, for `read_kept`.

    Parameters
    ----------
    top
        The top module.
    show
        Receives the name of each step of Yosys.
    """
    commands = mapping.commands(top)
    parts = [tool_version(YOSYS), commands, rtl, *mapping.rewriting_code]
    kept = kept_folder(KIND, TASK) / f"{digest(parts)}-mapped.gz"

    def make(folder: Path) -> Path:
        (folder / "rtl.il").write_text(rtl, "utf-8")
        run_tool(YOSYS, ["-p", commands], folder, lambda line: _yosys_step(line, show))
        text = (folder / "mapped.json").read_text("utf-8")
        if mapping.rewrite:
            netlist = json.loads(text)
            mapping.rewrite(netlist["modules"][top])
            text = json.dumps(netlist)
        return write_kept(folder / "mapped.gz", text)

    return keep_file(kept, make)


def _yosys_step(line: str, show: Callable[[str], None]) -> None:
    number, executing, name = line.partition(". Executing ")
    if executing and number.replace(".", "").isdigit():
        show(re.split(r"[^\w-]", name, maxsplit=1)[0])
