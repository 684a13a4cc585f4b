"""Short names for nodes and layers, which exporters name by long paths."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

JOINT = " + "
"""Stands between the nodes of a fused layer."""

WEIGHT = re.compile(r"/ReadVariableOp\b.*")
"""End of a weight's path in TensorFlow; the node's path comes before it."""

MAX_LISTED = 8


def short_name(name: str, parts: int = 2) -> str:
    """Return the last parts of the last path in a name that an exporter joined with `;`.

    The short name of a fused layer has those of its nodes, without operators if they differ.
    """
    shorts = ["/".join(_path(part).split("/")[-parts:]) for part in name.split(JOINT)]
    owners = [without_operator(short) for short in shorts]
    fused = len(shorts) > 1 and len(set(owners)) == len(owners)
    return JOINT.join(owners if fused else shorts)


def _path(name: str) -> str:
    return WEIGHT.sub("", name.rsplit(";", 1)[-1]).strip("/")


def short_names(names: Sequence[str]) -> list[str]:
    """Return the short form of each name, or the whole name where several have that form."""
    shorts = [short_name(name) for name in names]
    counts = Counter(shorts)
    return [s if counts[s] == 1 else name for s, name in zip(shorts, names, strict=True)]


def unique_short_names(names: Sequence[str]) -> list[str]:
    """Return a short form of each name, with as many parts of its path as tell it from all others.

    Names of one path are numbered.
    """
    shorts = [short_name(name) for name in names]
    same = Counter(names)
    growing = {at for at, name in enumerate(names) if same[name] == 1}
    parts = 2
    while growing:
        parts += 1
        counts = Counter(shorts)
        longer = {at: short_name(names[at], parts) for at in growing if counts[shorts[at]] > 1}
        growing = {at for at, text in longer.items() if text != shorts[at]}
        for at, text in longer.items():
            shorts[at] = text
    return numbered(shorts)


def numbered(names: Iterable[str]) -> list[str]:
    """Number the names that occur again: `conv`, `conv#2`."""
    taken = Counter[str]()
    found = []
    for name in names:
        taken[name] += 1
        found.append(name if taken[name] == 1 else f"{name}#{taken[name]}")
    return found


def without_operator(short: str) -> str:
    """Remove the operator after the last slash from a short name."""
    return short if JOINT in short or "/" not in short else short.rpartition("/")[0]


def denotes(wanted: str, name: str) -> bool:
    """Whether a word is a name, its short form, or the end of its path, also without operator."""
    path = _path(name)
    ends = (f"/{path}", f"/{path.rpartition('/')[0]}")
    return wanted in (name, short_name(name)) or (
        bool(wanted) and any(end.endswith(f"/{wanted}") for end in ends)
    )


def listed_names(names: Iterable[str]) -> str:
    """Return the first names of a list for a message, in their short forms."""
    shorts = short_names(list(dict.fromkeys(names)))
    more = len(shorts) - MAX_LISTED
    listed = ", ".join(f"`{short}`" for short in shorts[:MAX_LISTED])
    return f"{listed} and {more} more" if more > 0 else listed or "none"


def similar_names(wanted: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: similar ones, or some that exist."""
    words = [without_operator(short_name(name)) for name in names]
    by_lower, text = {word.lower(): word for word in words}, wanted.lower()
    near = [word for word in by_lower if text and text in word]
    near = near or get_close_matches(text, by_lower, 3, cutoff=0.6)
    if near:
        near.sort(key=lambda word: (not word.startswith(text), len(word)))
        return f"; did you mean {listed_names(by_lower[word] for word in near)}?"
    return f"; choose one of {listed_names(words)}"
