"""Code lines by folder."""

import subprocess
import sys

import pytest

from tilewright.flows.bench.code_lines import main
from tilewright.flows.cli.main import PIPE_CLOSED

SOURCE = '''"""Documented."""

import os

# A comment.
def path():
    """Documented too."""
    return (
        os.sep
    )
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    for place in (tmp_path, tmp_path / "inner"):
        (place / "module.py").write_text(SOURCE)
    return tmp_path


def test_docstrings_comments_and_imports_are_no_code(folder, capsys):
    assert main([str(folder)]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["8", folder.name],
        ["4", f"{folder.name}/inner"],
    ]


def test_a_closed_pipe_ends_it_without_a_traceback(folder):
    command = [sys.executable, "-m", "tilewright.flows.bench.code_lines", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == PIPE_CLOSED
