"""The notebooks of the docs run, and show what their cells give."""

import nbformat
import pytest

from .listings import NOTEBOOKS, executed, lasting


def shown(notebook: nbformat.NotebookNode) -> list[str]:
    """The texts and tables of all cells, without times."""
    texts: list[str] = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {"stream": output.get("text", "")})
            texts += [lasting(text) for _, text in sorted(data.items())]
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_what_it_shows(path):
    kept = nbformat.read(path, 4)
    assert len(shown(kept)) >= 4
    assert shown(executed(path)) == shown(kept), "run `python -m tests.listings`"


def test_three_notebooks_are_listed():
    listed = (NOTEBOOKS[0].parent / "README.md").read_text()
    assert len(NOTEBOOKS) == 3
    assert all(f"({path.name})" in listed for path in NOTEBOOKS)
