"""A file is written whole or not at all."""

import os

import pytest

from tilewright.atomic_write import write_atomically


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
