"""Machine code of kernels as text."""

import llvmlite.binding as llvm

from tilewright.compiler.cpu import CpuTarget
from tilewright.compiler.cpu.codegen.machine_code import optimise


def assembly_of(text: str, target: CpuTarget) -> str:
    """The machine code of a module in LLVM's assembly."""
    module, machine = llvm.parse_assembly(text), target.machine()
    module.data_layout = str(machine.target_data)
    optimise(module, machine)
    return machine.emit_assembly(module)
