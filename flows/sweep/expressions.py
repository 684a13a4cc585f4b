"""Conditions on figures, evaluated on intervals.

A figure that is not known yet is an interval: the cycles of a machine lie above their lower bound.
A condition then certainly holds, certainly fails, or is undecided. Exact figures are intervals of
one value and decide every condition, so one evaluation serves both.
"""

import ast
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from ...errors import UsageError, did_you_mean

Interval = tuple[float, float]
"""The least and the greatest value; the value of a condition is 0 (it fails) or 1 (it holds)."""

EVER: Interval = (-math.inf, math.inf)

MAX_TEXT = 1_000
"""Characters of a condition."""
MAX_NUMBER = 1e30
"""No figure comes near it."""


def exactly(value: float) -> Interval:
    """Return the interval of a known value."""
    return value, value


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition such as `act_depth <= 4096 and cycles * 2 < 10000`.

    Parameters
    ----------
    text
        As the user wrote it.
    tree
        The parsed text. It has only nodes that `_evaluate` supports.
    names
        The figures that it uses.
    """

    text: str
    tree: ast.expr
    names: frozenset[str]

    def may_hold(self, figures: Mapping[str, Interval]) -> bool:
        """Whether some values in the intervals satisfy the condition."""
        return bool(_evaluate(self.tree, figures)[1])

    def miss(self, figures: Mapping[str, Interval]) -> float:
        """Return by which share of the limit a failing comparison is missed at least.

        0 for a condition that may hold; infinite for one that is not a single comparison.
        """
        if self.may_hold(figures):
            return 0.0
        match self.tree:
            case ast.Compare(left=left, comparators=[right]):
                (low, high), (least, most) = (_evaluate(side, figures) for side in (left, right))
                # The side that is known is the limit, the right one if both are.
                limit = abs(least) if least == most else min(abs(low), abs(high))
                return max(low - most, least - high, 0.0) / max(limit, 1e-12)
        return math.inf

    def __str__(self) -> str:
        return self.text


OF_NETWORK = ("cycles", "ms")
"""Figures that each network also has of its own, such as `ms(kws)`."""


def of_network(figure: str, network: str) -> str:
    """Return the name of a network's own figure, as conditions write it."""
    return f"{figure}({network})"


def whole_name(start: str, networks: Collection[str]) -> str:
    """The network that has a name, or whose name alone begins so; otherwise the text itself."""
    longer = [name for name in networks if name.startswith(start)]
    return longer[0] if start and start not in networks and len(longer) == 1 else start


class _NetworkFigures(ast.NodeTransformer):
    """Turns `ms(kws)` and `ms("kws-small")` into single names; the start of a network's will do."""

    def __init__(self, known: Collection[str]) -> None:
        self.known = known

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(
                func=ast.Name(id=figure),
                args=[ast.Name(id=network) | ast.Constant(value=str(network))],
                keywords=[],
            ) if figure in OF_NETWORK:
                start = f"{figure}("
                names = [
                    one.removeprefix(start)[:-1] for one in self.known if one.startswith(start)
                ]
                return ast.Name(of_network(figure, whole_name(network, names)), ast.Load())
        return node


