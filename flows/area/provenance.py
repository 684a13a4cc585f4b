"""Whether measured figures are those of the RTL that stands here.

A row of the ledger has the hash of its RTL, which only elaboration tells again: some seconds for
each machine. So one hash of all sources of the hardware is kept too. While these sources stand,
every row is of this RTL. After a change, a row may be of another one, which its own hash decides.
"""

import hashlib
import json
from functools import cache
from pathlib import Path

from ...atomic_write import write_output
from ...sim.hardware_sources import ROOT, hardware_sources
from ..synthesis.devices import DEVICES, Device
from ..synthesis.rows import SynthesisRow

LEDGER, MODEL = "ledger", "model"
"""Files of rows: clocks and areas; areas that the model is fitted to."""
SOURCES = Path(__file__).with_name("measured_sources.json")
OTHER_RTL = "measured on other RTL; run `tilewright synth`"
"""What is said of a figure that the RTL here may not have."""
MAYBE_OTHER_RTL = "measured before the hardware's sources changed; run `tilewright synth`"
"""The same where the RTL was not hashed."""


@cache
def source_hash() -> str:
    """Return the hash of all sources that determine the RTL."""
    digest = hashlib.sha256()
    for path in hardware_sources():
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def is_of_this_rtl(row: SynthesisRow, kind: str, *, exact: bool = True) -> bool:
    """Whether a machine was measured on the RTL that stands here.

    Parameters
    ----------
    row
        A row of the ledger, or one that the model of the area was fitted to.
    kind
        The file of the row: `LEDGER` or `MODEL`.
    exact
        Whether to hash the RTL if the sources have changed; if not, such a row counts as another's.
    """
    return _known(kind) == source_hash() or (exact and _has_rtl(row.device, row.rtl, row))


def is_fitted_to_this_rtl(device: Device | None, *, exact: bool = True) -> bool:
    """Whether the model of the area was fitted to the RTL that stands here.

    The smallest machine on a device of its technology stands for all.
    """
    from .rows import read_rows

    rows = [
        row
        for row in read_rows()
        if device is None or DEVICES[row.device].family.technology is device.family.technology
    ]
    smallest = min(rows, key=lambda row: row.machine.tile_bytes, default=None)
    return smallest is None or is_of_this_rtl(smallest, MODEL, exact=exact)


def note_sources(kind: str) -> None:
    """Record that all rows of a file are of the RTL that stands here.

    Raises
    ------
    UsageError
        When that cannot be written.
    """
    known = {name: source_hash() if name == kind else _known(name) for name in (LEDGER, MODEL)}
    write_output(SOURCES, json.dumps(known, indent=1) + "\n", f"`{SOURCES}`")
    _known.cache_clear()


@cache
def _known(kind: str) -> str:
    return json.loads(SOURCES.read_text("utf-8"))[kind]


_found: dict[tuple[str, str], bool] = {}


def _has_rtl(device: str, rtl: str, row: SynthesisRow) -> bool:
    # Imported here: it brings the hardware description language.
    from ..synthesis.flow import core_rtlil, hash_of

    if (device, rtl) not in _found:
        _found[device, rtl] = hash_of(core_rtlil(row.machine, DEVICES[device])) == rtl
    return _found[device, rtl]
