"""Compile LLVM assembly to an object file, and load object files."""

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

from ....errors import CompileError
from ..target import CpuTarget


def assemble(text: str, target: CpuTarget, name: str) -> bytes:
    """Optimise a module and emit its object file.

    Parameters
    ----------
    text
        LLVM assembly.
    target
        The processor to compile for.
    name
        The kernel's name in errors.

    Raises
    ------
    CompileError
        When LLVM rejects the module, which is a bug of the lowering.
    """
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"kernel `{name}`: LLVM rejects its code: {error}") from error
    machine = target.machine()
    module.data_layout = str(machine.target_data)
    optimise(module, machine)
    return machine.emit_object(module)


def optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """Run LLVM's pipeline at level 3, but leave unrolling and vectorisation to the schedule."""
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


class LoadedCode:
    """An object file, loaded into memory.

    All sections are allocated in one piece. MCJIT allocates each on its own, and aborts the process
    if they end up more than 2 GiB apart.

    Parameters
    ----------
    code
        The object file.
    functions
        Names of the functions that are called from outside.
    """

    def __init__(self, code: bytes, *functions: str) -> None:
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in functions:
            library.export_symbol(name)
        self._linked = library.link(llvm.create_lljit_compiler(use_jit_link=True), "code")

    def address(self, name: str) -> int:
        """Return the address of one of `functions`."""
        return self._linked[name]

    def function(
        self, name: str, *arguments: type, result: type | None = None
    ) -> Callable[..., Any]:
        """A function, called with the GIL released; it has no result by default.

        It must not outlive this object.
        """
        return ctypes.CFUNCTYPE(result, *arguments)(self.address(name))