def read_condition(text: str, known: Collection[str], source: str) -> Constraint:
    """Parse a condition.

    Parameters
    ----------
    known
        Names of figures.
    source
        The place to name in messages.

    Raises
    ------
    UsageError
        For a text that is not a condition, or an unknown name.
    """
    if len(text) > MAX_TEXT:
        raise UsageError(
            f"{source}: expected at most {MAX_TEXT:,} characters, got {len(text):,}; shorten it"
        )
    try:
        tree = _NetworkFigures(known).visit(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _no_condition(text, source) from None
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif not isinstance(node, _PARTS) or (
            isinstance(node, ast.Constant) and not _is_number(node.value)
        ):
            raise _no_condition(text, source)
    if not _is_condition(tree):
        raise _no_condition(text, source)
    for name in sorted(names):
        if name not in known:
            raise UsageError(
                f"{source}: unknown figure `{name}`; known are {', '.join(sorted(known))}"
                + (_of_networks(name, known) or did_you_mean(name, known))
            )
    if not names:
        raise UsageError(f"{source}: expected a condition on some figure, got `{text}`")
    return Constraint(text.strip(), tree, frozenset(names))


def _of_networks(name: str, known: Collection[str]) -> str:
    """Suggest the same figure of known networks, where the network is unknown."""
    figure, network, _ = name.partition("(")
    same = sorted(each for each in known if each.startswith(f"{figure}("))
    return f"; choose {' or '.join(f'`{each}`' for each in same)}" if network and same else ""


def _is_number(value: object) -> bool:
    """Tell whether a value is a number that figures are compared with."""
    return isinstance(value, int | float) and type(value) is not bool and abs(value) < MAX_NUMBER


def _no_condition(text: str, source: str) -> UsageError:
    return UsageError(
        f"{source}: expected a condition with `<`, `<=`, `>`, `>=`, `==`, `+`, `-`, `*`, `/`, "
        f"`and`, `or` and `not`, for example `multipliers <= 128`, got `{text}`"
    )


_PARTS = (
    *(ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div),
    *(ast.Name, ast.Load, ast.Constant),
)


def _is_condition(tree: ast.expr) -> bool:
    match tree:
        case ast.Compare():
            return not any(map(_is_condition, (tree.left, *tree.comparators)))
        case ast.BoolOp():
            return all(map(_is_condition, tree.values))
        case ast.UnaryOp(op=ast.Not()):
            return _is_condition(tree.operand)
    return False


def _evaluate(tree: ast.expr, figures: Mapping[str, Interval]) -> Interval:
    match tree:
        case ast.Constant(value=int() | float() as value):
            return exactly(float(value))
        case ast.Name():
            return figures[tree.id]
        case ast.UnaryOp(op=ast.Not()):
            low, high = _evaluate(tree.operand, figures)
            return 1 - high, 1 - low
        case ast.UnaryOp():
            low, high = _evaluate(tree.operand, figures)
            return -high, -low
        case ast.BoolOp():
            parts = [_evaluate(value, figures) for value in tree.values]
            pick = min if isinstance(tree.op, ast.And) else max
            return pick(low for low, _ in parts), pick(high for _, high in parts)
        case ast.BinOp():
            left, right = (_evaluate(side, figures) for side in (tree.left, tree.right))
            return _combine(tree.op, left, right)
        case ast.Compare():
            values = [_evaluate(value, figures) for value in (tree.left, *tree.comparators)]
            found = [
                _COMPARE[type(op)](*pair)
                for op, pair in zip(tree.ops, pairwise(values), strict=True)
            ]
            return min(low for low, _ in found), min(high for _, high in found)
    raise AssertionError(f"no part of a condition: {ast.dump(tree)}")


def _combine(op: ast.operator, left: Interval, right: Interval) -> Interval:
    match op:
        case ast.Add():
            return left[0] + right[0], left[1] + right[1]
        case ast.Sub():
            return left[0] - right[1], left[1] - right[0]
        case ast.Div():
            if right[0] <= 0 <= right[1]:
                return EVER
            right = 1 / right[1], 1 / right[0]
    ends = [0.0 if 0 in (a, b) else a * b for a in left for b in right]
    return min(ends), max(ends)


def _less(a: Interval, b: Interval) -> Interval:
    return float(a[1] < b[0]), float(a[0] < b[1])


def _at_most(a: Interval, b: Interval) -> Interval:
    return float(a[1] <= b[0]), float(a[0] <= b[1])


def _equal(a: Interval, b: Interval) -> Interval:
    return float(a[0] == a[1] == b[0] == b[1]), float(a[0] <= b[1] and b[0] <= a[1])


def _different(a: Interval, b: Interval) -> Interval:
    low, high = _equal(a, b)
    return 1 - high, 1 - low


_T = TypeVar("_T")


def _turned(compare: Callable[[_T, _T], Interval]) -> Callable[[_T, _T], Interval]:
    return lambda a, b: compare(b, a)


_COMPARE: Mapping[type, Callable[[Interval, Interval], Interval]] = {
    ast.Lt: _less,
    ast.LtE: _at_most,
    ast.Gt: _turned(_less),
    ast.GtE: _turned(_at_most),
    ast.Eq: _equal,
    ast.NotEq: _different,
}
