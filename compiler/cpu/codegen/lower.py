"""Lower a loop program to an LLVM module with one function for the kernel.

Its signature is `void kernel(arrays, workspace, run, pool)`: pointers to the tensors, memory for
the buffers at the root, and the function and state of the thread pool; both are null if the calling
thread runs everything. Buffers of reductions start with the neutral element, so that the first
iteration is like all others.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from llvmlite import ir

from ....isa.expressions import Affine
from ...te.nodes import (
    Update,
    nodes,
)
from ...te.program import Program
from ..target import CpuTarget
from .areas import CodeBuffer
from .buffers import LoweringContext
from .emitter import I64, POINTER, TYPES, constant_table
from .layout import Layout, Tiles
from .lower_function import FunctionLowering
from .matrix_products import sum_tiles

IN_CODE = 256
"""Largest constant, in elements, that is embedded in the code instead of passed as an argument."""

ENTRY = "kernel"
"""Name of the function."""


@dataclass(frozen=True, slots=True)
class LoweredFunction:
    """LLVM's text of a kernel.

    Parameters
    ----------
    text
        A module with the function `kernel`.
    tensors
        Names of the arrays, in order: inputs, larger constants, then the output.
    workspace_bytes
        Size of the memory that the kernel needs while it runs.
    """

    text: str
    tensors: tuple[str, ...]
    workspace_bytes: int


def lower(
    program: Program, target: CpuTarget, layouts: Mapping[str, Layout | Tiles]
) -> LoweredFunction:
    """LLVM code for a program.

    Parameters
    ----------
    program
        The scheduled loop program, for the target's processor.
    target
        The processor to compile for.
    layouts
        Layouts of the given tensors that are not row-major.

    Raises
    ------
    CompileError
        When a buffer inside a loop is too large for the stack, or a loop cannot be executed as
        scheduled.
    """
    module = ir.Module(name=program.kernel.name)
    module.triple = target.triple
    kernel = program.kernel
    small = [name for name, values in kernel.constants.items() if values.size <= IN_CODE]
    given = [name for name in kernel.constants if name not in small]
    tensors = (*kernel.inputs, *given, kernel.output.name)
    signature = ir.FunctionType(I64, [POINTER] * 4)
    function = ir.Function(module, signature, ENTRY)
    arrays, workspace, run, pool = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    updates = (node for node in nodes(program.body) if isinstance(node, Update))
    reduced = {update.target.tensor: update.op for update in updates}
    shared = LoweringContext(program, target, reduced, sum_tiles(program.body))
    lowering = FunctionLowering(shared, builder, {}, (run, pool))
    for position, name in enumerate(tensors):
        place = builder.gep(arrays, [I64(position)], source_etype=POINTER)
        tensor = kernel.tensors[name]
        layout = layouts.get(name, Layout.plain(tensor.shape))
        origin = (Affine(),) * len(tensor.shape)
        pointer = builder.load(place, align=8, typ=POINTER)
        lowering.areas[name] = CodeBuffer(
            tensor, program.domains[name], origin, layout, pointer, given=name != tensors[-1]
        )
    for name in small:
        tensor, values = kernel.tensors[name], kernel.constants[name]
        element, numbers = TYPES[values.dtype.name], values.ravel().tolist()
        pointer = constant_table(module, f"table.{name}", element, numbers)
        origin, layout = (Affine(),) * len(tensor.shape), Layout.plain(tensor.shape)
        lowering.areas[name] = CodeBuffer(
            tensor, program.domains[name], origin, layout, pointer, values=values
        )
    lowering.root(program.body, workspace)
    builder.ret(I64(0))
    return LoweredFunction(str(module), tensors, shared.workspace_bytes)
