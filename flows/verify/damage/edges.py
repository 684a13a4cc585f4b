"""Hostile inputs at the edges: databases, settings, paths of external data, conditions, names.

Each ends in the right result or in one printable sentence. A name may be any text; what is written
with it into another language must stay one name there.
"""

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from shutil import rmtree

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ....compiler.importers import import_onnx
from ....compiler.model_file import digest_external
from ....compiler.te.steps import parse_step
from ....errors import TilewrightError
from ....isa.configuration import PRESETS, read_base
from ....isa.memory_model import MemoryModel
from ....isa.settings import load_configuration, memory_text, read_memory
from ....quoting import comment, csv_cell, html_text, is_name, printable, script_json, tcl_word
from ....runtime.agents import host_and_port
from ....runtime.artifact import load
from ....runtime.transports import Address
from ....runtime.zynq import open_core
from ...board.known_boards import find_board
from ...cli.input_options import chosen_dims
from ...execution.samples import read_arrays
from ...execution.stages import stage_position
from ...sweep.export import export
from ...sweep.expressions import read_condition
from ...sweep.figures import FIGURES
from ...sweep.records import Database, Record, RecordKey
from ...sweep.spaces import read_description
from .artifacts import LIMIT_BYTES
from .byte_damage import BYTES
from .campaign import run_command
from .own_files import OWN_FILES
from .workers import Trial

COUNT = 5000
MAX_MESSAGE = 5_000
"""Characters of a refusal; the command line shortens long ones."""

PIECES = (
    "\0", "\n", "\r\n", "\x1b[2J", "\ud800", "\u202e", "é", "[", "]", "{", "}", "$", "`", '"', "'",
    "\\", ";", "#", "*/", "</script>", "=", "+", "-", "@", "..", "/", "~", "a", "0", "9" * 400, " ",
    "x" * 3000, "%s", "(", ")", "not ", "<", "1e999", "nan", "cycles", ",", "lanes=8x8", "null",
    "latency=9", "bandwidth=1/0", "shared_bus=1/2/3", "8x8", "true", "[" * 2000, "-1", "0x",
    "8x8,tile_loops=1..", "1" * 19, "9" * 5000, "a..b", "(True,)",
)  # fmt: skip

KEY = RecordKey("sim", "v1", "n", "c", memory_text(MemoryModel()))

STATEMENTS = (
    "update records set {column} = {value}", "update networks set name = {value}",
    "update configurations set parameters = {value}", "create table t{n} (x)",
    "create view v{n} as select * from records",
    "insert into claims values ('w{n}', {value}, 1e300)",
    "create trigger g{n} after insert on records begin delete from records; end",
    "pragma user_version = {n}", "pragma application_id = {n}", "drop table claims",
    "insert or ignore into networks values ({value}, {value})", "alter table records add column y",
)  # fmt: skip
COLUMNS = ("key", "evaluator", "version", "network", "memory", "cycles", "figures", "error")


def hostile_text(chance: random.Random) -> str:
    """Return a text of a few pieces."""
    return "".join(chance.choice(PIECES) for _ in range(chance.randint(0, 6)))


def _damaged(chance: random.Random, data: bytes) -> bytes:
    return chance.choice(BYTES)(chance, data)


