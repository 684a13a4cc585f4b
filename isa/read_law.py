"""Parser from the text of a law, in Python's syntax, to an expression tree; see `laws`."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import IsaError
from .expressions import Call, Expression, Literal, Op
from .laws import HIGH, LOW, MINUS_ONE, wrapped

FORMS = (
    "whole numbers, `+ - *`, `>>` and `<<` by a number, `& | ^ ~`, `max`, `min`, `abs`, "
    "`wrap(x, bits)` for the low bits of `x` as a signed number, comparisons, and "
    "`x if condition else y`"
)
"""Syntax of a law, for messages and the manual."""

MAX_LAW, MAX_PARTS = 300, 100
"""Limits of a law: it becomes an adder, not a second accelerator."""


def read_law(text: str, names: Mapping[str, Expression]) -> Expression:
    """Parse the text of a law into a tree.

    `x - y` becomes `x + -1 * y`, `abs(x)` becomes `max(x, -1 * x)`, and `wrap(x, bits)` a shift to
    the left and back; fewer operations make matching simpler.

    Parameters
    ----------
    names
        Names that the law may read.

    Raises
    ------
    IsaError
        For anything outside the syntax; the message names it.
    """
    too_long = IsaError(
        f"law `{text}`: too long; at most {MAX_LAW} characters, and {MAX_PARTS} names, "
        "numbers and operations; those inside `abs` count twice"
    )
    if len(text) > MAX_LAW:
        raise too_long
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise IsaError(f"law `{text}`: not an expression; write it with {FORMS}") from None
    if _size(body) > MAX_PARTS:
        raise too_long
    return _LawReader(text, names).tree(body)


def _size(node: ast.AST) -> int:
    """Upper bound of the tree nodes that a piece of syntax becomes."""
    inside = sum(map(_size, ast.iter_child_nodes(node)))
    doubled = isinstance(node, ast.Call) and ast.unparse(node.func) == "abs"
    return isinstance(node, ast.expr) + inside * (2 if doubled else 1)


_BINARY: dict[type[ast.operator], Op] = {
    ast.Add: Op.ADD,
    ast.Mult: Op.MULTIPLY,
    ast.RShift: Op.SHIFT_RIGHT,
    ast.BitAnd: Op.AND,
    ast.BitOr: Op.OR,
    ast.BitXor: Op.XOR,
}


@dataclass(frozen=True, slots=True)
class _LawReader:
    """Python's syntax to expressions."""

    text: str
    names: Mapping[str, Expression]

    def tree(self, node: ast.expr) -> Expression:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return self.number(value)
            case ast.Name(id=name):
                if name not in self.names:
                    known = ", ".join(self.names)
                    raise IsaError(f"law `{self.text}`: unknown name `{name}`; known are {known}")
                return self.names[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.negative(self.tree(operand))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return Call(Op.XOR, (self.tree(operand), MINUS_ONE))
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(node, self.tree(left), op, self.tree(right))
            case ast.Call(func=ast.Name(id=name), args=[*arguments], keywords=[]):
                return self.function(node, name, [self.tree(each) for each in arguments])
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.comparison(node, self.tree(left), op, self.tree(right))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return Call(Op.SELECT, (self.tree(test), self.tree(body), self.tree(orelse)))
        raise self.refusal(node)

    def refusal(self, node: ast.expr) -> IsaError:
        return IsaError(
            f"law `{self.text}`: cannot read `{ast.unparse(node)}`; write it with {FORMS}"
        )

    def number(self, value: int) -> Literal:
        if not LOW <= value <= HIGH:
            raise IsaError(f"law `{self.text}`: {value} does not fit 32 bits ({LOW} to {HIGH})")
        return Literal(value)

    def negative(self, tree: Expression) -> Expression:
        if isinstance(tree, Literal):
            return self.number(-tree.value)
        return Call(Op.MULTIPLY, (tree, MINUS_ONE))

    def binary(
        self, node: ast.expr, left: Expression, op: ast.operator, right: Expression
    ) -> Expression:
        if isinstance(op, ast.Sub):
            return Call(Op.ADD, (left, self.negative(right)))
        if isinstance(op, (ast.LShift, ast.RShift)):
            if not isinstance(right, Literal) or not 0 <= right.value < 31:
                raise self.refusal(node)
            if isinstance(op, ast.LShift):
                return Call(Op.MULTIPLY, (left, Literal(1 << right.value)))
        if type(op) not in _BINARY:
            raise self.refusal(node)
        return Call(_BINARY[type(op)], (left, right))

    def function(self, node: ast.expr, name: str, arguments: list[Expression]) -> Expression:
        if name == "abs" and len(arguments) == 1:
            return Call(Op.MAXIMUM, (arguments[0], self.negative(arguments[0])))
        if name == "wrap" and len(arguments) == 2:
            value, bits = arguments
            if not isinstance(bits, Literal) or not 2 <= bits.value <= 31:
                raise self.refusal(node)
            return wrapped(value, bits.value)
        op = {"max": Op.MAXIMUM, "min": Op.MINIMUM}.get(name)
        if op is None or len(arguments) < 2:
            raise self.refusal(node)
        tree = arguments[0]
        for argument in arguments[1:]:
            tree = Call(op, (tree, argument))
        return tree

    def comparison(
        self, node: ast.expr, left: Expression, op: ast.cmpop, right: Expression
    ) -> Expression:
        if isinstance(op, (ast.Gt, ast.LtE)):
            left, right = right, left
        if isinstance(op, (ast.Eq, ast.NotEq)):
            tree = Call(Op.EQUAL, (left, right))
        elif isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            tree = Call(Op.LESS, (left, right))
        else:
            raise self.refusal(node)
        if isinstance(op, (ast.LtE, ast.GtE, ast.NotEq)):
            return Call(Op.SELECT, (tree, Literal(0), Literal(1)))
        return tree
