"""PTX through LLVM."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import llvmlite.binding as llvm
from llvmlite import ir
from typing_extensions import override

from ...errors import CompileError
from ...tensor_map import TENSOR_MAP_BYTES
from ..cpu.codegen.emitter import I8, POINTER, LlvmBuilder, LlvmValue
from ..cpu.codegen.machine_code import optimise
from ..tensor import Tensor
from .blocks import PATTERN_BYTES
from .emitter import SHARED_SPACE, GpuEmitter
from .kernel_module import KernelEntry, KernelModule
from .target import TRIPLE, GpuTarget

_MAP = "tensor_map_"
_MAP_ATTRIBUTES = f'byval([{TENSOR_MAP_BYTES} x i8]) align 64 "nvvm.grid_constant"'


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
        self, name: str, tensors: Sequence[Tensor], threads: int, shared_bytes: int, maps: int
    ) -> Iterator[KernelEntry]:
        kind = ir.FunctionType(ir.VoidType(), [POINTER] * (len(tensors) + maps))
        function = ir.Function(self._module, kind, name)
        function.calling_convention = "ptx_kernel"
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        memory = self._shared_memory(builder) if shared_bytes else None
        arguments, given = function.args[: len(tensors)], function.args[len(tensors) :]
        for place, one in enumerate(given):
            one.name = f"{_MAP}{place}"
        yield KernelEntry(builder, arguments, memory, given)
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
            # The assembler needs the number of threads; llvmlite has no attribute for it, nor for
            # maps, whose contents are among the arguments.
            start = re.compile(rf'define ptx_kernel void @"?{name}"?\([^)]*\)')
            found = start.search(text)
            assert found
            head = re.sub(rf'ptr (%"{_MAP}\d+")', rf"ptr {_MAP_ATTRIBUTES} \1", found[0])
            text = text.replace(found[0], f'{head} "nvvm.reqntid"="{threads}"', 1)
        machine = self.target.machine()
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise CompileError(f"kernel `{self.name}`: LLVM rejects its code: {error}") from error
        module.data_layout = str(machine.target_data)
        optimise(module, machine)
        return machine.emit_assembly(module)
