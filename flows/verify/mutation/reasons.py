"""Arguments why some faults in Python have no visible effect."""

import re

REASONS: tuple[tuple[str, str, str], ...] = (
    (
        r"EXACT_RUNS|`20`|`1 << 20`", r"EXACT_RUNS",
        "the limit of an exact answer: beyond it the answer is cautious, and it may lie anywhere",
    ),
    (
        r"", r"place\.low < 0 or place\.high",
        "only decides whether the exact check is made, which says the same",
    ),
    (
        r"", r"few\[0\]\.size > many\[0\]\.size",
        "which of two sets is searched in the other: speed, not results",
    ),
    (
        r"`True` becomes `False`", r"strict=True",
        "the lengths are equal by construction",
    ),
    (
        r"", r"stride == 0 or extent == 1",
        "a loop that does not move also merges into nothing further down",
    ),
    (
        r"\| \(later|^footprints: `0` becomes `1`", r"shared = |masks, places = \[0, 0\]",
        "a filter in front of the exact comparison, which may let more through",
    ),
    (
        r"", r"return 1 \+ sum\(configuration\.banks",
        "numbers of bits: any that do not overlap will do",
    ),
    (
        r"`1` becomes `2`", r"reshape\(outputs, -1\)",
        "NumPy takes any negative size as the one to find out",
    ),
    (
        r"GEMM_REVISIT_STEPS - 1`$", r"for last in range",
        "looks at more rows, in vain: their reach is not positive",
    ),
    (
        r"if True", r"elif isinstance\(instruction, Vector\)",
        "the rules of VECTOR find no such operands in other families",
    ),
    (
        r"`-?\d+` becomes", r"(?:^self\.[\w. =]+|^accepted) = -?[01]$",
        "an initial value that is replaced before it is read",
    ),
    (
        r"`62` becomes", r"NEVER = 1 << 62",
        "any number beyond all cycles will do",
    ),
    (
        r"", r"np\.full\(\(len\(self\.program\)",
        "rows beyond HALT, of which there are none in a legal program",
    ),
    (
        r"", r"lru_cache",
        "the size of a cache: speed, not results",
    ),
)  # fmt: skip
"""Pattern of the change, pattern of the line, and the argument."""


def software_reason(change: str, line: str) -> str | None:
    """Argument why a change has no visible effect, if one is known."""
    for changes, lines, text in REASONS:
        if re.search(changes, change) and re.search(lines, line):
            return text
    return None
