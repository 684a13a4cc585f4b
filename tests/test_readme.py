"""The commands, links and listings of the pages are true."""

import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile

import pytest

from tilewright.errors import UsageError
from tilewright.flows.cli.main import parser

from .flows.cli.test_option_meanings import OPTIONS
from .listings import (
    BLOCK,
    PAGES,
    README,
    REASONS,
    ROOT,
    TUTORIALS,
    networks_of,
    present,
    refreshed,
    run_shell_blocks,
    shell_blocks,
    with_figures,
)


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
    assert "30.6 %<!--" in text


GENERATED = ROOT / "docs" / "reference" / "commands.md"
"""The page that writes `[OPTIONS]`; the parsers make it."""

COMMAND = re.compile(r"(?:^|[\s(/])tilewright (?=[a-z])")
SHELL = re.compile(r"[|&;<>()]")


def listed(text: str) -> Iterator[tuple[list[str], bool]]:
    """The words of each command of Tilewright on a page, and whether it stands in a block."""
    blocks = [block for kind, _, block in BLOCK.findall(text) if kind in ("sh", "console")]
    lines = [(line, True) for each in blocks for line in each.replace("\\\n", " ").splitlines()]
    inline = re.findall(r"`([^`]+)`", BLOCK.sub("", text))
    for line, in_block in [*lines, *((code, False) for code in inline)]:
        start = COMMAND.search(line)
        if start and (in_block or start.start() == 0):
            command = re.sub(r"\d>", ">", line[start.end() :])
            words = shlex.shlex(command, posix=True, punctuation_chars="|&;<>()")
            words.whitespace_split = True
            yield list(takewhile(lambda word: not SHELL.match(word), words)), in_block


def fault_of(words: list[str], *, whole: bool) -> str:
    """Why the command line does not take the words; an excerpt may lack values and files."""
    if not whole:
        known = {name for _, action in OPTIONS for name in action.option_strings}
        return next((word for word in words if word[:2] == "--" and word not in known), "")
    try:
        parser(words).parse_args(words)
    except UsageError as problem:
        return str(problem)
    except SystemExit:  # `--help`
        return ""
    return ""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != GENERATED], ids=lambda page: page.name
)
def test_commands_of_pages_are_commands(page):
    """Also of pages whose listings need a board, a cluster or hours, so that nobody runs them."""
    for words, in_block in listed(page.read_text("utf-8")):
        words = ["host" if "$" in word else word for word in words]
        assert fault_of(words, whole=in_block) == "", f"`{page}`: tilewright {' '.join(words)}"


def test_a_command_with_a_wrong_option_is_found_out():
    text = "`tilewright run --no-such`\n```sh\ntilewright run a.onnx --config > b.txt\n```\n"
    block, code = listed(text)
    assert block == (["run", "a.onnx", "--config"], True)
    assert fault_of(block[0], whole=True).startswith("argument --config: expected one argument")
    assert fault_of(code[0], whole=False) == "--no-such"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_scripts_and_extras_of_listings_exist(page):
    text = "".join(block for _, _, block in BLOCK.findall(page.read_text("utf-8")))
    for name in re.findall(r"python -m tilewright\.([\w.]+)", text):
        place = ROOT / name.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), name
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name in re.findall(r"'\.\[(\w+)\]'", text):
        assert name in extras["optional-dependencies"]


def test_the_listing_of_the_readme_runs():
    assert refreshed(README) == README.read_text()


def test_the_readme_is_short():
    assert len(README.read_bytes()) <= 5000


def test_make_targets_in_the_readme_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:`|^)make (\w+)", README.read_text(), re.MULTILINE):
        assert target in targets


SHELL_PAGES = [
    page
    for page in PAGES
    if page not in TUTORIALS and not all(reason for reason, _, _ in shell_blocks(page))
]
MAX_UNRUN = 32
"""Blocks that no test runs: better let one run than raise this number."""


@pytest.mark.slow
@pytest.mark.parametrize("page", SHELL_PAGES, ids=lambda page: page.name)
def test_shell_blocks_run(page):
    run_shell_blocks(page)


def test_each_shell_block_runs_or_says_why_not():
    """Tutorials are followed as a whole, so only what stands in `console` blocks has a reason."""
    marked = Counter[str]()
    for page in PAGES:
        text = page.read_text("utf-8")
        assert not re.findall(r"```(?:bash|shell|zsh)\b", text), f"`{page}`: write `sh`"
        assert not re.search(r"^ *```\n *(?:\$|tilewright) ", text, re.MULTILINE), (
            f"`{page}`: write `sh`, or `console` with a reason"
        )
        fences = len(re.findall(r"^ *```(?:sh|console)\b", text, re.MULTILINE))
        blocks = shell_blocks(page)
        assert len(blocks) == fences
        assert not re.search(r"^ +<!-- not run", text, re.MULTILINE), f"`{page}`: ends a list"
        for reason, language, commands in blocks:
            assert bool(reason) == (language == "console") or (reason and page not in TUTORIALS), (
                f"`{page}`: {commands}"
            )
        marked.update(reason for reason, _, _ in blocks if reason)
        assert text.count("<!-- not run: ") == sum(bool(reason) for reason, _, _ in blocks)
    assert set(marked) == REASONS
    assert marked.total() <= MAX_UNRUN


def test_a_shell_block_that_fails_is_found_out(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "1. A step: <!-- not run: a board -->\n   ```sh\n   false\n   ```\n"
        "```sh\ntest -e model.onnx -a -e examples\n```\n"
    )
    run_shell_blocks(page)
    page.write_text("1. A step:\n   ```sh\n   false\n   ```\n")
    with pytest.raises(ValueError, match=r"`page\.md`: +false"):
        run_shell_blocks(page)
