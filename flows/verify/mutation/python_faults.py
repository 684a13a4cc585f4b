"""Faults in Python modules: one changed comparison, operator, constant or condition each.

A fault replaces code in the module's namespace and in every module that has imported a name from
it, so code and tests see only the faulty version. The process must end afterwards.

Why not mutmut or cosmic-ray: mutmut 3 changes functions only, not the tables of a module, and
cosmic-ray starts the tests anew for every fault. Both ask tests alone. Here a fault is put into a
fork of a process that holds the expected verdicts and the cycles of RTL runs, so that hundreds of
faults take minutes, and they share processes and report with the faults of the RTL.
"""

import ast
import copy
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclass(frozen=True, slots=True)
class PythonFault:
    """One change: module, line, old text and new text.

    Parameters
    ----------
    place
        Index among all changes of the module.
    """

    module: str
    line: int
    before: str
    after: str
    place: int

    @property
    def text(self) -> str:
        """Place and change, for the report."""
        return f"{self.module.rpartition('.')[2]}: `{self.before}` becomes `{self.after}`"


def draw_faults(modules: Sequence[ModuleType], count: int, seed: int) -> list[PythonFault]:
    """Draw changes of these modules; the same seed gives the same ones."""
    found = [
        PythonFault(module.__name__, getattr(node, "lineno", 0), _text(node), _text(other), place)
        for module in modules
        for place, (_, node, other) in enumerate(_changes(_tree(module)))
    ]
    return random.Random(seed).sample(found, min(count, len(found)))


def put_fault(fault: PythonFault) -> None:
    """Change the module, and all modules that import from it, for the rest of this process."""
    module = sys.modules[fault.module]
    tree = _tree(module)
    _, target, replacement = list(_changes(tree))[fault.place]
    _replace(tree, target, replacement)
    ast.fix_missing_locations(tree)
    before = dict(vars(module))
    exec(compile(tree, str(module.__file__), "exec"), vars(module))
    new = {
        id(old): vars(module)[name]
        for name, old in before.items()
        if getattr(old, "__module__", None) == fault.module
    }
    for other in list(sys.modules.values()):
        for name, value in list(getattr(other, "__dict__", {}).items()):
            if other is not module and id(value) in new:
                setattr(other, name, new[id(value)])


def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))


def _changes(tree: ast.Module) -> Iterator[tuple[int, ast.AST, ast.AST]]:
    """Every possible change: its index for the node, the node, and the replacement."""
    silent = _silent(tree)
    for node in ast.walk(tree):
        if id(node) not in silent:
            for number, other in enumerate(_variants(node)):
                yield number, node, other


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    """Replacements for a node."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                operators = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                yield ast.copy_location(ast.Compare(node.left, operators, node.comparators), node)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        operator = OPERATORS[type(node.op)]()
        yield ast.copy_location(ast.BinOp(node.left, operator, node.right), node)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        for value in (node.value + 1, node.value - 1):
            yield ast.copy_location(ast.Constant(value), node)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.copy_location(ast.Constant(not node.value), node)
    elif isinstance(node, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield ast.copy_location(ast.BoolOp(other, node.values), node)
        for place in range(len(node.values)):
            rest = node.values[:place] + node.values[place + 1 :]
            kept = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            yield ast.copy_location(kept, node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.If | ast.While):
        for value in (True, False):
            if not (value and isinstance(node, ast.While)):
                changed = copy.copy(node)
                changed.test = ast.copy_location(ast.Constant(value), node.test)
                yield changed
    elif isinstance(node, ast.AugAssign | ast.Continue | ast.Expr) and not (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        yield ast.copy_location(ast.Pass(), node)


def _silent(tree: ast.Module) -> set[int]:
    """Nodes of documentation, annotations and decorators, of messages and of assertions."""
    found: set[int] = set()
    for node in ast.walk(tree):
        roots: list[ast.AST] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            roots = [node]
        elif isinstance(node, ast.AnnAssign):
            roots = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            roots = [n for n in (node.returns, *node.decorator_list) if n is not None]
            roots += [a.annotation for a in node.args.args if a.annotation is not None]
        elif isinstance(node, ast.JoinedStr | ast.Assert):
            roots = [node]
        elif isinstance(node, ast.ClassDef):
            roots = list(node.decorator_list)
        for root in roots:
            found |= {id(inner) for inner in ast.walk(root)}
    return found


def _replace(tree: ast.Module, target: ast.AST, replacement: ast.AST) -> None:
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if value is target:
                setattr(node, name, replacement)
                return
            if isinstance(value, list):
                for place, item in enumerate(value):
                    if item is target:
                        value[place] = replacement
                        return


def _text(node: ast.AST) -> str:
    """The first line of a node as source."""
    return ast.unparse(node).splitlines()[0]
