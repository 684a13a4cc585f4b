"""Hostile command lines: any options of any command, with absurd values and damaged files.

A command answers within `ANSWER_S` and `LIMIT_BYTES`: with its result, or with one sentence.
Work that takes longer says what it does, and Ctrl-C then ends it within `ENDING_S`. Either way it
leaves neither processes nor temporary files, and writes nothing that a terminal would obey.
"""

import argparse
import ctypes
import json
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from shutil import copyfile, copytree, rmtree

import onnx

from ....errors import UsageError
from ....isa.configuration import PRESETS
from ....quoting import printable
from ...board.known_boards import FOLDER
from ...cli.main import COMMANDS, main, parser
from .byte_damage import BYTES
from .campaign import run_command
from .edges import PIECES, database_bytes, hostile_text
from .own_files import EXAMPLE, good_artifact
from .workers import Trial

COUNT = 1000
ANSWER_S, ENDING_S = 10.0, 2.0
"""Of the processor; the clock may show `PATIENCE` times as much, since machines are busy."""
PATIENCE = 4
SERVERS = ("agent", "board", "--serve")
"""Words of commands that wait for others: `ANSWER_S` are by the clock."""
LIMIT_BYTES = 3 << 30
LEFT_OUT = ("--ledger", "--write", "--verbose", "--help")
"""Options that write into Tilewright's own folders, or print tracebacks on purpose."""
SUBREAPER = 36
"""Of `prctl`: a process becomes the parent of its descendants whose parents end."""

FILES = (
    "one.onnx", "digits.onnx", "digits.npz", "digits.tw", "it.db", "board.toml", "machine.json",
    "steps.txt", "program.asm", "operators.py", "space.toml", "bad", "pipe", "link", "huge",
    "folder", "none",
)  # fmt: skip
OUTPUTS = ("out", "out.html", "out.json", "out.v", "folder", "pipe", "none/out", "digits.onnx")
MACHINES = (
    "4x4", "8x8", "tiny", "ecp5-25", "4x4,act_depth=64", "8x8,lanes_in=4", "machine.json",
    "4x4,queue_depth=0", "64x64", "4x4,dram_size=999999999999", "16x16,act_depth=1048576",
)  # fmt: skip
MEMORIES = (
    "0", "1", "200", "65535", "1/4", "1/0", "8/1", "1/65535", "latency=9,bandwidth=1/9", "default",
    "4,5,6,1000", "0,0,0,1", "64,64", "1..4",
)  # fmt: skip
NUMBERS = ("0", "-1", "1", "2", "0.5", "1e308", "nan", "inf", "1_0", "9" * 20, "4096", "100000")
BOARDS = ("ULX3S-25F", "ULX3S", "board.toml", "Arty-A7-35T", "amaranth_boards.icestick", "../x")
DEVICES = (
    "sim", "reference", "host", "gpu", "sim+gpu", "tcp://127.0.0.1:1", "serial://pipe", "rtl",
    "remote://none/sim", "zynq://folder", "serial:///dev/null", "tcp://[::1]:9", "gate", "bogus",
)  # fmt: skip
VARIED = (
    "lanes=2x2,4x4", "lanes=1..64", "act_depth=64..1048576", "latency=0..100000", "queue_depth=1,2",
    "lanes=4x4", "dram_size=1", "lanes=", "=", "bus_bytes=4,8,16", "outstanding=1..9999999999",
)  # fmt: skip
CONDITIONS = ("cycles < 5000", "lanes_in == lanes_out", "cycles / 0", "9 ** 9 ** 9 < 1", "lut < 1")
LAYERS = ("conv1", "dense=host", "*=accelerator", "conv1=steps.txt", "x=0", "input=1", "[", "")
BUDGETS = ("1", "3", "1s", "0s", "100000h", "-1", "9" * 30)

