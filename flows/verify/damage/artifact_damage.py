"""Damage to artifacts by an attacker who recomputes every checksum, but has not the user's key.

The damage is general: every JSON value, every token of a text and every byte of an entry may
change. Checksums are recomputed afterwards, so that a change reaches the code behind them. The seed
determines everything.
"""

import hashlib
import io
import json
import random
import re
import warnings
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ....compiler.cpu.execution.stored_code import MAGIC
from ....compiler.graph import Constant
from ....errors import ArtifactError, TilewrightError
from ....isa.configuration import Configuration
from ....runtime.archive import EPOCH, unpack
from ....runtime.arrays import from_npy
from ....runtime.artifact import CODE, GRAPH, MANIFEST
from .byte_damage import BYTES

INTEGERS = (
    *(-(2**70), -(2**63), -(2**31), -129, -1, 0, 1, 2, 3, 7, 128, 2**12, 2**16, 2**20, 2**28),
    *(2**31 - 1, 2**31, 2**32, 2**40, 2**53, 2**63 - 1, 2**63, 2**64, 2**70),
)  # fmt: skip
"""Unusual integers for every field and every number in a text."""

WORDS = (
    *("", "0", "-1", "nan", "inf", "-inf", "1e999", "1e-45", "True", "None", "''", "b''", "\0"),
    *("%", '"', "{", "}", "(", "[", ",", "\\", "\n", "...", "é", "int8", "float32", "bool"),
    *("object", "int4", "bfloat16", "float64", "|O", "<U4", "<f4", "V1", "lambda: 0"),
)  # fmt: skip
"""Unusual words for every token of a text."""

TOKEN = re.compile(r'-?\d+(?:\.\d+)?(?:e-?\d+)?|\w+|"(?:[^"\\\n]|\\.)*"|\S')
"""A number, a word, a quoted text or a sign."""

PLACEHOLDER = "\ue000{}\ue000"
DEEP: tuple[str, ...] = (
    *("[" * 100_000 + "]" * 100_000, "[" * 900 + "]" * 900, '{"a":' * 5000 + "1" + "}" * 5000),
    *("9" * 5000, "9" * 400, "-" * 5000 + "1", "(" * 200 + ")" * 200, "NaN", "Infinity", "1e400"),
)  # fmt: skip
"""Texts that JSON or Python would not write, but might read."""

Entries = dict[str, bytes]


def trusts(seed: int) -> bool:
    """Whether the artifact of a seed is run as one whose code is trusted.

    Machine code that is trusted runs unchecked, so it is not damaged; all that describes it is.
    """
    return seed % 4 == 3


def damaged_artifact(given: Sequence[bytes], seed: int) -> bytes:
    """Return one of several artifacts with one to three kinds of damage.

    Parameters
    ----------
    given
        Good artifacts.
    seed
        The same seed damages the same artifact in the same way.
    """
    with warnings.catch_warnings(action="ignore"):  # of odd literals, and of names that repeat
        return _damaged(random.Random(seed), given, fixed_code=trusts(seed))


def _damaged(chance: random.Random, given: Sequence[bytes], *, fixed_code: bool) -> bytes:
    data = chance.choice(given)
    if chance.random() < 0.05:
        return chance.choice(BYTES)(chance, data)
    entries, other = unpack(data), unpack(chance.choice(given))
    more: list[tuple[str, bytes]] = []
    for _ in range(min(chance.choice((0, 1, 1, 1, 2, 3)), len(entries) - 1)):
        _damage_entry(chance, entries, other, more, fixed_code=fixed_code)
    if chance.random() < 0.2:
        _change_everywhere(chance, entries)
    _recompute_digests(entries)
    if not entries.get(MANIFEST) or chance.random() < 0.5:
        return _zipped(entries, more)
    with suppress(ValueError, RecursionError):
        entries[MANIFEST] = _change_manifest(chance, json.loads(entries[MANIFEST]))
    return _zipped(entries, more)


