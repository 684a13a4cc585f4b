"""NVIDIA's assembler and disassembler, from pip: registers, spills and instructions of a kernel."""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path

USED = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
    r".*?Used (\d+) registers"
)
OPCODE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Assembled:
    """A module as machine code.

    Parameters
    ----------
    registers
        Of a thread, for each kernel.
    stack_bytes, spilled_bytes
        Local memory of all kernels, and what they store there for want of registers.
    """

    cubin: Path
    registers: tuple[int, ...]
    stack_bytes: int
    spilled_bytes: int

    def opcodes(self) -> Counter[str]:
        """Machine instructions, without their options, as `IMMA.16832`."""
        text = _run(_tool("nvidia-cuda-nvdisasm", "nvdisasm"), "-c", str(self.cubin)).stdout
        return Counter(".".join(name.split(".")[:2]) for name in OPCODE.findall(text))


def assemble(ptx: str, chip: str, folder: Path) -> Assembled:
    """Assemble PTX for a chip, such as `sm_80`; raises what the assembler says."""
    source, cubin = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(ptx, encoding="ascii")
    tool = _tool("nvidia-cuda-nvcc-cu12", "ptxas")
    told = _run(tool, "-v", f"-arch={chip}", str(source), "-o", str(cubin)).stderr
    found = [tuple(map(int, each)) for each in USED.findall(told)]
    assert len(found) == ptx.count(".visible .entry"), told
    return Assembled(
        cubin,
        tuple(registers for *_, registers in found),
        sum(stack for stack, *_ in found),
        sum(stores + loads for _, stores, loads, _ in found),
    )


def _tool(package: str, name: str) -> Path:
    (path,) = [file for file in files(package) or () if file.name == name]
    return Path(str(path.locate()))


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done