POOLS = {
    "config": MACHINES, "set": (*VARIED, "lanes=8x8", "act_depth=0", "name=x"), "vary": VARIED,
    "latency": MEMORIES, "bandwidth": MEMORIES, "outstanding": MEMORIES, "shared_bus": MEMORIES,
    "program_for": MEMORIES, "board": (*BOARDS, "lab=serial://pipe", "a=b"), "virtual": BOARDS,
    "device": DEVICES, "where": CONDITIONS, "budget": BUDGETS, "chip": ("ecp5-25", "asic", "up5k"),
    "minimise": ("cycles", "lut,cycles", "cycles,cycles", "x"), "weight": ("digits=2", "x=1"),
    "place": LAYERS, "layer": LAYERS, "layers": LAYERS, "keep_float": LAYERS, "dim": LAYERS,
    "fix": LAYERS, "outputs": LAYERS, "state": ("input=output", "x=y"), "until": ("linked", "3"),
    "space": ("space.toml", "small", "bad"), "tuner": ("random", "grid", "x"), "fault": ("drop=1",),
    "listen": ("127.0.0.1:0", "127.0.0.1:99999", ":", "x:y"), "offer": ("sim", "none", "x"),
    "search": ("random", "x"), "technology": ("asic", "ecp5", "x"), "match": ("test_add", "[", "."),
    "scheduler": ("tcp://127.0.0.1:1", "tls://[::1]:9", "x"), "add": ("a=127.0.0.1:1", "a", "=:"),
    "address": DEVICES[5:], "layer_or_node": LAYERS, "clock": ("own", *NUMBERS),
}  # fmt: skip
"""Words by argument name; other arguments take words by their type and metavar."""
WRITTEN = ("output", "json", "trace", "waveform", "export", "folder", "hex", "figure", "memories")
"""Arguments whose files a command writes, beside `package`."""


def _word(chance: random.Random, action: argparse.Action) -> str:
    """Return a word for an argument."""
    if chance.random() < 0.08:
        return hostile_text(chance).replace("\0", "") or chance.choice(PIECES[1:])
    if action.choices and chance.random() < 0.9:
        return str(chance.choice([*action.choices]))
    name = action.dest
    if name in POOLS:
        return chance.choice(POOLS[name])
    if name in (*WRITTEN, "package"):
        return chance.choice(OUTPUTS)
    if action.type in (int, float) or str(action.metavar) in ("N", "EFFORT"):
        return chance.choice(NUMBERS)
    return chance.choice(FILES)


@cache
def _commands() -> dict[str, list[argparse.Action]]:
    """Return the arguments of each command and of each action of `config`, in the order given."""
    found = {}

    def add(words: str, made: argparse.ArgumentParser) -> None:
        below = [each for each in made._actions if isinstance(each, argparse._SubParsersAction)]
        for each in below:
            for name, inner in each.choices.items():
                add(f"{words} {name}".strip(), inner)
        if not below:
            found[words] = [
                each for each in made._actions if not set(LEFT_OUT) & set(each.option_strings)
            ]

    add("", parser(complete=True))
    return found


def hostile_command(chance: random.Random, command: str = "") -> list[str]:
    """Return the words of a command line, which may be valid."""
    commands = _commands()
    command = command or chance.choice([*commands])
    words = command.split()
    options = [each for each in commands[command] if each.option_strings]
    for each in commands[command]:
        if not each.option_strings and (each.required or chance.random() < 0.8):
            usual = "one.onnx" if each.metavar in ("MODEL", "ARTIFACT") else "program.asm"
            usual = usual if each.dest not in POOLS and not each.choices else _word(chance, each)
            words.append(usual if chance.random() < 0.75 else _word(chance, each))
    required = [each for each in options if each.required]
    for each in (
        *required,
        *chance.sample(options, min(chance.choice((0, 1, 2, 3)), len(options))),
    ):
        words.append(chance.choice(each.option_strings))
        if each.nargs != 0:
            words += [_word(chance, each) for _ in range(2 if each.nargs == 2 else 1)]
    if command == "export" and not {"--c", "--hex"} & set(words):
        words += [chance.choice(("--c", "--hex")), "out"]
    return words