def _damage_entry(
    chance: random.Random,
    entries: Entries,
    other: Entries,
    more: list[tuple[str, bytes]],
    *,
    fixed_code: bool,
) -> None:
    """Change one entry, of a kind chosen first, so that many arrays do not hide the one graph."""
    folders = sorted({_kind(name) for name in entries})
    kind = chance.choice(folders)
    name = chance.choice([name for name in sorted(entries) if _kind(name) == kind])
    action = chance.random()
    if action < 0.05:
        del entries[name]
    elif action < 0.1:
        more.append((name, entries[name]))
        entries[name] = _changed(chance, name, entries[name], fixed_code=fixed_code)
    elif action < 0.15 and not (fixed_code and kind == CODE):
        entries[chance.choice(sorted(entries))] = entries[name]
    elif action < 0.25 and name in other:
        entries[name] = other[name]
    elif action < 0.28:
        entries[chance.choice((f"../{name}", f"/{name}", f"{name}\0", "é", "a" * 60000))] = b"1"
    else:
        entries[name] = _changed(chance, name, entries[name], fixed_code=fixed_code)


def _kind(name: str) -> str:
    """Folder, or suffix, of an entry."""
    return CODE if name.startswith(CODE) else name.rpartition("/")[2].lstrip("0123456789")


def _change_everywhere(chance: random.Random, entries: Entries) -> None:
    """Replace a number or a word of the graph in all texts, so that they still agree."""
    tokens = re.findall(r"\w+", entries.get(GRAPH, b"").decode(errors="replace")) or ["1"]
    old = chance.choice(tokens)
    new = str(_odd_integer(chance, old)) if old.isdigit() else chance.choice(tokens)
    word = re.compile(rf"(?<![\w.-]){re.escape(old)}(?![\w.])".encode())
    for name in (GRAPH, MANIFEST):
        if name in entries:
            entries[name] = word.sub(new.encode(), entries[name])
    for name, data in entries.items():
        if name.endswith(".npy"):
            size = 10 + int.from_bytes(data[8:10], "little")
            text = word.sub(new.encode(), data[10:size])[: 2**16 - 1]
            entries[name] = data[:8] + len(text).to_bytes(2, "little") + text + data[size:]


def _changed(chance: random.Random, name: str, data: bytes, *, fixed_code: bool) -> bytes:
    """Change the content of an entry in a way that fits its kind, or in any way."""
    is_code = name.startswith(CODE)
    with suppress(ValueError, RecursionError):  # it was damaged before
        if is_code and (fixed_code or chance.random() < 0.5):
            return _change_kernel(chance, data)
        if name == MANIFEST:
            return _change_manifest(chance, json.loads(data))
        if name == GRAPH and chance.random() < 0.95:
            return change_text(chance, data.decode(errors="replace")).encode(errors="replace")
        if name.endswith(".npy") and chance.random() < 0.6:
            return _change_header(chance, data)
    return chance.choice(BYTES)(chance, data) if data and not (is_code and fixed_code) else data


def change_text(chance: random.Random, text: str) -> str:
    """Change a token, mostly a number, or a line."""
    if chance.random() < 0.15:
        return _change_lines(chance, text)
    tokens = list(TOKEN.finditer(text))
    numbers = [token for token in tokens if token[0].lstrip("-")[:1].isdigit()]
    if not tokens:
        return chance.choice(WORDS)
    token = chance.choice(numbers if numbers and chance.random() < 0.6 else tokens)
    action = chance.random()
    if action < 0.4:
        new = str(_odd_integer(chance, token[0]))
    elif action < 0.7:
        new = chance.choice(tokens)[0]
    elif action < 0.9:
        new = chance.choice(WORDS)
    else:
        new = chance.choice(DEEP)
    return text[: token.start()] + new + text[token.end() :]


def _change_lines(chance: random.Random, text: str) -> str:
    lines = text.split("\n")
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    action = chance.random()
    if action < 0.3:
        del lines[at]
    elif action < 0.6:
        lines.insert(other, lines[at])
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


