"""Instructions of a GPU's threads as OpenCL C."""

from collections.abc import Callable, Sequence

from typing_extensions import override

from ..cpu.codegen.emitter import I32, I64, LlvmType, LlvmValue
from .c_builder import CBuilder
from .c_values import PRIVATE, CPointer, CValue, text_of, type_name
from .emitter import GpuEmitter

_FUNCTIONS = {
    "llvm.fma.f32": "fma",
    "llvm.fabs.f32": "fabs",
    "llvm.fabs.f64": "fabs",
    "llvm.copysign.f32": "copysign",
    "llvm.sqrt.f32": "sqrt",
}
"""Names of intrinsics in OpenCL C."""

_NUMBERS = {
    "tid.x": "get_local_id(0)",
    "ctaid.x": "get_group_id(0)",
    "ctaid.y": "get_group_id(1)",
    "ctaid.z": "get_group_id(2)",
}
"""Numbers of the thread and of the block."""


class OpenClEmitter(GpuEmitter):
    """Emits through a `CBuilder`."""

    builder: CBuilder
    is_asynchronous = False

    @override
    def intrinsic(self, name: str, result: LlvmType, arguments: Sequence[LlvmValue]) -> LlvmValue:
        if name == "llvm.memset.p0.i64":
            return self._fill(*arguments[:3])
        return self.builder.let(result, f"{_FUNCTIONS[name]}({', '.join(map(text_of, arguments))})")

    def _fill(self, pointer: CPointer, byte: LlvmValue, count: LlvmValue) -> None:
        def put(place: LlvmValue) -> None:
            self.builder.store(byte, self.builder.gep(pointer, [place], byte.type), align=1)

        self.repeat(count.constant, put)

    @override
    def alloca(self, element: LlvmType, count: int, alignment: int) -> CPointer:
        name = self.builder.fresh("r")
        with self.builder.goto_entry_block():
            self.builder.line(f"{type_name(element)} {name}[{count}];")
        return CPointer(name, element, PRIVATE)

    @override
    def repeat(self, count: int, body: Callable[[LlvmValue], None]) -> None:
        name = self.builder.fresh("i")
        with self.builder.braces(f"for (long {name} = 0; {name} < {count}; ++{name})"):
            body(CValue(I64, name))

    @override
    def either(
        self,
        condition: LlvmValue,
        make: Callable[[], Sequence[LlvmValue]],
        other: Callable[[], Sequence[LlvmValue]],
    ) -> list[LlvmValue]:
        found: list[CValue] = []
        head = self.builder.mark()
        with self.builder.if_then(condition):
            for value in make():
                found.append(CValue(value.type, self.builder.fresh("e")))
                self.builder.line(f"{found[-1].text} = {text_of(value)};")
        with self.builder.braces("else"):
            for value, chosen in zip(other(), found, strict=True):
                self.builder.line(f"{chosen.text} = {text_of(value)};")
        self.builder.insert(head, (f"{type_name(v.type)} {v.text};" for v in found))
        return list(found)

    @override
    def rounded(self, value: LlvmValue) -> LlvmValue:
        return self.builder.let(I32, f"convert_int_rte({text_of(value)})")

    @override
    def register(self, name: str) -> LlvmValue:
        return self.builder.let(I64, _NUMBERS[name])

    @override
    def barrier(self) -> None:
        self.builder.line("barrier(CLK_LOCAL_MEM_FENCE);")
