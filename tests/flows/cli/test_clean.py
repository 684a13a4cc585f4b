"""`tilewright clean`: removes what Tilewright made, and nothing else."""

import re
from pathlib import Path

import pytest

from tilewright.flows.cli.commands import clean
from tilewright.flows.cli.main import main
from tilewright.sim.cache import kept_folder

ROOT = Path(__file__).parents[3]


@pytest.fixture
def places(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """A cache with a file of each kind, the user's own files among them, and a key."""
    cache, key = tmp_path / "cache", tmp_path / "data" / "tilewright" / "signing.key"
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(cache))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for kind in clean.MADE_AGAIN:
        (kept_folder(kind) / "made.bin").write_bytes(bytes(1000))
    sweeps = kept_folder("sweeps")
    for name in ("records.db", "records.db-wal", "mine.db"):
        (sweeps / name).touch()
    (cache / "notes.txt").touch()
    key.parent.mkdir(parents=True)
    key.touch()
    return cache, key


def files(*folders: Path) -> list[str]:
    return sorted(each.name for folder in folders for each in folder.rglob("*") if each.is_file())


def test_what_comes_back_is_removed(tilewright, places):
    said = tilewright("clean", "--yes")
    cache, key = places
    assert files(cache) == ["mine.db", "notes.txt", "records.db", "records.db-wal"]
    assert key.exists()
    assert said.count(str(cache)) == len(clean.MADE_AGAIN)
    assert tilewright("clean", "--yes") == "nothing to remove\n"


def test_all_of_it_but_what_the_user_made(tilewright, places):
    said = tilewright("clean", "--all", "--yes")
    cache, key = places
    assert files(cache, key.parent.parent) == ["mine.db", "notes.txt"]
    assert f"{cache / 'sweeps' / 'records.db'}  results of your sweeps" in said
    for name in ("notes.txt", "sweeps/mine.db"):
        (cache / name).unlink()
    (cache / "rtl").mkdir()
    tilewright("clean", "--yes")
    assert not key.parent.exists()
    assert not (cache / "rtl").exists()


def test_a_link_is_removed_and_not_followed(tilewright, places, tmp_path):
    cache, _ = places
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.txt").touch()
    (cache / "rtl" / "made.bin").unlink()
    (cache / "rtl").rmdir()
    (cache / "rtl").symlink_to(tmp_path / "mine")
    (cache / "native" / "link").symlink_to(tmp_path / "mine")
    tilewright("clean", "--yes")
    assert not (cache / "rtl").is_symlink()
    assert (tmp_path / "mine" / "work.txt").exists()


@pytest.mark.parametrize(("answer", "left"), [("", 7), ("n", 7), ("y", 1)])
def test_it_asks(places, monkeypatch, capsys, answer, left):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    assert main(["clean"]) == 0
    assert ("nothing removed" in capsys.readouterr().out) == (left == 7)
    assert len([each for each in places[0].iterdir() if each.is_dir()]) == left


def test_nobody_to_ask(places, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert main(["clean"]) == 2
    assert "add `--yes`" in capsys.readouterr().err
    assert (places[0] / "rtl" / "made.bin").exists()


def test_every_kind_of_kept_file_is_known():
    kinds: set[str] = set()
    for part in ("sim", "runtime", "flows"):
        for file in (ROOT / part).rglob("*.py"):
            if "verify" not in file.parts:
                text = file.read_text()
                kinds |= set(re.findall(r'kept_folder\("(\w+)"', text))
                for name in set(re.findall(r"kept_folder\(([A-Z_]+)", text)):
                    kinds |= set(re.findall(rf'^{name} = "(\w+)"', text, re.MULTILINE))
    kinds |= set(re.findall(r'KIND, TASK = "(\w+)"', (ROOT / "sim/gate/kept.py").read_text()))
    assert kinds | {"rtl"} == {*clean.MADE_AGAIN, clean.SWEEPS, clean.MACHINES}
