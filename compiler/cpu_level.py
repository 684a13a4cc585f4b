"""The environment variable that caps the host's level; `compiler.cpu` and LLVM are not loaded."""

import os

LEVEL_VARIABLE = "TILEWRIGHT_CPU_LEVEL"
"""The environment variable."""

NO_LEVEL = "none"
"""Its value for a machine without CPU kernels."""


def level_cap() -> str:
    """Return the level that the user set; empty if none is set."""
    return os.environ.get(LEVEL_VARIABLE, "")
