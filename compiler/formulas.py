"""Laws of elementwise functions: text in Python's syntax, read into formulas.

A formula is the name of an operand, a number, or an operation's name with its arguments:
`x * sigmoid(x)` becomes `("mul", "x", ("sigmoid", "x"))`. NumPy computes formulas here, and
`cpu.kernels.formulas` makes machine code of them.
"""

import ast
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..errors import CompileError

Formula = str | float | tuple
"""The name of an operand, a number, or the name of an operation with its arguments."""

MAX_CHARACTERS, MAX_OPERATIONS = 1000, 200
"""Limits of a law; it is computed for every element."""
MAX_WHOLE = 1 << 63
"""Maximum of whole numbers in a law."""


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divide; integers round towards zero."""
    if np.result_type(a, b).kind not in "iu":
        return np.divide(a, b)
    quotient = a // b
    inexact = (quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    return quotient + inexact.astype(a.dtype)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if np.result_type(a, b).kind in "iu" and np.less(b, 0).any():
        return np.trunc(np.power(a.astype(np.float64), b.astype(np.float64)))
    return np.power(a, b)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _like(x: np.ndarray, result: np.ndarray) -> np.ndarray:
    return np.asarray(result).astype(x.dtype)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """`1 / (1 + exp(-x))` in float64, so that it is rounded once."""
    return 1 / (1 + np.exp(-np.asarray(x).astype(np.float64)))


_ANGLES = ("sin", "cos", "tan", "sinh", "cosh", "tanh")
_OF_NUMPY = (
    *("mod", "fmod", "abs", "sign", "clip", "floor", "ceil", "less", "less_equal", "equal"),
    *("invert", "isinf", "sqrt", "exp", "expm1", "log"),
)
"""Operations that are NumPy's functions of the same name."""

OPERATIONS: Mapping[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in (*_OF_NUMPY, *_ANGLES)},
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "pow": _power,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "round": np.rint,
    "select": np.where,
    "not": np.logical_not,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "erf": lambda x: _like(x, _erf(x)),
    "gelu": lambda x: 0.5 * x * (1 + _like(x, _erf(x / math.sqrt(2)))),
    "sigmoid": _sigmoid,
    "softplus": lambda x: np.logaddexp(x, 0),
    **{f"a{name}": getattr(np, f"arc{name}") for name in _ANGLES},
}
"""The definition of every operation."""

CALLED: Mapping[str, int] = {
    **dict.fromkeys(
        (
            *("abs", "sign", "round", "floor", "ceil", "isinf", "sqrt", "exp", "expm1", "log"),
            *("erf", "gelu", "sigmoid", "softplus", "sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        ),
        1,
    ),
    **dict.fromkeys(("max", "min", "fmod"), 2),
    "clip": 3,
}
"""Operations that a law calls by name, and their numbers of arguments."""

_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shift_left",
    ast.RShift: "shift_right",
}
_UNARY: Mapping[type[ast.unaryop], str] = {
    ast.USub: "neg",
    ast.Not: "not",
    ast.Invert: "invert",
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Formula, Formula], Formula]] = {
    ast.Lt: lambda a, b: ("less", a, b),
    ast.LtE: lambda a, b: ("less_equal", a, b),
    ast.Gt: lambda a, b: ("less", b, a),
    ast.GtE: lambda a, b: ("less_equal", b, a),
    ast.Eq: lambda a, b: ("equal", a, b),
    ast.NotEq: lambda a, b: ("not", ("equal", a, b)),
}


# Reading -----------------------------------------------------------------------------------------


APPROXIMATED = frozenset(
    ("exp", "expm1", "log", "tanh", "sigmoid", "softplus", "erf", "gelu", "pow", "sin", "cos")
)
"""Operations that machine code computes by polynomials; they differ in the last bits."""


