"""Pages whose listings and figures are what their code gives; run this file to write them anew.

`15,918<!-- tilewright boards MODEL: ULX3S-25F.cycles -->` is a figure of the text with the command
that makes it, to which `--json` is added, and its place in the result. A word in a place names a
key, or the entry of a list that has it as a value; a number is a place in a list. A figure in
percent is a share in the result. The command runs in a folder with the examples, and with the
network that it names: one of `examples/networks.py`, or `resnet8.onnx` of the shared models.

A tutorial or the gallery is a whole session in a folder that is empty at first; a block with a
title, such as `title="mine.py"`, is written to that file. On other pages, `sh` blocks run one after
another in a folder with the examples, where the digits stand for the reader's networks.

`<!-- not run: REASON -->` above a block says why no test runs it; REASONS are all that there are.
In a list it ends the line above, because a line of its own would end the item in MkDocs.
"""

import atexit
import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import nbformat
from nbclient import NotebookClient

from tilewright.flows.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PICTURES = ROOT / "docs" / "pictures"
TUTORIALS = [*sorted((ROOT / "docs" / "tutorial").glob("*.md")), ROOT / "docs" / "gallery.md"]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
FIGURE = re.compile(r"([\d,.]+)( %)?<!-- tilewright ([^>]+): ([\w.-]+) -->")
NETWORK = re.compile(r"(?<= )(\w+)\.onnx")
SHARED = {"resnet8": ROOT.parent / "shared" / "models" / "ic_resnet8" / "ic_int8_qdq.onnx"}
CODE_PAGES = [
    ROOT / "docs" / name
    for name in (
        "reference/api.md",
        "guide/own-operators.md",
        "guide/schedules.md",
        "guide/write-schedules.md",
        "design/life-of-a-layer.md",
    )
]
API_PAGE, OPERATORS_PAGE, SCHEDULES_PAGE, WRITERS_PAGE, LIFE_PAGE = CODE_PAGES
BLOCK = re.compile(r'```(\w+)(?: title="([^"]+)")?\n(.*?)```', re.DOTALL)
SHELL_BLOCK = re.compile(
    r"(?:<!-- not run: ([^>\n]+) -->\n)?^ *```(sh|console)\n(.*?)```", re.DOTALL | re.MULTILINE
)
REASONS = {
    "CI",
    "a GPU",
    "a board",
    "a server",
    "hours",
    "installs packages",
    "minutes",
    "other machines",
    "tools of others",
}
"""CI runs the block itself; a server runs until it is stopped."""
TIMES = re.compile(r"~?[\d.,]+ (?:us|ms|s)\b|(?<=127\.0\.0\.1:)\d+|-{2,}|\s+")
"""Text that differs from run to run: times, with columns as wide as they, and ports."""
DIGITS = re.compile(r"\b\d+\.\d{8,}|(?<= instructions, )[\d,]+(?= bytes)")
"""Text that differs between processors, whose sums round differently: the last digits of numbers
that a network was trained to, and the size of an artifact that holds them.
"""


def lasting(listing: str) -> str:
    """What every run on every processor prints alike."""

    def rounded(match: re.Match[str]) -> str:
        return f"{float(match[0]):.5g}" if "." in match[0] else "N"

    return TIMES.sub(" ", DIGITS.sub(rounded, listing))


def refreshed(page: Path) -> str:
    """The page, every `text` block holding what the code blocks since the one before it print.

    The code runs in an empty folder, for a reference page with the examples in it. A picture that
    it writes, and that the page shows, replaces the one in `docs/pictures`.
    """
    namespace: dict[str, object] = {}
    printed = io.StringIO()
    tutorial = page in TUTORIALS

    def block(match: re.Match[str]) -> str:
        nonlocal printed
        language, title, text = match.groups()
        if tutorial and title:
            Path(title).write_text(text)
        elif language == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(text, str(page), "exec"), namespace)
        elif tutorial and language == "sh":
            printed.write(run(text, page))
        elif language == "text":
            listing, printed = printed.getvalue(), io.StringIO()
            if not listing:
                raise ValueError(f"{page.name}: a `text` block that no code prints would be lost")
            if lasting(listing) != lasting(text):
                return f"```text\n{listing}```"
        return match[0]

    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        if not tutorial:
            os.symlink(ROOT / "examples", "examples")
        text = BLOCK.sub(block, page.read_text())
        for name in re.findall(r"\]\(pictures/([^)]+)\)", text):
            if os.path.exists(name):
                (PICTURES / name).write_bytes(Path(name).read_bytes())
        return text


