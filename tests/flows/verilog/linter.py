"""Verilator as a linter."""

import os
import re
import subprocess
from pathlib import Path

from tilewright.hardware.verilog import TOP
from tilewright.sim.toolchain import find_verilator


def lint(text: str, folder: Path, top: str = TOP) -> str:
    """The warnings of Verilator, all kinds enabled, of which a pragma may silence two."""
    silenced = set(re.findall(r"lint_off (\w+)", text))
    assert silenced == {"DECLFILENAME", "SYMRSVDWORD"}
    (folder / "core.v").write_text(text)
    verilator = find_verilator()
    command = [verilator / "bin" / "verilator_bin", "--lint-only", "-Wall", "--quiet"]
    return subprocess.run(
        [*command, "--top-module", top, folder / "core.v"],
        env={**os.environ, "VERILATOR_ROOT": str(verilator)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    ).stderr