def read_formula(law: str) -> Formula:
    """Read a law: `x * clip(x / 6 + 0.5, 0, 1)`, `x if x > 0 else alpha * expm1(x)`.

    Raises
    ------
    CompileError
        For anything outside the syntax; the message names it.
    """
    try:
        body = ast.parse(law.strip()[: MAX_CHARACTERS + 1], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        if len(law.strip()) <= MAX_CHARACTERS:
            raise CompileError(
                f"law `{law}`: expected an expression in Python's syntax, such as "
                "`x * sigmoid(x)`; correct it"
            ) from None
        body = None
    if body is None or sum(isinstance(node, ast.expr) for node in ast.walk(body)) > MAX_OPERATIONS:
        raise CompileError(
            f"law `{law[:60]}...`: expected at most {MAX_CHARACTERS:,} characters and "
            f"{MAX_OPERATIONS} names, numbers and operations; write the operator as a kernel"
        )
    return _FormulaReader(law).formula(body)


class _FormulaReader:
    def __init__(self, law: str) -> None:
        self.law = law

    def formula(self, node: ast.expr) -> Formula:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            if isinstance(node.value, int) and node.value > MAX_WHOLE:
                raise CompileError(
                    f"law `{self.law}`: expected whole numbers up to 2^63; write larger ones as "
                    "reals, such as `1e30`"
                )
            return node.value
        if isinstance(node, ast.BinOp) and (name := _BINARY.get(type(node.op))):
            return folded((name, self.formula(node.left), self.formula(node.right)))
        if isinstance(node, ast.UnaryOp) and (name := _UNARY.get(type(node.op))):
            return folded((name, self.formula(node.operand)))
        if isinstance(node, ast.BoolOp):
            first, *others = map(self.formula, node.values)
            for other in others:
                first = ("and" if isinstance(node.op, ast.And) else "or", first, other)
            return first
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED and not node.ops[1:]:
            right = self.formula(node.comparators[0])
            return _COMPARED[type(node.ops[0])](self.formula(node.left), right)
        if isinstance(node, ast.IfExp):
            parts = map(self.formula, (node.test, node.body, node.orelse))
            return ("select", *parts)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return folded(self.call(node.func.id, node.args))
        raise CompileError(
            f"law `{self.law}`: `{ast.unparse(node)}` is not part of a law; use names, numbers, "
            "`+ - * / % **`, comparisons, `and`, `or`, `not`, `a if condition else b`, and "
            f"{', '.join(CALLED)}"
        )

    def call(self, name: str, arguments: list[ast.expr]) -> Formula:
        if CALLED.get(name) != len(arguments):
            expected = f"{CALLED[name]} arguments" if name in CALLED else ", ".join(CALLED)
            raise CompileError(
                f"law `{self.law}`: `{name}` of {len(arguments)} arguments: expected {expected}; "
                "correct it"
            )
        return (name, *map(self.formula, arguments))


_BITWISE = ("invert", "and", "or", "xor", "shift_left", "shift_right")
"""Operations that float64 lacks."""


# Formulas ----------------------------------------------------------------------------------------


def folded(formula: Formula) -> Formula:
    """Compute an operation of numbers in float64, and leave out a multiplication by 1."""
    if not isinstance(formula, tuple):
        return formula
    name, *arguments = formula
    if name == "mul" and 1 in arguments:
        return arguments[1 - arguments.index(1)]
    if name in _BITWISE or not all(map(is_number, arguments)):
        return formula
    with np.errstate(all="ignore"):
        found = OPERATIONS[name](*map(np.float64, arguments))
    whole = all(isinstance(a, int) for a in arguments) and float(found).is_integer()
    return int(found) if whole else float(found)


def is_number(formula: Formula) -> bool:
    """Whether a formula is a number."""
    return isinstance(formula, (int, float))


def names_in(formula: Formula) -> Iterator[str]:
    """Yield the names that a formula reads, in order, with repetitions."""
    if isinstance(formula, str):
        yield formula
    elif isinstance(formula, tuple):
        for part in formula[1:]:
            yield from names_in(part)


def operations_in(formula: Formula) -> Iterator[str]:
    """Yield the operations of a formula, with repetitions."""
    if isinstance(formula, tuple):
        yield formula[0]
        for part in formula[1:]:
            yield from operations_in(part)


def real_numbers(formula: Formula) -> Formula:
    """Round the numbers of a formula to float32, so that none is an integer."""
    if isinstance(formula, tuple):
        return (formula[0], *map(real_numbers, formula[1:]))
    if isinstance(formula, str):
        return formula
    with np.errstate(over="ignore"):
        return float(np.float32(formula))


def substituted(formula: Formula, parts: Mapping[str, Formula]) -> Formula:
    """Replace names by formulas or numbers, and compute what then depends on numbers only."""
    if isinstance(formula, str):
        return parts.get(formula, formula)
    if not isinstance(formula, tuple):
        return formula
    return folded((formula[0], *(substituted(part, parts) for part in formula[1:])))


def compute(formula: Formula, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Compute a formula with NumPy; each operation rounds to the operands' common type.

    Warnings of NumPy are left to the caller's `np.errstate`.
    """
    kind = np.result_type(*values.values())

    def value(part: Formula) -> np.ndarray | np.generic | float:
        if isinstance(part, str):
            return values[part]
        if isinstance(part, tuple):
            return OPERATIONS[part[0]](*map(value, part[1:]))
        return kind.type(part) if kind.kind == "f" else part

    return np.asarray(value(formula))
