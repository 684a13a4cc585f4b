"""LLVM's text to an object file, and an object file to functions that can be called."""

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm

from ....errors import CompileError
from ..target import Target


def assemble(text: str, target: Target, name: str) -> bytes:
    """Optimise a module and emit its object file.

    Parameters
    ----------
    text
        LLVM assembly.
    target
        What to compile for.
    name
        What errors call it.

    Raises
    ------
    CompileError
        When LLVM refuses the module: a bug of the lowering.
    """
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"kernel `{name}`: LLVM refuses its code: {error}") from error
    machine = target.machine()
    module.data_layout = str(machine.target_data)
    optimise(module, machine)
    return machine.emit_object(module)


def optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """LLVM's pipeline at level 3; loops are unrolled and vectorised as scheduled and no further."""
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def assembly_of(text: str, target: Target) -> str:
    """What a module becomes, to read."""
    module, machine = llvm.parse_assembly(text), target.machine()
    module.data_layout = str(machine.target_data)
    optimise(module, machine)
    return machine.emit_assembly(module)


class Library:
    """An object file in memory, ready to be called.

    Parameters
    ----------
    code
        The object file.
    target
        What it was compiled for.
    """

    def __init__(self, code: bytes, target: Target) -> None:
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Where a function begins, 0 where there is none."""
        return self._engine.get_function_address(name)

    def function(self, name: str, *arguments: type) -> Callable[..., None]:
        """A function without result, called with Python's lock released.

        It must not outlive the library.
        """
        return ctypes.CFUNCTYPE(None, *arguments)(self.address(name))
