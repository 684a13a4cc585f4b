"""`sweep --serve`: the growing page, which only who knows its address can read."""

from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import pytest

from tilewright.flows.cli.live_page import LOOPBACK, LivePage


@pytest.fixture
def page() -> Iterator[LivePage]:
    made = LivePage(lambda data: f"<p>{data}")
    yield made
    made.close()


def ask(page: LivePage, path: str | None = None, host: str | None = None) -> HTTPResponse:
    place = urlsplit(page.address)
    assert place.hostname == LOOPBACK
    connection = HTTPConnection(LOOPBACK, place.port, timeout=20)
    connection.request("GET", place.path if path is None else path,
                       headers={} if host is None else {"Host": host})  # fmt: skip
    return connection.getresponse()


def test_the_page_grows_until_the_work_is_done(page):
    first = ask(page)
    assert (first.status, first.headers["Refresh"]) == (200, "3")
    assert b"first results come soon" in first.read()
    page.show("half")
    assert ask(page).read() == b"<p>half"
    page.show("whole", done=True)
    last = ask(page)
    assert last.headers["Refresh"] is None
    assert last.read() == b"<p>whole"


def test_nobody_reads_it_without_the_address(page):
    page.show("secret")
    path = urlsplit(page.address).path
    for wrong in ("/", path[:-1], path.lower() + "x", "/../" + path, "*"):
        assert ask(page, wrong).status == 404
    assert ask(page, host=f"evil.example:{page.port}").status == 404
    assert ask(page, host=LOOPBACK).status == 404


def test_two_pages_have_different_tokens(page):
    other = LivePage(str)
    assert urlsplit(other.address).path != urlsplit(page.address).path
    other.close()


def test_a_sweep_is_watched(monkeypatch, capsys, tmp_path, model):
    """The page has the points before they are compiled, and in the end the whole outcome."""
    monkeypatch.setattr("tilewright.flows.sweep.ladder.WATCH_S", 0.0)
    shown, kept = [], []
    show = LivePage.show

    def watched(page, data, *, done=False):
        show(page, data, done=done)
        shown.append(data)

    def keep(page, what):
        assert what == "the sweep"
        kept.append(ask(page).read())
        page.close()

    monkeypatch.setattr(LivePage, "show", watched)
    monkeypatch.setattr(LivePage, "keep", keep)
    words = ["--vary", "lanes=4x4,8x8", "--database", tmp_path / "kept.db", "--workers", 0]
    assert command_line(["sweep", model, "--serve", *words]) == 0
    first, *_, last = shown
    assert [point["state"] for point in first["points"]].count("open") >= 1
    assert {point["state"] for point in last["points"]} <= {"front", "beaten", "ruled out"}
    assert b"lanes=8x8" in kept[0] or b"8x8" in kept[0]
    assert "watch the sweep in a browser" in capsys.readouterr().err
    again = command_line(["sweep", model, *words, "--json", tmp_path / "a.json"])
    assert again == 0


def command_line(words: list[object]) -> int:
    from tilewright.flows.cli.main import main

    return main([str(word) for word in words])
