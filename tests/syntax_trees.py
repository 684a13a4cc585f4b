"""Syntax trees of the repository's files, each parsed once for all tests that read them."""

import ast
from functools import cache
from pathlib import Path

from tilewright.collector import paused_collector


@cache
def syntax_tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"), str(file))


def syntax_trees(files: list[Path]) -> dict[Path, ast.Module]:
    """Parse without the cyclic collector, to which a million new nodes are a reason to start."""
    with paused_collector():
        return {file: syntax_tree(file) for file in files}