def hostile_commands(commands: Sequence[str], seeds: range) -> Iterator[tuple[int, str, bytes]]:
    """Command lines, each with a file `bad` that is a damaged one of the others."""
    names = list(commands) or [*_commands()]
    for seed in seeds:
        chance = random.Random(seed)
        command = names[seed % len(names)]
        words = hostile_command(chance, command)
        given = {"words": words, "bad": [chance.choice(FILES[:11]), chance.getrandbits(32)]}
        yield seed, printable(" ".join(words))[:500], json.dumps(given).encode()


def _make_files(folder: Path) -> None:
    """Fill a folder with all files of `FILES` but `bad`; some are valid, some only readable."""
    one = onnx.load(EXAMPLE)
    del one.graph.node[13:]  # all behind the first layer
    one.graph.output[0].name = one.graph.node[12].output[0]
    one.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(one, folder / "one.onnx")
    copyfile(EXAMPLE, folder / "digits.onnx")
    copyfile(EXAMPLE.with_name("test_digits.npz"), folder / "digits.npz")
    (folder / "digits.tw").write_bytes(good_artifact())
    (folder / "it.db").write_bytes(database_bytes())
    copyfile(FOLDER.parent / "template.toml", folder / "board.toml")
    machine = {"name": "it", **PRESETS["4x4"].parameters()}
    (folder / "machine.json").write_text(json.dumps(machine), "utf-8")
    (folder / "steps.txt").write_text("# conv1\nsplit(n, n0, 4)\n", "utf-8")
    (folder / "program.asm").write_text("FENCE\n", "utf-8")
    (folder / "operators.py").write_text("import tilewright\n", "utf-8")
    (folder / "space.toml").write_text('vary = { lanes = ["2x2", "4x4"] }\n', "utf-8")
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/dev/zero")
    (folder / "huge").touch()
    os.truncate(folder / "huge", 1 << 40)
    (folder / "folder").mkdir()


