"""The last command of `docs/guide/bare-metal.md` runs exported C, and prints its listing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_listing_is_what_the_command_prints(tmp_path):
    page = (ROOT / "docs" / "guide" / "bare-metal.md").read_text("utf-8")
    command, _, printed = page.rpartition("```\n$ ")[2].partition("\n")
    assert command == "python examples/exported_c.py"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [sys.executable, *command.split()[1:]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed.removesuffix("```\n")