def _odd_integer(chance: random.Random, old: object) -> int:
    """An unusual integer, or one near the old one."""
    near = None
    with suppress(ValueError, TypeError):
        near = int(str(old))
    if near is None or chance.random() < 0.5:
        return chance.choice(INTEGERS)
    return chance.choice((near - 1, near + 1, -near, 2 * near, near // 2, near + 64, near << 8))


def _change_header(chance: random.Random, data: bytes) -> bytes:
    """Change the text in which an array describes its elements and its shape."""
    size = int.from_bytes(data[8:10], "little")
    text = change_text(chance, data[10 : 10 + size].decode(errors="replace")).encode()[: 2**16 - 1]
    return data[:8] + len(text).to_bytes(2, "little") + text + data[10 + size :]


def _change_kernel(chance: random.Random, data: bytes) -> bytes:
    """Change the header of machine code; its mark no longer holds."""
    _, _, rest = data.removeprefix(MAGIC).partition(b"\n")
    mark, _, rest = rest.partition(b"\n")
    text, _, code = rest.partition(b"\n")
    header = _change_json(chance, json.loads(text)).encode(errors="surrogatepass")
    rest = header + b"\n" + code
    return MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + mark + b"\n" + rest


def _change_manifest(chance: random.Random, manifest: dict[str, Any]) -> bytes:
    """Change a value, and give the machine the hash that belongs to it."""
    text = _change_json(chance, manifest)
    with suppress(ValueError, RecursionError, TypeError, KeyError, TilewrightError):
        found = json.loads(text)
        machine = Configuration.from_dict(found["configuration"], "manifest")
        if found["hash"] == manifest.get("hash") and chance.random() < 0.9:
            text = text.replace(found["hash"], f"{machine.hash:#010x}")
    return text.encode(errors="surrogatepass")


def _change_json(chance: random.Random, tree: Any) -> str:
    """Change a value of a tree; the text of the tree, since not every change can be a value."""
    parent, key = _place(chance, tree)
    if parent is None:
        return json.dumps(tree)
    old, action = parent[key], chance.random()
    if action < 0.05:
        del parent[key]
    elif action < 0.15 and isinstance(parent, list):
        parent.insert(key, old)
    elif action < 0.3:
        elsewhere, place = _place(chance, tree)
        parent[key] = elsewhere[place] if elsewhere is not None else None
    elif (action < 0.75 and isinstance(old, int)) or action < 0.4:
        parent[key] = _odd_integer(chance, old)
    elif action < 0.85:
        parent[key] = chance.choice((None, True, [], {}, [[]], 0.5, -0.0, [0], {"": 0}, "\ud800"))
    elif action < 0.95:
        parent[key] = chance.choice(WORDS)
    else:
        index = chance.randrange(len(DEEP))
        parent[key] = PLACEHOLDER.format(index)
        return json.dumps(tree).replace(json.dumps(parent[key]), DEEP[index])
    try:
        return json.dumps(tree)
    except (ValueError, RecursionError):  # the tree now contains itself
        return json.dumps(None)


def _place(chance: random.Random, tree: Any) -> tuple[Any, Any]:
    """A place in a tree, found by going down at random, so that long lists hide nothing."""
    parent, key = None, None
    while isinstance(tree, dict | list) and tree:
        parent = tree
        keys = sorted(tree) if isinstance(tree, dict) else list(range(len(tree)))
        nested = [key for key in keys if isinstance(tree[key], dict | list)]
        key = chance.choice(nested if nested and chance.random() < 0.6 else keys)
        tree = parent[key]
        if chance.random() < 0.15:
            break
    return parent, key


def _recompute_digests(entries: Entries) -> None:
    """Let all checksums fit: those of constants in the graph, and those of entries."""
    try:
        manifest = json.loads(entries[MANIFEST])
        _recompute_constants(entries, manifest["constants"])
        manifest["sha256"] = {
            name: hashlib.sha256(data).hexdigest()
            for name, data in entries.items()
            if name != MANIFEST
        }
        entries[MANIFEST] = json.dumps(manifest).encode(errors="surrogatepass")
    except (KeyError, TypeError, ValueError, RecursionError):
        return


def _recompute_constants(entries: Entries, names: Sequence[str]) -> None:
    text = entries.get(GRAPH, b"").decode(errors="replace")
    for index, name in enumerate(names):
        with suppress(ValueError, ArtifactError):
            array = from_npy(entries.get(f"graph/{index:04}.npy", b""))
            line = re.compile(rf'(constant %"?{re.escape(str(name))}"? : .* digest )\w+')
            text = line.sub(rf"\g<1>{Constant(name, array).digest}", text)
    if GRAPH in entries:
        entries[GRAPH] = text.encode(errors="replace")


def _zipped(entries: Entries, more: Sequence[tuple[str, bytes]]) -> bytes:
    """A zip file, in which names may occur twice."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in (*more, *sorted(entries.items())):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data)
    return buffer.getvalue()
