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


def short_name(name: str) -> str:
    """Return the last two parts of the last path in a name that an exporter joined with `;`.

    The short name of a fused layer has those of its nodes, without operators if they differ.
    """
    shorts = ["/".join(_path(part).rsplit("/", 2)[-2:]) for part in name.split(JOINT)]
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


def without_operator(short: str) -> str:
    """Remove the operator after the slash from a short name."""
    return short if JOINT in short else short.split("/", 1)[0]


def denotes(wanted: str, name: str) -> bool:
    """Whether a word is a name, its short form, or the short form without the operator."""
    short = short_name(name)
    return wanted in (name, short, without_operator(short))


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
