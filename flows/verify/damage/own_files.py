"""Hostile files that a user may be given: boards, schedules, operators, sweeps, builds, artifacts.

Half of the files have damaged bytes; the others hold absurd values in the right places.
"""

import json
import os
import random
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from ....compiler.registered import REGISTERED
from ....compiler.scheduling.given_schedules import schedules_text
from ....errors import UsageError
from ....hardware.soc.board import Board
from ....isa.configuration import PRESETS
from ....quoting import printable
from ....runtime.artifact import artifact_bytes, load
from ...board.bitstream import REPORT
from ...board.constraints import CONSTRAINTS
from ...board.known_boards import FOLDER, find_board
from ...board.vivado import ZynqDesign
from ...board.vivado import script as zynq_script
from ...cli.arguments import load_module
from ...cli.commands.flash import find_bitstream
from ...cli.operator_options import load_operators
from ...cli.schedule_options import chosen_schedules
from ...hex_export.folder import HexExport, write_hex
from ...sweep.expressions import read_condition
from ...sweep.figures import FIGURES
from ...sweep.spaces import read_description
from .byte_damage import BYTES

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"
MACHINE = PRESETS["4x4"]

VALUES = (
    "1", "-1", "0.5", "1e400", "nan", "true", '""', '"x"', '"\\u0000"', '"a\\nb"', '"$[exit]"',
    '"}{"', "[]", "[1, 2]", "{}", '{ site = "A1" }', '["A1", "A1"]', "9" * 5000, "1979-05-27",
    '"' + "x" * 3000 + '"', "[" * 900 + "]" * 900, '"\\U0010FFFF"', '"../../etc"', '"A1"',
)  # fmt: skip
"""Values of TOML."""

FACTORS = (
    "cycles", "lanes_in", "1", "0", "1e308", "9" * 400, "2 ** 9 ** 9 ** 9", "-cycles", "x" * 300,
    "(cycles", "not cycles", "cycles / 0", "'a'", "[1]", "f()", "cycles.real", "lambda: 1", "1j",
    "cycles < 5 < 7", "True", "None", "~1", "1 << 99999", "cycles % 0", "...", "\u00b2", "inf",
)  # fmt: skip
OPERATORS = ("<", "<=", "==", "!=", "and", "or", "+", "-", "*", "/", "**", "//", "in", "is", ",")

LAWS = (
    "x", "x / 0", "x ** 1e308", "sqrt(x)", "y", "x +", "__import__('os')", "x.__class__", "f(x)",
    "(" * 500 + "x" + ")" * 500, "-" * 3000 + "x", "x if x else x", "x[0]", "'x'", "b * x", "",
    "exp(exp(exp(exp(x))))", "x\n", "x; x", "9" * 5000, "1e999 * x", "lambda: x", "max(x)",
)  # fmt: skip

FILE = (
    "import tilewright\ntilewright.register_operator({name}, domain={domain}, law={law}, "
    "parameters={parameters})\n{more}"
)
MORE = (
    "", "1 / 0", "raise SystemExit", "raise KeyError('\\\\ud800')", "x = [\n", "exit()",
    "def f(): f()\nf()",
    "raise Exception('a\\x1b[2Jb\\n' * 999)", "import no_such_module", "assert False", "\0", "\tx",
)  # fmt: skip


def _damaged(chance: random.Random, data: bytes) -> bytes:
    return chance.choice(BYTES)(chance, data)


@cache
def _boards() -> tuple[str, ...]:
    """The template and all board files that are complete."""
    texts = [FOLDER.parent / "template.toml", *sorted(FOLDER.glob("*.toml"))]
    return tuple(path.read_text("utf-8") for path in texts)


def _hostile_board(chance: random.Random) -> bytes:
    text = chance.choice(_boards())
    if chance.random() < 0.5:
        return _damaged(chance, text.encode())
    lines = text.splitlines()
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        if equals:
            lines[at] = f"{key} = {chance.choice(VALUES)}"
        else:
            lines[at] = chance.choice(("", "[pins]", "[[pins]]", "[memory.pins]", "a.b.c = 1"))
    return "\n".join(lines).encode()


def _try_board(path: Path, data: bytes) -> None:
    """Read a board, and write it into every language that it reaches."""
    board = path.with_suffix(".toml")
    board.write_bytes(data)
    found = find_board(str(board))
    if isinstance(found, Board):
        for _, write in CONSTRAINTS.values():
            assert printable(write(found), keep="\n") == write(found)
    else:
        design = ZynqDesign(found, PRESETS[found.configuration], found.clock_mhz)
        assert zynq_script(design).count("exit") == 0


@cache
def _schedules() -> str:
    return schedules_text(load_module(EXAMPLE, MACHINE))


def _hostile_schedule(chance: random.Random) -> bytes:
    text = _schedules()
    if chance.random() < 0.5:
        return _damaged(chance, text.encode())
    lines = text.splitlines()
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(lines))
        words = lines[at].split(" ")
        action = chance.random()
        if action < 0.2:
            lines.insert(at, chance.choice(lines))
        elif action < 0.4:
            del lines[at]
        else:
            words[chance.randrange(len(words))] = chance.choice(
                ("0", "-1", "1", "3", "999999999999", "9" * 5000, '"', "n", "split", "# part 2", "")
            )
            lines[at] = " ".join(words)
        lines = lines or [""]
    return "\n".join(lines).encode()


