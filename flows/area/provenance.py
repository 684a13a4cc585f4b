"""Provenance of measured figures: the RTL that stands here, or another one.

A row of the ledger has the hash of its RTL, which only elaboration tells again: some seconds for
each machine. So one hash of all sources of the hardware is kept too, which `synth --ledger` renews
once it has compared the RTL of every row.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ...atomic_write import write_output
from ...isa.configuration import OPTIONS, Configuration
from ...sim.hardware_sources import ROOT, hardware_sources

LEDGER, MODEL = "ledger", "model"
"""Files of rows: clocks and areas; areas that the model is fitted to."""
FIGURES = {"clock_mhz": LEDGER} | dict.fromkeys(("multipliers", "ram", "lut", "ff", "gates"), MODEL)
"""The file behind each figure; the arithmetic of blocks was checked with those of the model."""
SOURCES = Path(__file__).with_name("measured_sources.json")
OTHER_SOURCES = (
    "measured before the hardware's sources changed; `tilewright synth --config NAME --chip CHIP` "
    "measures again"
)
"""Note beside a figure that the RTL here may not have."""


def unmeasured_options(configurations: Iterable[Configuration]) -> tuple[str, ...]:
    """Return the options of machines that no machine of the model has: estimates leave them out."""
    used = {name for one in configurations for name in one.parameters() if name in OPTIONS}
    return tuple(sorted(used - _measured_options())) if used else ()


@cache
def _measured_options() -> frozenset[str]:
    from .rows import read_rows  # with the hardware, which a short answer does without

    return frozenset(name for row in read_rows() for name in row.parameters)


@cache
def source_hash() -> str:
    """Return the hash of all sources that determine the RTL."""
    digest = hashlib.sha256()
    for path in hardware_sources():
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def is_of_these_sources(kind: str) -> bool:
    """Whether the rows of a file, `LEDGER` or `MODEL`, were measured with the sources here."""
    return _known(kind) == source_hash()


def outdated(names: Iterable[str]) -> list[str]:
    """Return the names of figures that were measured before the hardware's sources changed."""
    return sorted(
        name for name in names if name in FIGURES and not is_of_these_sources(FIGURES[name])
    )


def outdated_sentences(names: Iterable[str]) -> list[str]:
    """Return a sentence that lists the outdated figures, or nothing if there are none.

    Parameters
    ----------
    names
        Names of figures; those that are not in `FIGURES` are ignored.
    """
    found = outdated(names)
    words = [name.removesuffix("_mhz").replace("_", " ") for name in found]
    return [f"figures of machines {OTHER_SOURCES}: {', '.join(words)}"] if found else []


def note_sources(kind: str) -> None:
    """Record that all rows of a file are of the RTL that stands here.

    Raises
    ------
    UsageError
        When that cannot be written.
    """
    known = {name: source_hash() if name == kind else _known(name) for name in (LEDGER, MODEL)}
    write_output(SOURCES, json.dumps(known, indent=1) + "\n", f"`{SOURCES}`")


def _known(kind: str) -> str:
    return json.loads(SOURCES.read_text("utf-8"))[kind]
