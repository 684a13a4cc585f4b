"""A file is written whole or not at all."""

import os
from pathlib import Path

import pytest

from tilewright.atomic_write import write_atomically, write_files
from tilewright.errors import UsageError


@pytest.mark.parametrize("durable", [False, True])
def test_a_new_file_replaces_the_old_one(tmp_path, durable):
    target = tmp_path / "file"
    for data in (b"old", b"new"):
        write_atomically(target, data, durable=durable)
        assert target.read_bytes() == data
    assert list(tmp_path.iterdir()) == [target]


def test_only_a_durable_file_waits_for_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)
    write_atomically(tmp_path / "file", b"")
    assert not synced
    write_atomically(tmp_path / "file", b"", durable=True)
    assert len(synced) == 1


def test_a_file_is_as_readable_as_others(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("size", [1, 246, 255])
def test_every_legal_name_can_be_written(tmp_path, size):
    target = tmp_path / ("x" * size)
    write_atomically(target, b"data")
    assert target.read_bytes() == b"data"


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    link.symlink_to(target)
    for data in (b"new", b"newer"):
        write_atomically(link, data)
        assert link.is_symlink()
        assert target.read_bytes() == data


def test_links_in_a_circle_are_refused(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(OSError, match="symbolic links"):
        write_atomically(link, b"new")
    assert link.is_symlink()


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_and_stays(tmp_path, linked):
    pipe, target = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    target.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(target if linked else pipe, b"data")
        assert os.read(reader, 9) == b"data"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert target.is_symlink()


@pytest.mark.parametrize("name", [".", "", "/"])
def test_a_folder_is_no_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsADirectoryError):
        write_atomically(Path(name), b"data")
    assert not list(tmp_path.iterdir())


def put_link(place: Path):
    (place.parent / "theirs").write_text("theirs")
    place.symlink_to(place.parent / "theirs")


@pytest.mark.parametrize(
    "put", [put_link, os.mkfifo, Path.mkdir, lambda place: place.symlink_to(place)]
)
def test_files_of_a_folder_follow_no_link_and_fill_no_pipe(tmp_path, put):
    put(tmp_path / "b")
    with pytest.raises(UsageError) as refusal:
        write_files(tmp_path, {"a": "1", "b": "2"})
    assert str(refusal.value) == (
        f"`{tmp_path / 'b'}`: expected a file or nothing there, got a link, a folder or a device; "
        "remove it, or choose another folder"
    )
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "theirs").exists() or (tmp_path / "theirs").read_text() == "theirs"


def test_files_of_a_folder_replace_older_ones(tmp_path):
    for text in ("old", "new"):
        paths = write_files(tmp_path, {"a": text, "b": text})
        assert [path.read_text() for path in paths] == [text, text]


def test_files_of_a_folder_replace_none_of_the_users(tmp_path):
    write_files(tmp_path, {"a": "1", "b": "2"})
    for name, text in (("c", "the user's"), ("a", "changed by the user")):
        (tmp_path / name).write_text(text, "utf-8")
        with pytest.raises(UsageError) as refusal:
            write_files(tmp_path, {"b": "3", name: "4"})
        assert str(refusal.value) == (
            f"`{tmp_path / name}`: expected no file or one as Tilewright wrote it, got another, "
            "which stays; rename it, or choose another folder"
        )
        assert (tmp_path / name).read_text("utf-8") == text
        assert (tmp_path / "b").read_text("utf-8") == "2"
        (tmp_path / name).unlink()


@pytest.mark.parametrize("record", ["", "[]", '{"a": 3}', "{"])
def test_a_damaged_record_makes_no_file_ours(tmp_path, record):
    (tmp_path / ".tilewright.json").write_text(record, "utf-8")
    (tmp_path / "a").write_text("the user's", "utf-8")
    with pytest.raises(UsageError, match="which stays"):
        write_files(tmp_path, {"a": "1"})
