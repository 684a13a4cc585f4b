"""The operators that the user registered; `register_operator` fills the table.

Apart from it, so that commands that find their network in the cache load no graph.
"""

from typing import Any

REGISTERED: dict[tuple[str, str], Any] = {}
"""(domain, name) -> `RegisteredFunction` or `RegisteredKernel`."""


def registered_key() -> tuple[object, ...] | None:
    """Return what a model's meaning depends on beside its file; () if nothing is registered.

    None if that is not known before the model is imported: functions that make kernels are code.
    """
    keys = [(name, found.key) for name, found in sorted(REGISTERED.items())]
    return None if any(key is None for _, key in keys) else tuple(keys)
