"""PTX through LLVM."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import llvmlite.binding as llvm
from llvmlite import ir
from typing_extensions import override

from ...errors import CompileError
from ..cpu.codegen.emitter import I8, POINTER, LlvmBuilder, LlvmValue
from ..cpu.codegen.machine_code import optimise
from ..tensor import Tensor
from .blocks import PATTERN_BYTES
from .emitter import SHARED_SPACE, GpuEmitter
from .kernel_module import KernelEntry, KernelModule
from .target import TRIPLE, GpuTarget


class PtxModule(KernelModule):
    """Kernels in LLVM's intermediate language, assembled as PTX."""

    emitter_type = GpuEmitter

    def __init__(self, name: str, target: GpuTarget) -> None:
        super().__init__(name, target)
        self._module = ir.Module(name=name)
        self._module.triple = TRIPLE
        self._threads: dict[str, int] = {}

    @override
    @contextmanager
    def kernel(
        self, name: str, tensors: Sequence[Tensor], threads: int, shared_bytes: int
    ) -> Iterator[KernelEntry]:
        kind = ir.FunctionType(ir.VoidType(), [POINTER] * len(tensors))
        function = ir.Function(self._module, kind, name)
        function.calling_convention = "ptx_kernel"
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        memory = self._shared_memory(builder) if shared_bytes else None
        yield KernelEntry(builder, function.args, memory)
        builder.ret_void()
        self._threads[name] = threads

    def _shared_memory(self, builder: LlvmBuilder) -> LlvmValue:
        """The address of the memory whose size the launch decides."""
        memory: LlvmValue = self._module.globals.get("shared")
        if memory is None:
            kind = ir.ArrayType(I8, 0)
            memory = ir.GlobalVariable(self._module, kind, "shared", addrspace=SHARED_SPACE)
            memory.linkage, memory.align = "external", PATTERN_BYTES
        return builder.addrspacecast(memory, POINTER)

    @override
    def text(self) -> str:
        text = str(self._module)
        for name, threads in self._threads.items():
            # The assembler needs the number of threads; llvmlite has no attribute for it.
            start = re.compile(rf'(define ptx_kernel void @"?{name}"?\([^)]*\))')
            text = start.sub(rf'\1 "nvvm.reqntid"="{threads}"', text, count=1)
        machine = self.target.machine()
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise CompileError(f"kernel `{self.name}`: LLVM rejects its code: {error}") from error
        module.data_layout = str(machine.target_data)
        optimise(module, machine)
        return machine.emit_assembly(module)
