"""The cache: its place, entries made once, and entries that are complete or absent."""

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
        f"RTL simulation: cannot create the cache folder `{tmp_path}/file/rtl` "
        "(Not a directory); set `TILEWRIGHT_CACHE` to a folder that you may write"
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.lock", "kept.so"]


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
