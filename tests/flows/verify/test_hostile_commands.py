"""Hostile command lines: each ends as the rule of the campaign says."""

import json
import multiprocessing
from functools import partial

import pytest

from tilewright.flows.verify.damage import command_lines
from tilewright.flows.verify.damage.command_lines import (
    command_trial,
    hostile_commands,
    main_campaign,
)

QUICK = ("config show", "config check", "asm", "flash", "devices", "clean", "inspect", "completion")


def try_all(pipe, made):
    """Try command lines; a process that does so adopts and stops all that is left of them."""
    with command_trial() as trial:
        for seed, source, data in made:
            pipe.send((source, *trial(data, seed)))
    pipe.send(None)


def results(made):
    """The result of each command line."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=try_all, args=(theirs, made))
    process.start()
    yield from iter(ours.recv, None)
    process.join()


def test_hostile_command_lines_end_in_a_sentence_or_the_right_result():
    kinds = set()
    for source, kind, message in results(hostile_commands(QUICK, range(24))):
        assert kind in ("equal", "refused"), f"{source}: {message}"
        kinds.add(kind)
    assert kinds == {"equal", "refused"}


def test_any_command_has_hostile_lines():
    lines = [source.split()[0] for _, source, _ in hostile_commands((), range(60))]
    assert set(command_lines.COMMANDS) <= set(lines)


LONG = "import time\nprint('working')\ntime.sleep(60)"


def fake(code, words):
    """Stands for the command line."""
    exec(code, {})
    return 0


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("", "equal", "exit 0"),
        ("raise SystemExit(2)", "failed", "ends with 0 sentences"),
        ("raise SystemExit(9)", "failed", "ends in an unknown way"),
        ("raise ValueError('raw')", "failed", "raises"),
        ("print('\\x1b[2J')", "failed", "prints"),
        ("import tempfile; tempfile.mkdtemp()", "failed", "leaves temporary files"),
        ("open('it.part', 'w')", "failed", "leaves unfinished files"),
        ("import subprocess; subprocess.Popen(['sleep', '60'])", "failed", "leaves processes"),
        (f"try:\n exec({LONG!r})\nexcept KeyboardInterrupt:\n raise SystemExit(130)",
         "interrupted", "exit 130"),
        ("import time; time.sleep(60)", "failed", "raises"),
        ("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
         "failed", "runs on"),
        ("bytes(4 << 30)", "failed", "MemoryError"),
    ],
)  # fmt: skip
def test_what_breaks_the_rule_is_a_failure(monkeypatch, code, kind, says):
    for name, value in (("ANSWER_S", 0.3), ("ENDING_S", 0.3), ("main", partial(fake, code))):
        monkeypatch.setattr(command_lines, name, value)
    data = json.dumps({"words": ["run"], "bad": ["one.onnx", 1]}).encode()
    ((_, found, message),) = results([(1, "run", data)])
    assert (found, says in message) == (kind, True), message


def test_an_unknown_command_is_refused(capsys):
    assert main_campaign(["--only", "ruin"]) == 2
    assert "unknown commands" in capsys.readouterr().err