def _try_schedule(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    given = chosen_schedules(Namespace(given=[str(path)]))
    module = load_module(EXAMPLE, MACHINE, schedules=given)
    assert module.report["cycles"] > 0


def _hostile_operators(chance: random.Random) -> bytes:
    texts = ("Mine", "", "a b", "\0", "Conv", "x" * 3000, "\ud800", "a\nb")
    text = FILE.format(
        name=ascii(chance.choice(texts) if chance.random() < 0.3 else "Mine"),
        domain=ascii(chance.choice(texts) if chance.random() < 0.3 else "com.example"),
        law=ascii(chance.choice(LAWS)),
        parameters=chance.choice(("None", "{}", "{'b': 1.0}", "{'b': None}", "{'x': 1}", "{1: 2}")),
        more=chance.choice(MORE) if chance.random() < 0.5 else "",
    ).encode()
    return _damaged(chance, text) if chance.random() < 0.3 else text


def _try_operators(path: Path, data: bytes) -> None:
    file, before = path.with_suffix(".py"), dict(REGISTERED)
    file.write_bytes(data)
    try:
        load_operators([file])
    finally:
        REGISTERED.clear()
        REGISTERED.update(before)


def _hostile_condition(chance: random.Random) -> bytes:
    good = chance.random() < 0.7
    factors, operators = (FACTORS[:6], OPERATORS[:10]) if good else (FACTORS, OPERATORS)
    words = [chance.choice(factors)]
    for _ in range(chance.choice((1, 1, 2, 3, 2000))):
        words += [chance.choice(operators), chance.choice(factors)]
    return " ".join(words).encode("utf-8", "replace")


def _try_condition(path: Path, data: bytes) -> None:
    condition = read_condition(data.decode(), FIGURES, "`--where`")
    figures = dict.fromkeys(FIGURES, (0.0, 1e300))
    assert condition.may_hold(figures) in (True, False)
    assert condition.miss(figures) >= 0


def _hostile_sweep(chance: random.Random) -> bytes:
    keys = ("base", "vary", "set", "where", "minimise", "device", "clock_mhz", "weights", "it")
    tables = ("{ lanes = [2, 4] }", "{ lanes = '4x4' }", '["cycles < 5"]', '{ cycles = "x" }')
    lines = [
        f"{chance.choice(keys)} = {chance.choice((*VALUES, *tables))}"
        for _ in range(chance.randint(1, 4))
    ]
    text = "\n".join(lines).encode()
    return _damaged(chance, text) if chance.random() < 0.3 else text


def _try_sweep(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    read_description(str(path))


def _hostile_build(chance: random.Random) -> bytes:
    texts = (
        "ULX3S-25F",
        "",
        "../x",
        "-x",
        "$(id)",
        "it.bit",
        "/etc/passwd",
        None,
        7,
        [],
        {},
        "a\n",
    )
    values = {key: chance.choice(texts) for key in ("board", "programmer", "bitstream")}
    if chance.random() < 0.2:
        del values[chance.choice(list(values))]
    text = json.dumps(values if chance.random() < 0.8 else chance.choice(texts)).encode()
    return _damaged(chance, text) if chance.random() < 0.3 else text


def _try_build(path: Path, data: bytes) -> None:
    folder = path.with_suffix(".build")
    folder.mkdir(exist_ok=True)
    (folder / REPORT).write_bytes(data)
    (folder / "it.bit").touch()
    _, _, bitstream = find_bitstream(folder)
    assert bitstream == folder / "it.bit"


HEX_FILES = ("memory.hex", "expected.hex", "runs.hex")
OBSTACLES = ("folder", "link", "pipe", "loop", "file", "nothing", "read-only")


def _hostile_folder(chance: random.Random) -> bytes:
    return json.dumps({name: chance.choice(OBSTACLES) for name in (".", *HEX_FILES)}).encode()


def _try_folder(path: Path, data: bytes) -> None:
    """Export hex files into a folder where something else has their names."""
    folder = path.with_suffix(".hex")
    outside = path.with_suffix(".outside")
    outside.write_text("outside", "utf-8")
    here, *others = json.loads(data).items()
    if here[1] in ("nothing", "folder", "read-only"):
        folder.mkdir()
        for name, kind in others:
            _put(folder / name, kind, outside)
    else:
        _put(folder, here[1], outside)
    export = HexExport(dict.fromkeys(HEX_FILES, "00\n"), 1, 1, 1)
    try:
        write_hex(folder, export)
    finally:
        assert outside.read_text("utf-8") == "outside"
    assert all((folder / name).read_text("utf-8") == "00\n" for name in HEX_FILES)


def _put(place: Path, kind: str, outside: Path) -> None:
    if kind == "folder":
        place.mkdir()
    elif kind == "link":
        place.symlink_to(outside)
    elif kind == "loop":
        place.symlink_to(place)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind in ("file", "read-only"):
        place.write_text("old", "utf-8")
        place.chmod(0o444 if kind == "read-only" else 0o644)


@cache
def good_artifact() -> bytes:
    """The example, compiled."""
    return artifact_bytes(load_module(EXAMPLE, MACHINE))


def _hostile_artifact(chance: random.Random) -> bytes:
    return _damaged(chance, good_artifact())


def _try_artifact(path: Path, data: bytes) -> None:
    """Load a damaged artifact without any of its checksums made good."""
    path.write_bytes(data)
    try:
        load(path)
    except UsageError as refusal:
        raise AssertionError(f"an artifact's damage is no mistake of usage: {refusal}") from None


OWN_FILES: Mapping[str, tuple[Callable[[random.Random], bytes], Callable[[Path, bytes], None]]] = {
    "board": (_hostile_board, _try_board),
    "schedule": (_hostile_schedule, _try_schedule),
    "operators": (_hostile_operators, _try_operators),
    "condition": (_hostile_condition, _try_condition),
    "sweep": (_hostile_sweep, _try_sweep),
    "build": (_hostile_build, _try_build),
    "folder": (_hostile_folder, _try_folder),
    "artifact": (_hostile_artifact, _try_artifact),
}
"""By kind, as in `edges.KINDS`."""
