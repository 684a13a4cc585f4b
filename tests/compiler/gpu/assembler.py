"""NVIDIA's assembler and disassembler, from pip: registers, spills and instructions of a kernel."""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path

from tilewright.flows.tuning import gpu_assembler

OPCODE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MachineCode(gpu_assembler.Assembled):
    """A module as machine code, in a file."""

    cubin: Path

    def opcodes(self) -> Counter[str]:
        """Machine instructions, without their options, as `IMMA.16832`."""
        (tool,) = [file for file in files("nvidia-cuda-nvdisasm") or () if file.name == "nvdisasm"]
        command = [str(tool.locate()), "-c", str(self.cubin)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return Counter(".".join(name.split(".")[:2]) for name in OPCODE.findall(text))


def assemble(ptx: str, chip: str, folder: Path) -> MachineCode:
    """Assemble PTX for a chip, such as `sm_80`; raises what the assembler says."""
    cubin = folder / "kernel.cubin"
    found = gpu_assembler.assemble(ptx, chip, cubin)
    return MachineCode(found.registers, found.stack_bytes, found.spilled_bytes, cubin)
