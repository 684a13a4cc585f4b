"""A builder of OpenCL C 1.2 with the methods of llvmlite's, so that one lowering serves both.

Each instruction becomes a variable of its own. Arithmetic on integers wraps as in LLVM.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from ..cpu.codegen.emitter import BIT, HALF, I16, LlvmType, LlvmValue
from .c_values import CPointer, CValue, text_of, type_name, unsigned

INDENT = "  "
NO_FLAGS: tuple[str, ...] = ()


class CBuilder:
    """The body of one function."""

    def __init__(self) -> None:
        self.entry: list[str] = []
        """Declarations at the head of the function."""
        self._body: list[str] = []
        self._lines, self._depth, self._names = self._body, 1, 0

    def __str__(self) -> str:
        return "\n".join((*self.entry, *self._body))

    # Text ----------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Write a line at the place where code is emitted."""
        depth = self._depth if self._lines is self._body else 1
        self._lines.append(INDENT * depth + text)

    def fresh(self, prefix: str = "t") -> str:
        """An unused name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def mark(self) -> int:
        """A place for declarations, before the line that follows."""
        return len(self._lines)

    def insert(self, place: int, lines: Iterable[str]) -> None:
        """Declarations at a place."""
        self._lines[place:place] = [INDENT * self._depth + line for line in lines]

    def declared(self, kind: LlvmType) -> CValue:
        """A variable without a value."""
        value = CValue(kind, self.fresh())
        self.line(f"{type_name(kind)} {value.text};")
        return value

    def let(self, kind: LlvmType, expression: str) -> CValue:
        """A variable with a value."""
        value = CValue(kind, self.fresh())
        self.line(f"const {type_name(kind)} {value.text} = {expression};")
        return value

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """Write a statement around the code inside the context."""
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextmanager
    def goto_entry_block(self) -> Iterator[None]:
        """Write at the head of the function inside the context."""
        before, self._lines = self._lines, self.entry
        yield
        self._lines = before

    def if_then(self, condition: LlvmValue):
        return self.braces(f"if ({text_of(condition)})")

    # Integers ------------------------------------------------------------------------------------

    def add(self, a: LlvmValue, b: LlvmValue, flags: Sequence[str] = NO_FLAGS) -> LlvmValue:
        return self._wrapping("+", a, b, flags)

    def sub(self, a: LlvmValue, b: LlvmValue, flags: Sequence[str] = NO_FLAGS) -> LlvmValue:
        return self._wrapping("-", a, b, flags)

    def mul(self, a: LlvmValue, b: LlvmValue, flags: Sequence[str] = NO_FLAGS) -> LlvmValue:
        return self._wrapping("*", a, b, flags)

    def shl(self, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        return self._wrapping("<<", a, b, NO_FLAGS)

    def _wrapping(self, sign: str, a: LlvmValue, b: LlvmValue, flags: Sequence[str]) -> LlvmValue:
        if isinstance(b, ir.Constant) and b.constant == (1 if sign == "*" else 0):
            return a
        # Overflow of signed integers is undefined in C; indices are in range.
        if "nsw" in flags:
            return self.let(a.type, f"{text_of(a)} {sign} {text_of(b)}")
        wide = unsigned(a.type)
        return self.let(
            a.type, f"({type_name(a.type)})(({wide}){text_of(a)} {sign} ({wide}){text_of(b)})"
        )

    def _unsigned(self, sign: str, a: LlvmValue, b: LlvmValue) -> CValue:
        wide = unsigned(a.type)
        return self.let(a.type, f"({wide}){text_of(a)} {sign} ({wide}){text_of(b)}")

    def udiv(self, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        """A quotient without signs; nothing for a divisor of 1."""
        if isinstance(b, ir.Constant) and b.constant == 1:
            return a
        return self._unsigned("/", a, b)

    def urem(self, a: LlvmValue, b: LlvmValue) -> CValue:
        return self._unsigned("%", a, b)

    def lshr(self, a: LlvmValue, b: LlvmValue) -> CValue:
        return self._unsigned(">>", a, b)

    def _plain(self, sign: str, a: LlvmValue, b: LlvmValue) -> CValue:
        return self.let(a.type, f"{text_of(a)} {sign} {text_of(b)}")

    def ashr(self, a: LlvmValue, b: LlvmValue) -> CValue:
        return self._plain(">>", a, b)

    def and_(self, a: LlvmValue, b: LlvmValue) -> CValue:
        return self._plain("&", a, b)

    def or_(self, a: LlvmValue, b: LlvmValue) -> CValue:
        return self._plain("|", a, b)

    def xor(self, a: LlvmValue, b: LlvmValue) -> CValue:
        return self._plain("^", a, b)

    # Floating point ------------------------------------------------------------------------------

    def fadd(self, a: LlvmValue, b: LlvmValue, flags: Sequence[str] = NO_FLAGS) -> CValue:
        return self._plain("+", a, b)

    def fsub(self, a: LlvmValue, b: LlvmValue, flags: Sequence[str] = NO_FLAGS) -> CValue:
        return self._plain("-", a, b)

    def fmul(self, a: LlvmValue, b: LlvmValue, flags: Sequence[str] = NO_FLAGS) -> CValue:
        return self._plain("*", a, b)

    def fdiv(self, a: LlvmValue, b: LlvmValue, flags: Sequence[str] = NO_FLAGS) -> CValue:
        return self._plain("/", a, b)

    def fneg(self, a: LlvmValue) -> CValue:
        return self.let(a.type, f"-{text_of(a)}")

    # Comparisons ---------------------------------------------------------------------------------

    def icmp_signed(self, sign: str, a: LlvmValue, b: LlvmValue) -> CValue:
        return self.let(BIT, f"{text_of(a)} {sign} {text_of(b)}")

    def icmp_unsigned(self, sign: str, a: LlvmValue, b: LlvmValue) -> CValue:
        """A comparison of numbers without signs."""
        wide = unsigned(a.type)
        return self.let(BIT, f"({wide}){text_of(a)} {sign} ({wide}){text_of(b)}")

    def fcmp_ordered(self, sign: str, a: LlvmValue, b: LlvmValue) -> CValue:
        """False if either is a NaN; in C, a NaN differs from everything."""
        if sign == "!=":
            return self.let(BIT, f"islessgreater({text_of(a)}, {text_of(b)})")
        return self.let(BIT, f"{text_of(a)} {sign} {text_of(b)}")

    def fcmp_unordered(self, sign: str, a: LlvmValue, b: LlvmValue) -> CValue:
        """True if either is a NaN, the one sign that is used."""
        assert sign == "uno"
        return self.let(BIT, f"isunordered({text_of(a)}, {text_of(b)})")

    def select(self, condition: LlvmValue, a: LlvmValue, b: LlvmValue) -> CValue:
        return self.let(a.type, f"{text_of(condition)} ? {text_of(a)} : {text_of(b)}")

    # Conversions ---------------------------------------------------------------------------------

    def _cast(self, value: LlvmValue, kind: LlvmType) -> CValue:
        return self.let(kind, f"({type_name(kind)}){text_of(value)}")

    trunc = sitofp = _cast

    def sext(self, value: LlvmValue, kind: LlvmType) -> CValue:
        """A wider number; a bit becomes all ones."""
        sign = "-" if value.type == BIT else ""
        return self.let(kind, f"{sign}({type_name(kind)}){text_of(value)}")

    def zext(self, value: LlvmValue, kind: LlvmType) -> CValue:
        """A wider number without a sign; types of C without `u` have one."""
        inner = text_of(value) if value.type == BIT else f"({unsigned(value.type)}){text_of(value)}"
        return self.let(kind, f"({type_name(kind)}){inner}")

    def fpext(self, value: LlvmValue, kind: LlvmType) -> CValue:
        """A wider float; a float16 must be in memory."""
        if value.type == HALF:
            bits = self.let(I16, text_of(value))
            return self.let(kind, f"vload_half(0, (const half *)&{bits.text})")
        return self._cast(value, kind)

    def fptrunc(self, value: LlvmValue, kind: LlvmType) -> CValue:
        """A narrower float, halves to even."""
        if kind != HALF:
            return self._cast(value, kind)
        half = self.declared(kind)
        self.line(f"vstore_half_rte({text_of(value)}, 0, (half *)&{half.text});")
        return half

    def bitcast(self, value: LlvmValue, kind: LlvmType) -> CValue:
        return self.let(kind, f"as_{type_name(kind)}({text_of(value)})")

    # Memory --------------------------------------------------------------------------------------

    def gep(self, pointer: CPointer, index: list[LlvmValue], source_etype: LlvmType) -> CPointer:
        """The address of an element `index` elements further on."""
        (only,) = index
        return pointer.cast(source_etype).moved(text_of(only))

    def load(self, pointer: CPointer, align: int, typ: LlvmType) -> CValue:
        return self.let(typ, pointer.cast(typ).place())

    def store(self, value: LlvmValue, pointer: CPointer, align: int) -> None:
        self.line(f"{pointer.cast(value.type).place()} = {text_of(value)};")
