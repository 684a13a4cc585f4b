"""The code of a module as far as it decides what the module does."""

import ast
import inspect
from functools import cache
from types import ModuleType


@cache
def code_of(module: ModuleType) -> str:
    """Return the code of a module without comments and docstrings."""
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.__dict__["body"] = [line for line in body if not _is_text(line)]
    return ast.dump(tree)


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
