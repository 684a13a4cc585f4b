"""Schedules of kernels that `tilewright tune` found, for compilations on this computer.

The records lie in the database of sweeps in the cache folder. `TILEWRIGHT_RECORDS` names another
file, or is `none`. Shipped records fill in for kernels without a record of the user's own.
Equal records give equal programs.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...sim.cache import cache_folder
from .shipped_choices import shipped_places, shipped_texts

if TYPE_CHECKING:
    from ...compiler.cpu import CpuTarget
    from ...compiler.graph import Graph
    from ...isa.configuration import Configuration
    from ...isa.memory_model import MemoryModel
    from ..sweep.records import Database

RECORDS_VARIABLE = "TILEWRIGHT_RECORDS"
"""The environment variable that names the database."""
NO_RECORDS = "none"
"""Its value for compilations without records."""

CPU_KERNEL, GPU_KERNEL = KERNELS = "cpu kernel", "gpu kernel"
"""The evaluators of trials of kernels."""

SWEEPS, FILE = "sweeps", "records.db"
"""Folder in the cache, and name of the default database."""

LAYERS = "accelerator schedules"
"""The evaluator of records with schedules of the accelerator's layers, of one network each."""

ON_GPU = "gpu"
"""Stands before the hash of a target among the texts where it is a GPU."""

Texts = dict[tuple[str, str], str]
"""Choices by the hashes of workload and target."""


def best_of(evaluator: str) -> str:
    """Return the evaluator of records that compilations use."""
    return f"{evaluator} best"


def records_path() -> Path | None:
    """Return the database of records, which may not exist; None without records."""
    named = os.environ.get(RECORDS_VARIABLE, "")
    if named == NO_RECORDS:
        return None
    return Path(named) if named else default_records_path()


def default_records_path() -> Path:
    """Return the database in the cache."""
    return cache_folder() / SWEEPS / FILE


def recorded_texts() -> Texts:
    """Return the best choices of all workloads and targets, shipped ones included.

    Neither LLVM nor NumPy is loaded.

    Raises
    ------
    DatabaseError
        If the user named a file that is not a database of sweeps.
    """
    path = records_path()
    return {} if path is None else {**shipped_texts(), **_own_texts(path)}


def records_key() -> tuple[object, ...]:
    """Return the part of a cache key on which the recorded schedules of a compilation depend."""
    texts = recorded_texts()
    return (*texts.items(), usable_threads()) if texts else ()


def _own_texts(path: Path) -> Texts:
    if not (os.path.isfile(path) or os.environ.get(RECORDS_VARIABLE)):
        return {}
    from ..sweep.records import Database, DatabaseError

    try:
        with Database(path, read_only=True) as database:
            return best_texts(database)
    except DatabaseError:
        if os.environ.get(RECORDS_VARIABLE):
            raise
        return {}  # a sweep says what is wrong with it; compiling does not depend on it


def best_texts(database: "Database") -> Texts:
    """Return the choices with the best times; of equal times, those with the smallest key."""
    found: dict[tuple[str, str], tuple[float, str, str]] = {}
    records = (one for kind in KERNELS for one in database.of_evaluator(best_of(kind)))
    for key, record in records:
        ratio = record.figures.get("ratio")
        # A ratio of 1 belongs to a default that the shipped schedule does not beat here.
        if record.error is None and isinstance(ratio, int | float) and 0 < ratio <= 1:
            where = key.configuration
            if key.evaluator == best_of(GPU_KERNEL):
                where = f"{ON_GPU} {where}"
            place, mine = (key.network, where), (float(ratio), key.digest, key.memory)
            found[place] = min(mine, found.get(place, mine))
    return {place: text for place, (_, _, text) in sorted(found.items())} | _layer_texts(database)


def _layer_texts(database: "Database") -> Texts:
    """Return the schedules of accelerator layers, as JSON, that this version's compiler takes."""
    from .compile_cache import source_digest

    found: dict[tuple[str, str], tuple[int, str, str]] = {}
    for key, record in database.of_evaluator(LAYERS):
        figures = record.figures
        cycles, given = figures.get("cycles"), figures.get("schedules")
        texts = isinstance(given, dict) and all(isinstance(one, str) for one in given.values())
        # Another compiler may have better schedules of its own, or other layers.
        if isinstance(cycles, int) and texts and figures.get("source") == source_digest():
            place = key.network, f"{key.configuration} {key.memory}"
            mine = cycles, key.digest, json.dumps(given, sort_keys=True)
            found[place] = min(mine, found.get(place, mine))
    return {place: text for place, (_, _, text) in sorted(found.items())}


def graph_digest(graph: "Graph") -> str:
    """Return the hash under which a network's records stand."""
    from ...compiler.graph import print_graph
    from ..sweep.records import digest_of

    return digest_of(print_graph(graph))


def recorded_schedules(
    texts: Texts, graph: "Graph", configuration: "Configuration", memory: "MemoryModel"
) -> dict[str, str]:
    """Return schedules by layer for a network on a machine with a main memory."""
    from ...isa.settings import memory_text
    from ..sweep.records import configuration_digest

    target = f"{configuration_digest(configuration)} {memory_text(memory)}"
    if all(place != target for _, place in texts):
        return {}
    found = texts.get((graph_digest(graph), target))
    return json.loads(found) if found else {}


def recorded_choices(texts: Texts) -> Mapping[str, str]:
    """Return the choices that a compilation uses, for this processor and a session's threads.

    A user's own record of a kernel replaces a shipped one. Those of all GPUs are among them, since
    only a session knows its GPU.
    """
    from ...compiler.cpu.kernels.choices import device_key
    from ...compiler.host import host_target

    gpus = {
        device_key(workload, where.removeprefix(f"{ON_GPU} ")): text
        for (workload, where), text in texts.items()
        if where.startswith(f"{ON_GPU} ")
    }
    target = host_target() if texts else None
    if target is None:
        return gpus
    threads = usable_threads()
    shipped = _choices_at(texts, target, *shipped_places(target, threads))
    return {**gpus, **shipped, **_choices_at(texts, target, target_digest(target, threads))}


def _choices_at(texts: Texts, target: "CpuTarget", *places: str) -> dict[str, str]:
    from ...compiler.cpu.kernels.choices import choice_key

    return {
        choice_key(workload, target): text
        for place in places
        for (workload, configuration), text in texts.items()
        if configuration == place
    }


def shipped_keys() -> set[str]:
    """Return the keys of choices that come from shipped schedules on this processor."""
    from ...compiler.host import host_target

    path, target = records_path(), host_target()
    if path is None or target is None:
        return set()
    threads = usable_threads()
    shipped = _choices_at(dict(shipped_texts()), target, *shipped_places(target, threads))
    own = _choices_at(_own_texts(path), target, target_digest(target, threads))
    return shipped.keys() - own.keys()


def usable_threads() -> int:
    """Return the threads that a session uses by default."""
    return len(os.sched_getaffinity(0))


def target_parameters(target: "CpuTarget", threads: int) -> Mapping[str, int | str]:
    """Return what a record's target is: the processor with all its features, and the threads."""
    from ..sweep.records import digest_of

    return {
        "kind": "cpu",
        "triple": target.triple,
        "cpu": target.cpu,
        "features": digest_of(target.features),
        "level": target.level,
        "threads": threads,
    }


def target_digest(target: "CpuTarget", threads: int) -> str:
    """Return the hash under which a target's records stand."""
    from ..sweep.records import digest_of

    return digest_of(json.dumps(dict(target_parameters(target, threads)), sort_keys=True))
