"""The cache: its place, entries made once, and entries that are complete or absent."""

import os
import threading

import pytest

from tilewright.errors import ToolError
from tilewright.sim import cache


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("TILEWRIGHT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "tilewright"
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "mine"))
    assert cache.cache_folder() == tmp_path / "mine"


def test_a_cache_that_cannot_be_made_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file"))
    with pytest.raises(ToolError) as refused:
        cache.keep_text(["part"], "core.v", lambda: "text")
    assert str(refused.value) == (
        f"RTL simulation: cannot use the cache folder `{tmp_path}/file` "
        "(Not a directory); set `TILEWRIGHT_CACHE` to a folder of your own"
    )


def test_a_text_is_made_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    made = []
    for _ in range(2):
        assert cache.keep_text(["a"], "core.v", lambda: made.append(1) or "text") == "text"
    assert len(made) == 1
    assert cache.keep_text(["b"], "core.v", lambda: "other") == "other"


def test_a_file_is_made_once_and_its_folder_removed(tmp_path):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "new").write_text("whole")
        return folder / "new"

    for _ in range(2):
        assert cache.keep_file(tmp_path / "kept.so", make).read_text() == "whole"
    assert len(made) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kept.lock",
        "kept.so",
        "kept.so.mark",
    ]


def test_a_file_that_cannot_be_made_is_not_kept(tmp_path):
    def make(folder):
        (folder / "half").touch()
        raise ToolError("failed")

    with pytest.raises(ToolError):
        cache.keep_file(tmp_path / "kept.so", make)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.lock"]


def test_who_comes_second_waits_and_says_so(tmp_path):
    begun, waited = threading.Event(), threading.Event()

    def make(folder):
        begun.set()
        assert waited.wait(60)
        (folder / "new").write_text("first")
        return folder / "new"

    first = threading.Thread(target=cache.keep_file, args=(tmp_path / "kept.so", make))
    first.start()
    assert begun.wait(60)
    kept = cache.keep_file(tmp_path / "kept.so", lambda folder: folder / "never", waited.set)
    first.join()
    assert waited.is_set()
    assert kept.read_text() == "first"


def test_a_file_without_this_users_mark_is_made_again(tmp_path):
    """Whoever may write the cache must not choose the code that runs."""
    made = []

    def make(folder):
        made.append(folder)
        (folder / "new").write_text("mine")
        return folder / "new"

    kept = tmp_path / "kept.so"
    kept.write_text("a stranger's")
    assert cache.keep_file(kept, make).read_text() == "mine"
    mark = tmp_path / "kept.so.mark"
    poisons = (
        lambda: kept.write_text("a stranger's"),
        lambda: mark.write_text("0" * 64),
        lambda: mark.unlink(),
        lambda: kept.chmod(0o666),  # somebody may change it once its mark has been checked
        lambda: kept.symlink_to(kept.rename(tmp_path / "elsewhere")),
        lambda: (kept.rename(tmp_path / "a.so"), mark.rename(tmp_path / "a.so.mark")),
    )
    for number, poison in enumerate(poisons, 2):
        poison()
        assert cache.keep_file(kept, make).read_text() == "mine"
        assert len(made) == number
        assert not kept.is_symlink()
    other = tmp_path / "other.so"  # nor does the mark of one file fit another
    other.write_bytes(kept.read_bytes())
    (tmp_path / "other.so.mark").write_bytes(mark.read_bytes())
    cache.keep_file(other, make)
    assert len(made) == len(poisons) + 2


def test_a_file_of_another_user_is_made_again(monkeypatch, tmp_path):
    def make(folder):
        (folder / "new").write_text("mine")
        return folder / "new"

    kept = cache.keep_file(tmp_path / "kept.so", make)
    before = kept.stat().st_ino
    assert cache.keep_file(kept, make).stat().st_ino == before
    monkeypatch.setattr(os, "geteuid", lambda: kept.stat().st_uid + 1)
    assert cache.keep_file(kept, make).stat().st_ino != before


def test_a_text_without_this_users_mark_is_made_again(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    assert cache.keep_text(["a"], "core.v", lambda: "mine") == "mine"
    (kept,) = tmp_path.glob("rtl/*-core.v")
    kept.write_text("a stranger's")
    assert cache.keep_text(["a"], "core.v", lambda: "mine") == "mine"


def test_nobody_else_may_write_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "new" / "cache"))
    before = os.umask(0)
    try:
        cache.keep_text(["a"], "core.v", lambda: "text")
        assert cache.keep_text(["a"], "core.v", lambda: "made again") == "text"
        shared = tmp_path / "shared"
        shared.mkdir(0o777)
        monkeypatch.setenv("TILEWRIGHT_CACHE", str(shared))
        cache.keep_text(["a"], "core.v", lambda: "text")
    finally:
        os.umask(before)
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(folders) == 5
    assert [path for path in folders if path.stat().st_mode & 0o022] == []
    assert [path for path in tmp_path.rglob("*-core.v") if path.stat().st_mode & 0o022] == []


def test_a_cache_of_another_user_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(ToolError, match="it belongs to another user"):
        cache.keep_text(["part"], "core.v", lambda: "text")


def test_a_lock_that_leads_elsewhere_is_not_opened(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "kept.lock").symlink_to(victim)
    with pytest.raises(ToolError, match="cannot write the cache folder"):
        cache.keep_file(tmp_path / "kept.so", lambda folder: folder / "never")
    assert victim.read_text() == "precious"