@contextmanager
def command_trial() -> Iterator[Trial]:
    """A trial of command lines, in child processes of this one."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as outside:
        made = Path(outside) / "made"
        made.mkdir()
        _make_files(made)
        os.environ["TILEWRIGHT_CACHE"] = f"{outside}/cache"
        for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "HOME"):
            os.environ[name] = f"{outside}/home"
        yield partial(try_command, Path(outside))


def try_command(outside: Path, data: bytes, seed: int) -> tuple[str, str]:
    """Run a command line in a child; return the kind of result and its message."""
    given, folder, temporary = json.loads(data), outside / "work", outside / "temporary"
    for each in (folder, temporary):
        rmtree(each, ignore_errors=True)
    temporary.mkdir()
    copytree(outside / "made", folder, symlinks=True, copy_function=_link, ignore=_no_pipes)
    os.mkfifo(folder / "pipe")
    source, number = given["bad"]
    chance = random.Random(number)
    (folder / "bad").write_bytes(chance.choice(BYTES)(chance, (folder / source).read_bytes()))
    child = os.fork()
    if child == 0:
        _run_child(given["words"], folder, temporary, outside)
    started = time.monotonic()
    server = not set(SERVERS).isdisjoint(given["words"])
    status, taken_s = _wait(child, ANSWER_S, ANSWER_S * (1 if server else PATIENCE))
    if interrupted := status is None:
        os.kill(child, signal.SIGINT)
        status, _ = _wait(child, taken_s + ENDING_S, ENDING_S * PATIENCE)
    if lingers := status is None:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    code, taken_s = os.waitstatus_to_exitcode(status), time.monotonic() - started
    left = _left_processes()
    says = (outside / "stderr").read_text("utf-8", "replace")
    shown = (outside / "stdout").read_text("utf-8", "replace")
    problem = _problem(code, interrupted, shown, says)
    if lingers:
        problem = f"runs on for {ENDING_S:.0f} s after Ctrl-C"
    elif left:
        problem = f"leaves processes: {left}"
    elif files := sorted(each.name for each in temporary.iterdir()):
        problem = f"leaves temporary files: {files}"
    elif files := sorted(str(each) for each in folder.rglob("*.part")):
        problem = f"leaves unfinished files: {files}"
    text = f"exit {code}, {taken_s:.1f} s, {printable(says[-700:])}"
    if problem:
        return "failed", f"{problem}; {text}"
    if interrupted:
        return "interrupted", text
    return ("refused" if code else "equal"), text


def _wait(child: int, work_s: float, clock_s: float) -> tuple[int | None, float]:
    """Wait for a child to end; return its status, None if it is late, and its processor time."""
    started, used_s = time.monotonic(), 0.0
    while used_s < work_s and time.monotonic() - started < clock_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status, used_s
        _, _, figures = Path(f"/proc/{child}/stat").read_text("utf-8", "replace").rpartition(")")
        ticks = figures.split()[11:13]
        used_s = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        time.sleep(0.01)
    return None, used_s


def _link(source: str, to: str) -> None:
    """Copy small files alone."""
    if Path(source).name == "huge":
        Path(to).touch()
        os.truncate(to, 1 << 40)
    else:
        copyfile(source, to)


def _no_pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "pipe"]


def _run_child(words: list[str], folder: Path, temporary: Path, outside: Path) -> None:
    """Be the process of a command line."""
    code = 99
    try:
        os.environ["TMPDIR"] = str(temporary)
        if words[0] == "clean":  # others go on with what is in the cache
            os.environ["TILEWRIGHT_CACHE"] = os.environ["XDG_DATA_HOME"] = str(folder / "cache")
        tempfile.tempdir = None
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, path in ((0, os.devnull), (1, outside / "stdout"), (2, outside / "stderr")):
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            os.dup2(opened, number)
            os.close(opened)
        for name, number in (("stdout", 1), ("stderr", 2)):
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", buffering=1, closefd=False))
        sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
    except BaseException as problem:  # the parent sees it
        os.write(2, f"unexpected {type(problem).__name__}: {problem}".encode())
    with suppress(BaseException):
        vars(threading)["_shutdown"]()  # as Python ends; but what this process inherited stays
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _left_processes() -> list[str]:
    """Wait a moment for a command's own processes to end; kill and return those that run on."""
    me, until = os.getpid(), time.monotonic() + ENDING_S * PATIENCE
    while True:
        try:
            done, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return []
        if not done and time.monotonic() > until:
            break
        time.sleep(0 if done else 0.01)
    children = Path(f"/proc/{me}/task/{me}/children").read_text("utf-8").split()
    names = []
    for each in children:
        command = Path(f"/proc/{each}/cmdline").read_text("utf-8", "replace")
        names.append(command.replace("\0", " ")[:200])
        os.kill(int(each), signal.SIGKILL)
        os.waitpid(int(each), 0)
    return names


def _problem(code: int, interrupted: bool, shown: str, says: str) -> str:
    """Return what breaks the rule at the top of this file; nothing if all is well."""
    if bad := {char for char in shown + says if not char.isprintable() and char not in "\n\t"}:
        return f"prints {sorted(map(ascii, bad))}"
    if "unexpected " in says or "Traceback" in says:
        return "raises"
    if interrupted:
        if code not in (130, 0, 1, 2, 3):
            return "ends in another way than by Ctrl-C"
        if not (shown + says).replace("error: interrupted", "").strip():
            return f"says nothing in {ANSWER_S:.0f} s"
        return ""
    if code not in (0, 1, 2, 3):
        return "ends in an unknown way"
    errors = [line for line in says.splitlines() if line.startswith("error: ")]
    if code and len(errors) != 1:
        return f"ends with {len(errors)} sentences"
    return ""


def main_campaign(arguments: Sequence[str] | None = None) -> int:
    """Try hostile command lines; return 1 if any breaks the rule."""
    made = argparse.ArgumentParser(
        prog="python -m tilewright.flows.verify.damage.command_lines", description=__doc__
    )
    made.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="COMMAND",
        help="only this command; may be repeated",
    )

    def files(options: argparse.Namespace, _: object):
        if unknown := set(options.only) - set(_commands()):
            raise UsageError(f"unknown commands {sorted(unknown)}; choose of {sorted(COMMANDS)}")
        return partial(hostile_commands, options.only)

    return run_command(made, arguments, "commands", COUNT, files, command_trial, 64 << 30)


if __name__ == "__main__":
    sys.exit(main_campaign())
