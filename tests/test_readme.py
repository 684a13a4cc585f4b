"""The commands, links and listings of the pages are true."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .listings import PAGES, README, ROOT, networks_of, present, refreshed, with_figures

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_exist(page):
    """`UNIT` stands for any unit; a path that begins elsewhere may be another project's."""
    for name in re.findall(r"`(\w+/[\w/.-]+\.(?:py|h|c|cpp|js|tcl))`", page.read_text()):
        if (ROOT / name.partition("/")[0]).is_dir() and "UNIT" not in name:
            assert (ROOT / name).exists(), f"`{page}` names `{name}`"


def marks_of(network: str | None) -> list[pytest.MarkDecorator]:
    absent = pytest.mark.skipif(not present(network), reason=f"no shared models for `{network}`")
    return [pytest.mark.slow, absent] if network else []


@pytest.mark.parametrize(
    ("page", "network"),
    [
        pytest.param(
            page,
            network,
            id=f"{page.name}-{network or 'examples'}",
            marks=marks_of(network),
        )
        for page in PAGES
        for network in networks_of(page)
    ],
)
def test_exact_figures_are_what_their_commands_give(page, network):
    assert with_figures(page, network) == page.read_text(), "run `python -m tests.listings`"


def test_a_figure_without_its_command_working_is_found_out(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "It takes 1<!-- tilewright config show tiny: lanes_in --> lanes and "
        "3.0 %<!-- tilewright run examples/digits/digits_int8_qdq.onnx: totals.utilisation -->."
    )
    assert networks_of(page) == [None]
    text = with_figures(page, None)
    assert text.startswith("It takes 2<!--")
    assert "28.6 %<!--" in text


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
