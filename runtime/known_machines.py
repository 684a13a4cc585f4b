"""Machines by the hash that a board tells: presets, and those built or served on this computer."""

import json

from ..atomic_write import write_atomically
from ..errors import ConfigurationError
from ..file_access import read_json
from ..isa.configuration import PRESETS, Configuration
from ..sim.cache import cache_folder, kept_folder, saying_why_not

MACHINES = "machines"
"""Subfolder of the cache with a file of parameters for each machine."""


def remember_machine(configuration: Configuration) -> None:
    """Keep the parameters of a machine that a board will hold; presets are known anyway."""
    if machine_of(configuration.hash) is None:
        with saying_why_not():
            path = kept_folder(MACHINES, "boards") / f"{configuration.hash:08x}.json"
            write_atomically(path, json.dumps(configuration.to_dict(), indent=2).encode())


def machine_of(told: int) -> Configuration | None:
    """Return the machine with this hash; None if it was neither built nor served here."""
    preset = next((each for each in PRESETS.values() if each.hash == told), None)
    if preset is not None:
        return preset
    path = cache_folder() / MACHINES / f"{told:08x}.json"
    try:
        kept = Configuration.from_dict(read_json(path))
    except (OSError, ValueError, ConfigurationError):
        return None
    return kept if kept.hash == told else None


def machine_text(told: int) -> str:
    """Return the name of the machine with this hash, if it is known here, and the hash."""
    known = machine_of(told)
    return f"`{known.name}` ({told:#010x})" if known else f"{told:#010x}"
