"""Processes that start together on an empty cache: all get the right result, nothing is torn.

Each process makes the user's key, compiles the network into the cache or finds it there, compiles
kernels that an artifact of a stranger lacks, keeps a built file and a record, and runs the network.
Afterwards, a process that may compile nothing finds all of it.
"""

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from ....atomic_write import UNFINISHED_SUFFIX
from ....runtime.devices import open_device
from ....runtime.session import Session
from ....sim.cache import keep_file, kept_folder
from ...execution.compile_cache import CompileCache
from ...sweep.records import Database, Record, RecordKey
from . import network
from .processes import StressError, outcomes

PROCESSES = 4
COMPILES = "tilewright.compiler.host.kernel_store.compile_kernel"
BUILDS = "builds"
"""A file with a line for each build; there must be one."""


def race(processes: int = PROCESSES) -> None:
    """Let processes race once.

    Raises
    ------
    StressError
        When a result differs, something is made twice that must be made once, or a file is torn.
    """
    with open_device("sim", network.MACHINE) as sim:
        expected = network.digest(Session(network.module(), sim), 0)
    with TemporaryDirectory() as place:
        folder = Path(place)
        found = outcomes(_use_cache, [(folder, False)] * processes, fresh=True)
        found += outcomes(_use_cache, [(folder, True)], fresh=True)
        for text in found:
            if text != expected:
                raise StressError(f"processes racing on the cache: expected {expected}, got {text}")
        torn = [path for path in folder.rglob(f"*{UNFINISHED_SUFFIX}") if path.is_file()]
        builds = (folder / BUILDS).read_text("utf-8")
        if torn or builds != "built\n":
            raise StressError(f"processes racing on the cache: left {torn}, built {builds!r}")


def _use_cache(folder: Path, alone: bool) -> str:
    """Use every part of the cache, and return the hash of the network's outputs."""
    os.environ["TILEWRIGHT_CACHE"] = os.environ["XDG_DATA_HOME"] = str(folder)
    kept = CompileCache.of_request(network.request())
    module = kept.load()
    if module is None:
        assert not alone
        module = network.module()
        kept.save(module)
    key = RecordKey("stress", "1", "", "", "")
    with Database(folder / "records.db") as database:
        database.add([(key, Record({"cycles": 1}))])
        assert key in database.find([key])

    def build(empty: Path) -> Path:
        with (folder / BUILDS).open("a") as log:
            log.write("built\n")
        (empty / "made").write_text("made", "utf-8")
        return empty / "made"

    assert keep_file(kept_folder("built") / "it.txt", build).read_text("utf-8") == "made"
    bare = replace(module, code={})
    quiet = patch(COMPILES, None) if alone else nullcontext()
    with quiet, open_device("sim", network.MACHINE) as sim:
        return network.digest(Session(bare, sim, threads=network.THREADS), 0)
