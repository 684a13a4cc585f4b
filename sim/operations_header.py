"""The operations of VECTOR as C++, generated from their laws for the functional simulation.

`with_operation(code, ..., each)` calls `each` with a function of `a` and `b`; the loop over lanes
is in `each` and is compiled for that law. All integers are `std::int32_t` and wrap.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..isa.laws import Domain, evaluate
from ..isa.vector_operations import NAMES, OPERATIONS, Operation

HEADER = "operations.h"
"""File name of the generated header."""

_HEAD = """\
#pragma once
#include <algorithm>
#include <cstdint>
namespace tilewright {
using Word = std::int32_t;
inline Word add(Word x, Word y) { return Word(std::uint32_t(x) + std::uint32_t(y)); }
inline Word multiply(Word x, Word y) { return Word(std::uint32_t(x) * std::uint32_t(y)); }
inline Word negate(Word x) { return Word(0u - std::uint32_t(x)); }
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Text:
    """A C++ expression of type `Word`, or a comparison."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: "_Text") -> "_Text":
        return _Text(f"add({self}, {other})")

    def __mul__(self, other: "_Text") -> "_Text":
        return _Text(f"multiply({self}, {other})")

    def __neg__(self) -> "_Text":
        return _Text(f"negate({self})")

    def __rshift__(self, other: "_Text") -> "_Text":
        return _Text(f"({self} >> {other})")

    def __and__(self, other: "_Text") -> "_Text":
        return _Text(f"({self} & {other})")

    def __or__(self, other: "_Text") -> "_Text":
        return _Text(f"({self} | {other})")

    def __xor__(self, other: "_Text") -> "_Text":
        return _Text(f"({self} ^ {other})")

    def __lt__(self, other: "_Text") -> "_Text":
        return _Text(f"({self} < {other})")

    def __eq__(self, other: object) -> Any:
        return _Text(f"({self} == {other})")

    def __ne__(self, other: object) -> Any:
        return _Text(f"({self} != {other})")


class _Texts(Domain):
    """Pieces of C++."""

    def constant(self, value: int) -> _Text:
        return _Text(f"Word({value})")

    def select(self, condition: Any, true: Any, false: Any) -> _Text:
        return _Text(f"({condition} ? {true} : {false})")

    def larger(self, left: Any, right: Any) -> _Text:
        return _Text(f"std::max({left}, {right})")

    def smaller(self, left: Any, right: Any) -> _Text:
        return _Text(f"std::min({left}, {right})")


_TEXTS = _Texts()


def operations_header(operations: Sequence[Operation]) -> str:
    """Text of the header: laws, operations that read `b`, and the operation that is `a`."""
    return "\n".join(_lines(operations)) + "\n"


def _lines(operations: Sequence[Operation]) -> Iterator[str]:
    yield _HEAD + f"constexpr std::int64_t OPERATIONS = {len(operations)};"
    for name, codes in (
        ("reads_b", [code for code, each in enumerate(operations) if each.reads("b")]),
        ("is_a", [operations.index(OPERATIONS[0])]),
    ):
        holds = " || ".join(f"code == {code}" for code in codes)
        yield f"constexpr bool {name}(std::int64_t code) {{ return {holds}; }}"
    multipliers = ", ".join(f"[[maybe_unused]] Word {name}" for name in NAMES if name not in "ab")
    yield "template <class Each>"
    yield f"void with_operation(std::int64_t code, {multipliers}, Each each) {{"
    yield "    switch (code) {"
    names = {name: _Text(name) for name in NAMES}
    parameters = "[[maybe_unused]] Word a, [[maybe_unused]] Word b"
    for code, operation in enumerate(operations):
        law = evaluate(operation.tree, names, _TEXTS)
        yield f"        case {code}:  // {operation}"
        yield f"            return each([=]({parameters}) {{ return {law}; }});"
    yield "    }"
    yield "}"
    yield "}"
