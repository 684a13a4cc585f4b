"""Syntax trees of the repository's files, each parsed once for all tests that read them."""

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def syntax_tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"), str(file))


def syntax_trees(files: list[Path]) -> dict[Path, ast.Module]:
    """Parse without the cyclic collector, to which a million new nodes are a reason to start."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return {file: syntax_tree(file) for file in files}
    finally:
        if collects:
            gc.enable()
