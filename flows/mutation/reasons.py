"""Why some faults in Python change nothing that can be seen."""

import re

REASONS: tuple[tuple[str, str, str], ...] = (
    (
        r"EXACT_RUNS|`20`|`1 << 20`", r"EXACT_RUNS",
        "the limit of an exact answer: beyond it the answer is cautious, and it may lie anywhere",
    ),
    (
        r"", r"lru_cache",
        "the size of a cache: speed, not results",
    ),
)  # fmt: skip
"""Pattern of the change, pattern of the line, and the argument."""


def software_reason(change: str, line: str) -> str | None:
    """Why a change cannot be seen, if that is known."""
    for changes, lines, text in REASONS:
        if re.search(changes, change) and re.search(lines, line):
            return text
    return None
