"""A loop program to an LLVM module with one function for the kernel.

That is `void kernel(arrays, workspace, run, pool)`: pointers to its tensors, memory for the buffers
at the root, and who runs a parallel loop, null for the calling thread. Buffers of reductions start
with the neutral element, so that no iteration needs to know whether it is the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from ....isa.expressions import Affine
from ...te.nodes import (
    Update,
    nodes,
)
from ...te.program import Program
from ..target import Target
from .areas import Area
from .buffers import Shared
from .emitter import I64, POINTER, TYPES, LlvmValue, number_of
from .layout import Layout, Tiles
from .lower_function import Function

IN_CODE = 256
"""Elements of the largest constant that is part of the code instead of an argument."""

ENTRY = "kernel"
"""Name of the function."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """LLVM's text of a kernel.

    Parameters
    ----------
    text
        A module with the function `kernel`.
    tensors
        What its arrays are, in order: inputs, larger constants, and the output last.
    workspace_bytes
        Memory that it is to be given.
    """

    text: str
    tensors: tuple[str, ...]
    workspace_bytes: int


def lower(program: Program, target: Target, layouts: Mapping[str, Layout | Tiles]) -> Lowered:
    """LLVM code for a program.

    Parameters
    ----------
    program
        Of a schedule for the target's processor.
    target
        What to compile for.
    layouts
        Of those given tensors that do not lie row-major.

    Raises
    ------
    CompileError
        When a buffer inside a loop is too large for the stack, or a loop cannot be run as it is
        marked.
    """
    module = ir.Module(name=program.kernel.name)
    module.triple = target.triple
    kernel = program.kernel
    small = [name for name, values in kernel.constants.items() if values.size <= IN_CODE]
    given = [name for name in kernel.constants if name not in small]
    tensors = (*kernel.inputs, *given, kernel.output.name)
    signature = ir.FunctionType(ir.VoidType(), [POINTER] * 4)
    function = ir.Function(module, signature, ENTRY)
    arrays, workspace, run, pool = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    shared = Shared(program, target, {u.target.tensor: u.op for u in _updates(program)})
    lowering = Function(shared, builder, {}, (run, pool))
    for position, name in enumerate(tensors):
        place = builder.gep(arrays, [I64(position)], source_etype=POINTER)
        tensor = kernel.tensors[name]
        layout = layouts.get(name, Layout.plain(tensor.shape))
        origin = (Affine(),) * len(tensor.shape)
        pointer = builder.load(place, align=8, typ=POINTER)
        lowering.areas[name] = Area(
            tensor, program.domains[name], origin, layout, pointer, given=name != tensors[-1]
        )
    for name in small:
        tensor, values = kernel.tensors[name], kernel.constants[name]
        pointer = _global(module, name, values)
        origin, layout = (Affine(),) * len(tensor.shape), Layout.plain(tensor.shape)
        lowering.areas[name] = Area(
            tensor, program.domains[name], origin, layout, pointer, values=values
        )
    lowering.root(program.body, workspace)
    builder.ret_void()
    return Lowered(str(module), tensors, shared.workspace_bytes)


def _global(module: ir.Module, name: str, values: np.ndarray) -> LlvmValue:
    """A table inside the object file."""
    element = TYPES[values.dtype.name]
    kind = ir.ArrayType(element, values.size)
    found = ir.GlobalVariable(module, kind, f"table.{name}")
    found.linkage, found.global_constant = "internal", True
    table: LlvmValue = found
    table.initializer = ir.Constant(kind, [number_of(element, n) for n in values.ravel().tolist()])
    found.type = POINTER
    return found


def _updates(program: Program) -> list[Update]:
    return [node for node in nodes(program.body) if isinstance(node, Update)]
