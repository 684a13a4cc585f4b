"""The key that marks machine code: made once, readable by its user alone."""

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewright import signing


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without a key."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    signing._key.cache_clear()
    yield tmp_path
    signing._key.cache_clear()


def test_a_mark_fits_its_data_and_key_alone(home):
    mark = signing.sign(b"code")
    assert signing.is_signed(b"code", mark)
    assert not signing.is_signed(b"cod", mark)
    assert not signing.is_signed(b"code", "é")
    signing.key_path().unlink()
    signing._key.cache_clear()
    assert not signing.is_signed(b"code", mark)


def test_only_the_user_can_read_the_key(home):
    signing.sign(b"")
    status = signing.key_path().stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == signing.KEY_BYTES
    assert list(signing.key_path().parent.iterdir()) == [signing.key_path()]


def test_processes_that_start_together_have_one_key(home):
    code = "from tilewright import signing; print(signing.sign(b'code'))"

    def sign(_):
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(sign, range(4)))) == 1


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_bytes(b"short"), "expected 32 bytes"),
        (lambda path: path.chmod(0o644), "expected a file that only you can read and write"),
    ],
)
def test_a_key_that_is_not_one_is_not_used(home, capsys, spoil, reason):
    mark = signing.sign(b"code")
    spoil(signing.key_path())
    signing._key.cache_clear()
    assert not signing.is_signed(b"code", mark)
    assert signing.key_name() == ""
    assert capsys.readouterr().err == (
        f"key: `{signing.key_path()}`: {reason}; remove it, so that it is made new; machine code "
        "of this process is signed for this process alone, and other processes compile it anew\n"
    )
