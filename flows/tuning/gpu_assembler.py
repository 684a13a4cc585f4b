"""NVIDIA's assembler, where it is installed: registers and spills of kernels, without a GPU.

It comes with `pip install nvidia-cuda-nvcc-cu12` or a CUDA toolkit. Nothing depends on it: a driver
compiles PTX by itself.
"""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from ...compiler.gpu import GpuTarget
from ...errors import CompileError

PACKAGES = "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc"
LIMIT_S = 120

USED = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
    r".*?Used (\d+) registers"
)


@dataclass(frozen=True, slots=True)
class Assembled:
    """Kernels as machine code.

    Parameters
    ----------
    registers
        Of a thread, for each kernel.
    stack_bytes, spilled_bytes
        Local memory of all kernels, and what they store there for want of registers.
    """

    registers: tuple[int, ...]
    stack_bytes: int
    spilled_bytes: int

    def check(self) -> None:
        """Refuse kernels that spill.

        Raises
        ------
        CompileError
            With the bytes.
        """
        if self.spilled_bytes:
            raise CompileError(f"registers do not suffice: {self.spilled_bytes} bytes are spilled")


@cache
def assembler() -> Path | None:
    """The assembler; None where none is installed."""
    for package in PACKAGES:
        try:
            found = [file for file in files(package) or () if file.name == "ptxas"]
        except PackageNotFoundError:
            continue
        if found and (path := Path(str(found[0].locate()))).exists():
            return path
    named = shutil.which("ptxas")
    return Path(named) if named else None


def assemble(ptx: str, chip: str, cubin: Path) -> Assembled:
    """Assemble PTX for a chip, such as `sm_80`.

    Raises
    ------
    CompileError
        With what the assembler says.
    """
    source = cubin.with_suffix(".ptx")
    source.write_text(ptx, encoding="ascii")
    command = [str(assembler()), "-v", f"-arch={chip}", str(source), "-o", str(cubin)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    found = [tuple(map(int, each)) for each in USED.findall(done.stderr)]
    if done.returncode or len(found) != ptx.count(".visible .entry"):
        raise CompileError(f"ptxas: {' '.join(done.stderr.split())}")
    return Assembled(
        tuple(registers for *_, registers in found),
        sum(stack for stack, *_ in found),
        sum(stores + loads for _, stores, loads, _ in found),
    )


def assembled(ptx: str, target: GpuTarget) -> Assembled | None:
    """What the assembler says of PTX; None where none is installed."""
    if assembler() is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        return assemble(ptx, target.properties.cpu, Path(folder) / "kernel.cubin")
