"""Short names of nodes, whose names exporters make of long paths."""

import re
from collections import Counter
from collections.abc import Sequence

WEIGHT = re.compile(r"/ReadVariableOp\b.*")
"""End of a weight's path in TensorFlow; the node's path comes before it."""


def short_name(name: str) -> str:
    """Return the last two parts of the last path in a name that an exporter joined with `;`."""
    path = WEIGHT.sub("", name.rsplit(";", 1)[-1]).strip("/")
    return "/".join(path.rsplit("/", 2)[-2:])


def short_names(names: Sequence[str]) -> list[str]:
    """Return the short form of each name, or the whole name where several have that form."""
    shorts = [short_name(name) for name in names]
    counts = Counter(shorts)
    return [s if counts[s] == 1 else name for s, name in zip(shorts, names, strict=True)]


def without_operator(short: str) -> str:
    """Remove the operator after the slash from a short name."""
    return short.split("/", 1)[0]


def denotes(wanted: str, name: str) -> bool:
    """Whether a word is a name, its short form, or the short form without the operator."""
    short = short_name(name)
    return wanted in (name, short, without_operator(short))
