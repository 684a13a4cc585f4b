"""Results for machines: JSON to a file or to stdout."""

import json
import sys
from pathlib import Path
from typing import Any

from ..errors import UsageError


def write_json(target: str, values: Any) -> None:
    """Write JSON to a file, or to stdout where the target is `-`.

    Raises
    ------
    UsageError
        When the file cannot be written.
    """
    text = json.dumps(values, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text)
    except OSError as problem:
        raise UsageError(
            f"`--json {target}`: cannot be written, got `{problem.strerror}`; choose another path"
        ) from None
