"""`make history`: exact cycles by commit."""

import subprocess

import pytest

import tilewright as tw
from tilewright.flows.bench import history
from tilewright.flows.bench.history import Line, main, page, read_lines

SEVEN = """
def add(parser, common):
    for name in ("--config", "-o"):
        parser.add_argument(name)
    parser.add_argument("model")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(function=lambda given: print('{"cycles": 7}'))
"""


def line(commit: str, day: int, cycles: int | None) -> Line:
    return Line(commit, f"2026-01-{day:02}T00:00:00+00:00", f"change {commit}", {"4x4": cycles})


def test_the_page_is_that_of_the_records():
    assert history.PAGE.read_text() == page(read_lines(history.RECORDS))
    assert len(read_lines(history.RECORDS)) >= 2


def test_only_differences_are_shown_newest_first_and_falls_are_bold(monkeypatch):
    monkeypatch.setattr(history, "MACHINES", ("4x4",))
    lines = [line("d", 4, 70), line("a", 1, None), line("b", 2, 90), line("c", 3, 90)]
    rows = page(lines).splitlines()[-3:]
    assert [row.split("|")[1].strip() for row in rows] == ["`d`", "`b`", "`a`"]
    assert [row.split("|")[4].strip() for row in rows] == ["**70**", "90", "-"]


@pytest.mark.slow
def test_a_commit_is_measured_once_by_its_own_code(tmp_path, monkeypatch, capsys):
    """A commit that prints 7 for everything is believed, so the code that ran was its own."""
    monkeypatch.setattr(history, "MACHINES", ("8x8",))
    tree = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", history.ROOT, tree], check=True)
    monkeypatch.setattr(history, "ROOT", tree)
    places = ["--records", str(tmp_path / "lines.jsonl"), "--page", str(tmp_path / "page.md")]
    assert main(["HEAD", *places]) == 0
    (first,) = read_lines(tmp_path / "lines.jsonl")
    graph = tw.import_model(history.MODEL)
    cycles = tw.compile_graph(graph, tw.PRESETS["8x8"]).report["cycles"]
    assert first.cycles == {"8x8": cycles}
    command = tree / "flows" / "cli" / "commands" / "compile.py"
    command.write_text(SEVEN)
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", tree, *author, "commit", "-qam", "other"], check=True)
    assert main(["HEAD", "HEAD~1", *places]) == 0
    lines = read_lines(tmp_path / "lines.jsonl")
    assert [(each.cycles["8x8"], each.title) for each in lines][1:] == [(7, "other")]


def test_an_unknown_commit(tmp_path, capsys):
    assert main(["nothing", "--records", str(tmp_path / "a"), "--page", str(tmp_path / "b")]) == 2
    assert "check the commit" in capsys.readouterr().err
