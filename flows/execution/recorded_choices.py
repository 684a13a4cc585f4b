"""Schedules of kernels that `tilewright tune` found, for compilations on this computer.

The records lie in the database of sweeps in the cache folder. `TILEWRIGHT_RECORDS` names another
file, or is `none`. Equal records give equal programs.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...sim.cache import cache_folder

if TYPE_CHECKING:
    from ...compiler.cpu import CpuTarget
    from ..sweep.records import Database

RECORDS_VARIABLE = "TILEWRIGHT_RECORDS"
"""The environment variable that names the database."""
NO_RECORDS = "none"
"""Its value for compilations without records."""

BEST = "cpu kernel best"
"""The evaluator of records that compilations use."""

SWEEPS, FILE = "sweeps", "records.db"
"""Folder in the cache, and name of the default database."""

Texts = dict[tuple[str, str], str]
"""Choices by the hashes of workload and target."""


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
    """Return the best choices of all workloads and targets; neither LLVM nor NumPy is loaded.

    Raises
    ------
    DatabaseError
        If the user named a file that is not a database of sweeps.
    """
    path = records_path()
    if path is None or not (path.is_file() or os.environ.get(RECORDS_VARIABLE)):
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
    for key, record in database.of_evaluator(BEST):
        ratio = record.figures.get("ratio")
        if record.error is None and isinstance(ratio, int | float) and 0 < ratio < 1:
            place, mine = (key.network, key.configuration), (float(ratio), key.digest, key.memory)
            found[place] = min(mine, found.get(place, mine))
    return {place: text for place, (_, _, text) in sorted(found.items())}


def recorded_choices(texts: Texts) -> Mapping[str, str]:
    """Return the choices for this processor and the threads of a session, for a request."""
    from ...compiler.host import host_target

    target = host_target() if texts else None
    if target is None:
        return {}
    from ...compiler.cpu.kernels.choices import choice_key

    mine = target_digest(target, usable_threads())
    return {
        choice_key(workload, target): text
        for (workload, configuration), text in texts.items()
        if configuration == mine
    }


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