@cache
def database_bytes() -> bytes:
    """Return a good database."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "it.db"
        with Database(path) as database:
            database.name_network("n", "digits")
            database.add_configurations([PRESETS["8x8"]])
            database.add([(KEY, Record({"cycles": 7}))])
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("pragma journal_mode = delete")
        return path.read_bytes()


def _hostile_database(chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        return _damaged(chance, database_bytes())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "it.db"
        path.write_bytes(database_bytes())
        with closing(sqlite3.connect(path)) as connection, connection:
            for _ in range(chance.randint(1, 3)):
                text = hostile_text(chance).encode(errors="surrogatepass").hex()
                value = chance.choice((f"cast(x'{text}' as text)", f"x'{text}'", "null", "1e999"))
                statement = chance.choice(STATEMENTS).format(
                    column=chance.choice(COLUMNS), value=value, n=chance.randint(0, 9)
                )
                with suppress(sqlite3.Error):
                    connection.execute(statement)
        return path.read_bytes()


def _try_database(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with Database() as ours:
        ours.merge(path)
    with Database(path) as theirs:
        theirs.find([KEY])
        theirs.claim("w1", 1)
        export(theirs, path.with_suffix(".csv"))


def _hostile_model(chance: random.Random) -> bytes:
    rank = chance.choice((1, 2, 32, 33, 64, 70))
    ends = [helper.make_tensor_value_info(name, 1, [1] * rank) for name in "xy"]
    weights = numpy_helper.from_array(np.ones(1, np.float32), "w")
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    for key in chance.sample(("location", "offset", "length", "basepath"), chance.randint(0, 4)):
        known = ("good", "pipe", "huge", "link", "/dev/zero", "../good", "/proc/kmsg", "4", "0")
        text = chance.choice(known) if chance.random() < 0.7 else hostile_text(chance)
        weights.external_data.add(key=key, value=text.encode("utf-8", "replace").decode())
    node = helper.make_node("Add", ["x", "w"], ["y"], name=printable(hostile_text(chance)))
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    data = model.SerializeToString()
    return _damaged(chance, data) if chance.random() < 0.3 else data


def _try_model(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    digest_external(data, path)
    import_onnx(path)


def _hostile_settings(chance: random.Random) -> bytes:
    values = {"name": "it", **PRESETS["tiny"].parameters()}
    for _ in range(chance.randint(1, 3)):
        name = chance.choice([*values, hostile_text(chance)])
        values[name] = chance.choice(
            (hostile_text(chance), chance.randint(-9, 1 << 70), None, [], {}, True, 1e308, 0.5)
        )
    text = json.dumps(values).encode()
    return _damaged(chance, text) if chance.random() < 0.3 else text


def _try_settings(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    configuration = read_base(str(path))
    assert is_name(configuration.name)
    assert comment(configuration.name).isprintable()


def _hostile_words(chance: random.Random) -> bytes:
    return hostile_text(chance).encode("utf-8", "surrogatepass")


def _npy(path: Path, shape: str) -> Path:
    """Write an array of 4 bytes with any shape."""
    head = f"{{'descr': '|i1', 'fortran_order': False, 'shape': {shape}, }}\n".encode(
        "latin-1", "replace"
    )
    path.write_bytes(b"\x93NUMPY\2\0" + len(head).to_bytes(4, "little") + head + bytes(4))
    return path


def _try_words(path: Path, data: bytes) -> None:
    """Read a text as all that the command line reads, and write it as all that is written."""
    text = data.decode("utf-8", "surrogatepass")
    path.write_bytes(data)
    for read in (
        load_configuration,
        lambda text: read_memory(text, "it"),
        lambda text: read_condition(text, FIGURES, "it"),
        lambda text: read_condition(f"cycles < {text}", FIGURES, "it"),
        lambda _: read_description(str(path)),
        lambda text: Address.parse(f"tcp://{text}:1"),
        lambda text: host_and_port(text, ""),
        lambda text: open_core(f"zynq://{text}"),
        lambda text: parse_step(f"split({text}, y, {text})"),
        lambda text: chosen_dims(argparse.Namespace(dims=[f"N={text}"])),
        stage_position,
        lambda text: read_arrays(_npy(path, text)),
        lambda text: Database(Path(text), read_only=True),
        lambda text: import_onnx(Path(text)),
        find_board,
        read_description,
        load,
    ):
        with suppress(TilewrightError):
            read(text)
    assert tcl_word(text).isprintable()
    assert comment(text).isprintable()
    assert "*/" not in comment(text)
    assert "<" not in html_text(text) + script_json(text)
    assert str(csv_cell(text))[:1] not in tuple("=+-@")
    load_configuration(text)


KINDS: Mapping[str, tuple[Callable[[random.Random], bytes], Callable[[Path, bytes], None]]] = {
    "database": (_hostile_database, _try_database),
    "model": (_hostile_model, _try_model),
    "settings": (_hostile_settings, _try_settings),
    "words": (_hostile_words, _try_words),
    **OWN_FILES,
}
"""By kind: what makes an input from a seed, and what tries it."""


def hostile_inputs(seeds: range) -> Iterator[tuple[int, str, bytes]]:
    """Hostile inputs of all kinds in turn."""
    kinds = list(KINDS)
    for seed in seeds:
        kind = kinds[seed % len(kinds)]
        yield seed, kind, KINDS[kind][0](random.Random(seed))


@contextmanager
def edge_trial() -> Iterator[Trial]:
    """A trial in a folder with a pipe, a link that leads out, and a file larger than memory."""
    with tempfile.TemporaryDirectory() as outside:
        folder = Path(outside) / "folder"
        folder.mkdir()
        (folder / "good").write_bytes(bytes(4))
        os.mkfifo(folder / "pipe")
        (folder / "link").symlink_to("/dev/zero")
        (folder / "huge").touch()
        os.truncate(folder / "huge", 1 << 40)
        os.environ["TILEWRIGHT_CACHE"] = outside
        yield partial(try_input, folder / "input")


def try_input(path: Path, data: bytes, seed: int) -> tuple[str, str]:
    """Try an input; return the kind of result and its message."""
    for old in path.parent.glob("input*"):
        if old.is_dir() and not old.is_symlink():
            rmtree(old)
        else:
            old.unlink()
    try:
        with warnings.catch_warnings(action="ignore"):
            list(KINDS.values())[seed % len(KINDS)][1](path, data)
    except TilewrightError as refusal:
        text = str(refusal)
        return ("refused" if len(text) > 0 else "failed"), printable(text)[:MAX_MESSAGE]
    except Exception as problem:
        return "failed", f"{type(problem).__name__}: {problem}"
    return "equal", ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Try hostile inputs; return 1 if any gives neither the right result nor a one-line error."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.verify.damage.edges", description=__doc__
    )
    return run_command(
        parser, arguments, "inputs", COUNT, lambda *_: hostile_inputs, edge_trial, LIMIT_BYTES
    )


if __name__ == "__main__":
    sys.exit(main())
