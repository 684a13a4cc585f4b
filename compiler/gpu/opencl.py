"""OpenCL C 1.2: kernels as source text, for the GPUs of all makers."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from typing_extensions import override

from ..cpu.codegen.emitter import I8, TYPES
from ..tensor import Tensor
from .c_builder import CBuilder
from .c_values import GLOBAL, LOCAL, CPointer, type_name
from .emitter import ALIGNMENT_BYTES
from .kernel_module import KernelEntry, KernelModule
from .opencl_emitter import OpenClEmitter
from .target import GpuTarget

_EXACT = "#pragma OPENCL FP_CONTRACT OFF"
"""Sums and products are rounded one by one, as on other targets."""

_NAME_LENGTH = 40


class OpenClModule(KernelModule):
    """Kernels in OpenCL C.

    Each array is an argument of two parts: memory, and the offset of its first byte. A buffer of
    its own for each part of planned memory would have to start at up to 512 bytes.
    """

    emitter_type = OpenClEmitter

    def __init__(self, name: str, target: GpuTarget) -> None:
        super().__init__(name, target)
        self._parts = [_EXACT]

    @override
    @contextmanager
    def kernel(
        self, name: str, tensors: Sequence[Tensor], threads: int, shared_bytes: int, maps: int
    ) -> Iterator[KernelEntry]:
        assert not maps
        builder = CBuilder()
        given: list[str] = []
        arguments: list[CPointer] = []
        for place, tensor in enumerate(tensors):
            array, element = _name(tensor, place), TYPES[tensor.dtype]
            kind = f"{GLOBAL} {type_name(element)} *"
            given.append(f"{GLOBAL} char *{array}, const ulong {array}_at")
            arguments.append(CPointer(f"{array}_p", element, GLOBAL))
            start = f"({kind})({array} + {array}_at)"
            builder.entry.append(f"  {kind}restrict const {array}_p = {start};")
        memory = CPointer("shared", I8, LOCAL) if shared_bytes else None
        if memory:
            aligned = f"__attribute__((aligned({ALIGNMENT_BYTES})))"
            builder.entry.append(f"  {LOCAL} char shared[{shared_bytes}] {aligned};")
        yield KernelEntry(builder, arguments, memory)
        head = f"__kernel __attribute__((reqd_work_group_size({threads}, 1, 1)))"
        self._parts.append(f"{head}\nvoid {name}({', '.join(given)}) {{\n{builder}\n}}")

    @override
    def text(self) -> str:
        return "\n\n".join(self._parts) + "\n"


def _name(tensor: Tensor, place: int) -> str:
    """The name of an argument, which no variable of the code has."""
    letters = re.sub(r"\W", "_", tensor.name, flags=re.ASCII)[:_NAME_LENGTH]
    return f"_{letters}_{place}" if letters[0].isdigit() else f"{letters}_{place}"
