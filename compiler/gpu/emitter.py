"""Instructions of a GPU's threads that LLVM's builder lacks, or names differently for GPUs."""

from collections.abc import Sequence

from llvmlite import ir
from typing_extensions import override

from ..cpu.codegen.emitter import BIT, FLOAT, I32, I64, Emitter, LlvmValue

GLOBAL_SPACE, SHARED_SPACE = 1, 3
"""LLVM's numbers of main memory and of shared memory."""

ALIGNMENT_BYTES = 16
"""Alignment of buffers in shared memory and in registers."""

ASYNCHRONOUS_BYTES = (4, 8, 16)
"""Bytes that an asynchronous copy moves."""


_LETTERS = {I32: "r", I64: "l", FLOAT: "f", BIT: "b"}
"""Registers of assembly, by the type of what they hold."""


class GpuEmitter(Emitter):
    """Instructions that LLVM names differently for GPUs."""

    is_asynchronous = True
    """Copies into shared memory may run ahead of what follows."""

    @override
    def rounded(self, value: LlvmValue) -> LlvmValue:
        return self.intrinsic("llvm.nvvm.f2i.rn", I32, [value])

    def register(self, name: str) -> LlvmValue:
        """A number of the thread or of the block, as int64."""
        value = self.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}", I32, [])
        return self.builder.zext(value, I64)

    def in_shared(self, pointer: LlvmValue) -> LlvmValue:
        """A pointer to shared memory as instructions on that memory take it."""
        return self.builder.addrspacecast(pointer, ir.PointerType(addrspace=SHARED_SPACE))

    def copy_async(
        self, target: LlvmValue, source: LlvmValue, size: int, inside: LlvmValue | None
    ) -> None:
        """Start a copy of `size` bytes into shared memory; zeros where the bit is not set."""
        way = "cg" if size == max(ASYNCHRONOUS_BYTES) else "ca"
        given = I32(size) if inside is None else self.builder.select(inside, I32(size), I32(0))
        self.intrinsic(
            f"llvm.nvvm.cp.async.{way}.shared.global.{size}.s",
            ir.VoidType(),
            [
                self.in_shared(target),
                self.builder.addrspacecast(source, ir.PointerType(addrspace=GLOBAL_SPACE)),
                given,
            ],
        )

    def commit(self) -> None:
        """End a group of asynchronous copies."""
        self.intrinsic("llvm.nvvm.cp.async.commit.group", ir.VoidType(), [])

    def wait(self, groups: int) -> None:
        """Wait until at most so many groups of this thread are unfinished."""
        self.intrinsic("llvm.nvvm.cp.async.wait.group", ir.VoidType(), [I32(groups)])

    def assembly(
        self,
        text: str,
        given: Sequence[LlvmValue] = (),
        changed: Sequence[LlvmValue] = (),
    ) -> list[LlvmValue]:
        """Instructions that LLVM does not know, and the new values of `changed`.

        In the text, `$0` and so on are first the changed values and then, after as many numbers
        that it must not use, the given ones.
        """
        kinds = [value.type for value in changed]
        result = ir.LiteralStructType(kinds) if len(kinds) > 1 else (*kinds, ir.VoidType())[0]
        constraints = [
            *(f"={_LETTERS[kind]}" for kind in kinds),
            *map(str, range(len(kinds))),
            *(_LETTERS[value.type] for value in given),
            "~{memory}",
        ]
        values = [*changed, *given]
        function = ir.FunctionType(result, [value.type for value in values])
        code = ir.InlineAsm(function, text, ",".join(constraints), side_effect=True)
        # Whole warps run it, so LLVM must not move it behind a condition.
        found = self.builder.call(code, values, attrs=("convergent",))
        if len(kinds) < 2:
            return [found] * len(kinds)
        return [self.builder.extract_value(found, place) for place in range(len(kinds))]

    def publish(self) -> None:
        """Let instructions that read shared memory by themselves see what this thread wrote."""
        self.assembly("fence.proxy.async.shared::cta;")

    def barrier(self) -> None:
        self.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", ir.VoidType(), [I32(0)])
