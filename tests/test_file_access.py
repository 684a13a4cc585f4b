"""Files that others may have made: only regular ones are read, and within bounds."""

import os
import socket

import pytest

from tilewright import file_access


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a pipe"),
        (os.mkdir, "a folder"),
        (lambda path: os.symlink("/dev/zero", path), "a device"),
        (lambda path: socket.socket(socket.AF_UNIX).bind(path.name), "a socket"),
    ],
)
def test_what_is_no_file_is_refused_at_once(monkeypatch, tmp_path, make, kind):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "it")
    with pytest.raises(OSError, match=f"not a regular file but {kind}"):
        file_access.read_part(tmp_path / "it")


def test_a_part_lies_inside_the_file_and_the_limit(tmp_path):
    path = tmp_path / "it"
    path.write_bytes(bytes(range(10)))
    assert file_access.read_part(path, 2, 3) == b"\2\3\4"
    assert file_access.read_part(path, 10, 0) == b""
    with pytest.raises(OSError, match="10 bytes, where 11 are needed"):
        file_access.read_part(path, 8, 3)
    with pytest.raises(OSError, match="10 bytes, where at most 9 are read"):
        file_access.read_part(path, limit=9)
    os.truncate(path, 1 << 40)  # takes no room, and would take all memory
    with pytest.raises(OSError, match="1,099,511,627,776 bytes, where at most 4,294,967,296"):
        file_access.read_part(path)


@pytest.mark.parametrize(
    ("path", "why"),
    [("a\0b", "a NUL character"), ("\ud800", "not text"), ("x" * 300, "File name too long")],
)
def test_impossible_paths_are_errors_of_the_system(path, why):
    with pytest.raises(OSError, match=why):
        file_access.read_part(path)


def test_toml_is_read_in_no_time_or_refused():
    """`tomllib` takes a minute for the first of these."""
    for text, message in {
        ".".join("a" * 50_000) + "=1": "line 1 has more than 100 dots",
        "a = " + "[" * 50_000: "nested too deeply",
        "a = ": "Invalid value",
    }.items():
        with pytest.raises(ValueError, match=message):
            file_access.parse_toml(text)
    assert file_access.parse_toml("a.b = [1.5, 2]") == {"a": {"b": [1.5, 2]}}


def test_deep_json_is_an_error_in_the_file():
    with pytest.raises(ValueError, match="nested too deeply"):
        file_access.parse_json("[" * 100_000)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", str(1 << 63), "9" * 5000])
def test_numbers_of_json_are_finite_and_fit_64_bits(number):
    with pytest.raises(ValueError, match=rf"^{number[:20]} is (not a finite|a whole) number"):
        file_access.parse_json(f'{{"a": [{number}]}}')
    assert file_access.parse_json(f"[-1.5e3, {(1 << 63) - 1}]") == [-1500.0, (1 << 63) - 1]
