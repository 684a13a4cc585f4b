"""Every module can be imported first, and a class name stands for one class."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from .syntax_trees import syntax_trees

ROOT = Path(__file__).parents[1]
PARTS = ("isa", "hardware", "compiler", "sim", "runtime", "flows")
TECHNOLOGIES = ROOT / "hardware" / "cells"
"""Each file has the same classes, for the cells of one technology."""


@cache
def modules() -> dict[str, ast.Module]:
    """Name -> syntax tree of each module of the package; packages end in `.__init__`."""
    files = [*ROOT.glob("*.py"), *(file for part in PARTS for file in (ROOT / part).rglob("*.py"))]
    return {
        ".".join(("tilewright", *file.relative_to(ROOT).with_suffix("").parts)): tree
        for file, tree in syntax_trees(files).items()
    }


def imports(body: list[ast.stmt]) -> Iterator[ast.ImportFrom]:
    """Relative imports that run with the module: not those in functions or for types alone."""
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and statement.level:
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With | ast.ClassDef):
            for_types = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(
                statement.test
            )
            yield from imports([] if for_types else statement.body)
            yield from imports(getattr(statement, "orelse", []))
            for handler in getattr(statement, "handlers", []):
                yield from imports(handler.body)


def imported(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Module -> modules that must be complete, or may be incomplete in a cycle, when it runs.

    Python first imports the packages around a module. Those around the importing one have begun.
    """
    found: dict[str, set[str]] = {}
    for name, tree in trees.items():
        own = name.split(".")[:-1]
        needed: set[str] = set()
        for statement in imports(tree.body):
            base = [*own[: len(own) - statement.level + 1], *(statement.module or "").split(".")]
            path = [part for part in base if part]
            for alias in statement.names:
                parts = (*path, alias.name)
                kinds = (".".join(parts), ".".join((*parts, "__init__")), ".".join(path))
                home = next((kind for kind in kinds if kind in trees), None)
                needed.add(home or ".".join((*path, "__init__")))
                around = (path[:count] for count in range(1, len(path) + 1))
                begun = [own[:count] for count in range(1, len(own) + 1)]
                needed |= {".".join((*one, "__init__")) for one in around if one not in begun}
        found[name] = needed & trees.keys() - {name}
    return found


def test_every_module_can_be_imported_first():
    """Without a cycle, no module sees an incomplete one, whatever is imported first."""
    TopologicalSorter(imported(modules())).prepare()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("from .b import y", "from .a import x"),
        ("from . import b", "from .a import x"),
        ("from .b import y", "try:\n    from . import x\nexcept ImportError: ..."),
    ],
)
def test_a_cycle_is_found(first, second):
    texts = {"p.__init__": "from .a import x", "p.a": first, "p.b": second}
    with pytest.raises(CycleError):
        TopologicalSorter(imported({k: ast.parse(v) for k, v in texts.items()})).prepare()


@pytest.mark.parametrize(
    "second", ["def f():\n    from .a import x", "if TYPE_CHECKING:\n    from .a import x"]
)
def test_imports_that_do_not_run_make_no_cycle(second):
    texts = {"p.__init__": "from .a import x", "p.a": "from .b import y", "p.b": second}
    TopologicalSorter(imported({k: ast.parse(v) for k, v in texts.items()})).prepare()


def test_no_class_name_stands_for_two_classes():
    found: dict[str, set[str]] = defaultdict(set)
    technologies = ".".join(("tilewright", *TECHNOLOGIES.relative_to(ROOT).parts))
    for module, tree in modules().items():
        if not module.startswith(technologies):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    found[node.name].add(f"{module}:{node.lineno}")
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
