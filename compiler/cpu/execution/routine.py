"""Routines of machine code beside the kernels: a builder with variables, loops and atomics."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir
from llvmlite.ir.instructions import StoreAtomicInstr

from ..codegen.emitter import I8, I64, POINTER, LlvmType, LlvmValue
from ..codegen.lower_parallel import Callee

VOID: LlvmType = ir.VoidType()
ORDER = "seq_cst"


class Routine(ir.IRBuilder):
    """A builder inside a new function.

    Parameters
    ----------
    module
        The module that gets the function.
    name, arguments, result
        Its name and its types.
    internal
        Whether only this module calls it.
    """

    def __init__(
        self,
        module: ir.Module,
        name: str,
        arguments: Sequence[LlvmType],
        result: LlvmType = VOID,
        *,
        internal: bool = False,
    ) -> None:
        function: LlvmValue = ir.Function(module, ir.FunctionType(result, arguments), name)
        function.linkage = "internal" if internal else ""
        super().__init__(function.append_basic_block("entry"))
        self.arguments = function.args

    def at(self, pointer: LlvmValue, offset: LlvmValue | int) -> LlvmValue:
        """The address a number of bytes further."""
        offset = I64(offset) if isinstance(offset, int) else offset
        return self.gep(pointer, [offset], source_etype=I8)

    def word(self, pointer: LlvmValue, number: int, kind: LlvmType = I64) -> LlvmValue:
        """Load a word of 8 bytes by its number."""
        return self.load(self.at(pointer, 8 * number), typ=kind)

    def variable(self, value: LlvmValue) -> LlvmValue:
        """A variable with its first value; LLVM keeps it in a register."""
        with self.goto_entry_block():
            place: LlvmValue = self.alloca(value.type)
        place.type = POINTER
        self.store(value, place)
        return place

    @contextmanager
    def loop(self) -> Iterator[Callable[[LlvmValue], None]]:
        """Repeat the code inside, which leaves the loop by a call of what is yielded."""
        head, after = self.append_basic_block(), []

        def leave(condition: LlvmValue) -> None:
            if not after:
                after.append(self.append_basic_block())
            further = self.append_basic_block()
            self.cbranch(condition, after[0], further)
            self.position_at_end(further)

        self.branch(head)
        self.position_at_end(head)
        yield leave
        self.branch(head)
        if after:
            self.position_at_end(after[0])

    @contextmanager
    def moving(
        self, count: LlvmValue, *pointers: tuple[LlvmValue, LlvmValue]
    ) -> Iterator[list[LlvmValue]]:
        """Repeat the code for `count` places, at least one, of pointers with their strides."""
        done = self.variable(I64(0))
        places = [self.variable(pointer) for pointer, _ in pointers]
        with self.loop() as leave:
            now = [self.load(place, typ=POINTER) for place in places]
            yield now
            for place, pointer, (_, stride) in zip(places, now, pointers, strict=True):
                self.store(self.at(pointer, stride), place)
            following = self.add(self.load(done, typ=I64), I64(1))
            self.store(following, done)
            leave(self.icmp_unsigned(">=", following, count))

    @contextmanager
    def blocks(self, extent: LlvmValue, size: int) -> Iterator[LlvmValue]:
        """Repeat the code for the starts of blocks that cover an extent, which is no smaller."""
        place = self.variable(I64(0))
        last = self.sub(extent, I64(size))
        with self.loop() as leave:
            start = self.load(place, typ=I64)
            # The last block overlaps the one before it instead of being cut off.
            yield self.select(self.icmp_unsigned(">", start, last), last, start)
            following = self.add(start, I64(size))
            self.store(following, place)
            leave(self.icmp_unsigned(">=", following, extent))

    def call_at(
        self, code: LlvmValue, arguments: Sequence[LlvmValue], kind: ir.FunctionType
    ) -> LlvmValue:
        """Call a function by its address."""
        return self.call(Callee(code, kind), arguments)

    def read(self, pointer: LlvmValue, kind: LlvmType) -> LlvmValue:
        """Load a number that other threads write."""
        return self.load_atomic(pointer, ORDER, kind.width // 8, typ=kind)

    def write(self, number: LlvmValue, pointer: LlvmValue) -> None:
        """Store a number that other threads read."""
        size = number.type.width // 8
        self._insert(StoreAtomicInstr(self.block, number, pointer, ORDER, size))

    def change(self, operation: str, pointer: LlvmValue, number: LlvmValue) -> LlvmValue:
        """Change a number that other threads change too; return what it was."""
        return self.atomic_rmw(operation, pointer, number, ORDER)