def run(commands: str, page: Path) -> str:
    """What shell commands print to stdout, in the current folder with `tilewright` on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env={**os.environ, "PATH": path, "COLUMNS": "110"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"`{page.name}`: {commands}{done.stdout}{done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n" * bool(done.stdout)


def shell_blocks(page: Path) -> list[tuple[str, str, str]]:
    """The reason why a block is not run, or "", its language and its commands."""
    found = SHELL_BLOCK.finditer(page.read_text("utf-8"))
    return [(match[1] or "", match[2], match[3]) for match in found]


def run_shell_blocks(page: Path) -> None:
    """Run the `sh` blocks of a reference or guide page that say nothing to the contrary."""
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.symlink(ROOT / "examples", "examples")
        os.symlink(sys.prefix, ".venv")
        for network in ("model.onnx", "kws.onnx", "ic.onnx", "resnet8.onnx"):  # the reader's own
            os.symlink(ROOT / "examples" / "digits" / "digits_int8_qdq.onnx", network)
        for reason, _, commands in shell_blocks(page):
            if not reason:
                run(commands, page)


def executed(path: Path) -> nbformat.NotebookNode:
    """A notebook with the outputs that its cells give in an empty folder."""
    notebook = nbformat.read(path, 4)
    with TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, coalesce_streams=True, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the time of day
    return notebook


def networks_of(page: Path) -> list[str | None]:
    """The networks that a page's figures are about; None stands for those in `examples`."""
    return list(dict.fromkeys(network_of(match[3]) for match in FIGURE.finditer(page.read_text())))


def network_of(command: str) -> str | None:
    named = NETWORK.search(command)
    return named[1] if named else None


def present(network: str | None) -> bool:
    """Whether a network is here, or can be made."""
    return network not in SHARED or SHARED[network].exists()


def with_figures(page: Path, network: str | None) -> str:
    """The page with the figures of one network as their commands give them now."""

    def figure(match: re.Match[str]) -> str:
        written, percent, command, place = match.groups()
        if network_of(command) != network:
            return match[0]
        value = at(result_of(command), place)
        text = f"{100 * value:.1f}" if percent else f"{round(value):,}"
        return text + match[0][len(written) :]

    return FIGURE.sub(figure, page.read_text())


@cache
def network_file(name: str) -> Path:
    if name in SHARED:
        return SHARED[name]
    folder = Path(mkdtemp())
    atexit.register(rmtree, folder)
    script = ROOT / "examples" / "networks.py"
    subprocess.run([sys.executable, script, name, folder], check=True, capture_output=True)
    return folder / f"{name}_int8_qdq.onnx"


@cache
def result_of(command: str) -> Any:
    """What a command prints for machines."""
    printed = io.StringIO()
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.symlink(ROOT / "examples", "examples")
        if name := network_of(command):
            os.symlink(network_file(name), f"{name}.onnx")
        with contextlib.redirect_stdout(printed):
            code = main([*shlex.split(command), "--json"])
    if code:
        raise ValueError(f"`tilewright {command}` exits with {code}")
    return json.loads(printed.getvalue())


def at(result: Any, place: str) -> float:
    """The number at a place of a result."""
    for word in place.split("."):
        if isinstance(result, list):
            named = (entry for entry in result if word in entry.values())
            result = result[int(word)] if word.isdigit() else next(named)
        else:
            result = result[word]
    return result


if __name__ == "__main__":
    for path in (README, *CODE_PAGES, *TUTORIALS):
        path.write_text(refreshed(path))
    for path in PAGES:
        for network in filter(present, networks_of(path)):
            path.write_text(with_figures(path, network))
    for path in NOTEBOOKS:
        nbformat.write(executed(path), path)
