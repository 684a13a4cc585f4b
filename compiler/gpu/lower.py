"""Lower a loop program to PTX: one kernel for each nest at the root."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from ...errors import CompileError
from ...isa.expressions import Affine, reads_of
from ..cpu.codegen.areas import CodeBuffer
from ..cpu.codegen.buffers import LoweringContext
from ..cpu.codegen.emitter import I8, POINTER, LlvmBuilder, LlvmValue
from ..cpu.codegen.environment import Environment
from ..cpu.codegen.layout import Layout, Tiles
from ..cpu.codegen.machine_code import optimise
from ..te.nodes import Allocate, Assign, Nest, Update, nodes
from ..te.program import Program
from ..te.target import BLOCKS
from ..tensor import Tensor
from .blocks import kernels, operands_of, regions, shared_of, spreads, threads_of
from .emitter import ALIGNMENT_BYTES, SHARED_SPACE
from .lower_kernel import KernelLowering
from .target import TRIPLE, GpuTarget

NO_TILES: Mapping[str, Tiles] = {}


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A kernel of a module, and how it is launched.

    Parameters
    ----------
    name
        Its name in the module.
    tensors
        The arrays whose addresses it takes, in order.
    grid
        Blocks along x, y and z.
    threads
        Threads of a block.
    shared_bytes
        Memory that the threads of a block share.
    """

    name: str
    tensors: tuple[str, ...]
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class GpuModule:
    """A program as PTX.

    Parameters
    ----------
    ptx
        The text of all kernels.
    kernels
        The kernels, in the order in which they run.
    buffers
        Arrays between kernels, to be allocated for the run.
    constants
        Arrays that the declaration gives.
    """

    ptx: str
    kernels: tuple[KernelLaunch, ...]
    buffers: tuple[Tensor, ...]
    constants: Mapping[str, np.ndarray]


def compile_program(
    program: Program, target: GpuTarget, tiles: Mapping[str, Tiles] = NO_TILES
) -> GpuModule:
    """PTX for a scheduled program.

    Parameters
    ----------
    tiles
        Places of tensors of tiles in arrays without tiles.

    Raises
    ------
    ScheduleError
        When the target does not run the program.
    CompileError
        When a loop cannot be executed as scheduled.
    """
    program = target.complete(program)
    module = ir.Module(name=program.kernel.name)
    module.triple = TRIPLE
    reduced = {
        node.target.tensor: node.op for node in nodes(program.body) if isinstance(node, Update)
    }
    shared = LoweringContext(program, target, reduced, {})
    found = [
        _kernel(nest, f"kernel{place}", shared, module, tiles)
        for place, nest in enumerate(kernels(program))
    ]
    text = str(module)
    for kernel in found:
        text = _with_threads(text, kernel)
    output = program.kernel.output.name
    buffers = [node.tensor for node in program.body if isinstance(node, Allocate)]
    return GpuModule(
        _assembled(text, target, program.kernel.name),
        tuple(found),
        tuple(tensor for tensor in buffers if tensor.name != output),
        program.kernel.constants,
    )


def _kernel(
    nest: Nest,
    name: str,
    shared: LoweringContext,
    module: ir.Module,
    tiles: Mapping[str, Tiles],
) -> KernelLaunch:
    program = shared.program
    local = {node.tensor.name for node in nodes((nest,)) if isinstance(node, Allocate)}
    tensors = _arrays(nest, local)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER] * len(tensors)), name)
    function.calling_convention = "ptx_kernel"
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    size = shared_of(nest)
    memory = _shared_memory(module, builder) if size else None
    threads = max(map(threads_of, regions((nest,))))
    lowering = KernelLowering(shared, builder, spreads(nest), threads, memory, operands_of(nest))
    for tensor_name, pointer in zip(tensors, function.args, strict=True):
        tensor = program.tensors[tensor_name]
        lowering.areas[tensor_name] = CodeBuffer(
            tensor,
            program.domains[tensor_name],
            (Affine(),) * len(tensor.shape),
            tiles.get(tensor_name, Layout.plain(tensor.shape)),
            pointer,
            values=program.kernel.constants.get(tensor_name),
            given=tensor_name != nest.stage,
        )
    lowering.block((nest,), Environment({}, {}), None)
    builder.ret_void()
    x, y, z = (lowering.grid[kind] for kind in BLOCKS)
    return KernelLaunch(name, tensors, (x, y, z), threads, size)


def _arrays(nest: Nest, local: set[str]) -> tuple[str, ...]:
    """The arrays in main memory that a kernel touches, its output last."""
    names: dict[str, None] = {}
    for node in nodes((nest,)):
        if isinstance(node, (Assign, Update)):
            names |= dict.fromkeys(read.tensor for read in reads_of(node.value))
    names.pop(nest.stage, None)
    return (*(name for name in names if name not in local), nest.stage)


def _shared_memory(module: ir.Module, builder: LlvmBuilder) -> LlvmValue:
    """The address of the memory whose size the launch decides."""
    memory: LlvmValue = module.globals.get("shared")
    if memory is None:
        kind = ir.ArrayType(I8, 0)
        memory = ir.GlobalVariable(module, kind, "shared", addrspace=SHARED_SPACE)
        memory.linkage, memory.align = "external", ALIGNMENT_BYTES
    return builder.addrspacecast(memory, POINTER)


def _with_threads(text: str, kernel: KernelLaunch) -> str:
    """Tell the assembler the number of threads; llvmlite has no attribute for it."""
    start = re.compile(rf'(define ptx_kernel void @"?{kernel.name}"?\([^)]*\))')
    return start.sub(rf'\1 "nvvm.reqntid"="{kernel.threads}"', text, count=1)


def _assembled(text: str, target: GpuTarget, name: str) -> str:
    machine = target.machine()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"kernel `{name}`: LLVM rejects its code: {error}") from error
    module.data_layout = str(machine.target_data)
    optimise(module, machine)
    return machine.emit_assembly(module)
