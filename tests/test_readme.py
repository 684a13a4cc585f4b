"""The commands, links and listings of the pages are true."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .listings import README, refreshed

ROOT = Path(__file__).parents[1]
PAGES = sorted([README, *(ROOT / "docs").glob("*.md")])
PROGRAM = ".venv/bin/tilewright"


def commands() -> list[str]:
    """The `tilewright` lines of the README's shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith(PROGRAM)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"`{page}` links to `{target}`"


def test_the_listing_of_the_readme_runs():
    assert refreshed(README) == README.read_text()


def test_the_readme_is_short():
    assert len(README.read_bytes()) <= 5000


def test_make_targets_in_the_readme_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:`|^)make (\w+)", README.read_text(), re.MULTILINE):
        assert target in targets


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_commands_in_the_readme_succeed(command, tmp_path):
    """In an empty folder that has nothing but the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    arguments = shlex.split(command.removeprefix(PROGRAM))
    installed = Path(sys.executable).parent / "tilewright"
    run = [str(installed), *arguments]
    result = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout
