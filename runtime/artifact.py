"""The artifact: a compiled module as one file, loadable without the model.

A zip file of `manifest.json` (what there is, with a SHA-256 of every other entry), the encoded
programs, the constants, the graph as text with its arrays as `.npy`, and machine code of the host's
kernels; nothing is pickled. Equal modules give equal bytes. What a file says is proved again when
it is loaded: the graph is verified and the checker walks every program. Machine code cannot be
proved: it runs where it was made for this processor by this release, and like any executable only
from a source that is trusted (`load(code=False)` leaves it out and compiles it anew).
"""

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..atomic_write import write_output
from ..compiler.graph import Graph, parse_graph, print_graph, verify
from ..compiler.module import Module
from ..errors import ArtifactError, TilewrightError
from ..isa.checker import check
from ..isa.configuration import CONTRACT_VERSION, Configuration
from ..isa.encoding import decode_program, encode_program
from .archive import AGAIN, ZIP_MAGIC, pack, unpack
from .manifest import describe_segment, module_of, read_segment, take

FORMAT = "tilewright artifact"
FORMAT_VERSION = 4
"""Counts incompatible changes of the file."""

SUFFIX = ".tw"
MANIFEST = "manifest.json"
GRAPH = "graph.txt"
CODE = "code/"
"""Folder of the host kernels' machine code, by their keys."""


def save(module: Module, path: str | os.PathLike[str], *, level: int = 6) -> None:
    """Write a module; an older file of that name stays whole until the new one is.

    Parameters
    ----------
    module
        As `compile_graph` gives it; its report (times, for instance) is left out.
    path
        The file.
    level
        How hard to compress, 0 (not at all) to 9.

    Raises
    ------
    ArtifactError
        When the file cannot be written.
    """
    what = f"artifact `{path}`"
    write_output(
        Path(path), artifact_bytes(module, level=level), what, error=ArtifactError, durable=True
    )


def artifact_bytes(module: Module, *, level: int = 6) -> bytes:
    """The content of the file that `save` writes; the parameters are the same."""
    entries = {GRAPH: print_graph(module.graph).encode()}
    for index, constant in enumerate(module.graph.constants):
        entries[_array_entry(index)] = _to_npy(constant.data)
    for index, segment in enumerate(module.segments):
        entries[_entry(index, "program")] = encode_program(segment.program, module.configuration)
        entries[_entry(index, "constants")] = segment.constants
    for key, code in module.code.items():
        entries[f"{CODE}{key}.bin"] = code
    manifest = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "contract": CONTRACT_VERSION,
        "name": module.name,
        "configuration": {"name": module.configuration.name, **module.configuration.parameters()},
        "hash": f"{module.configuration.hash:#010x}",
        "steps": list(module.steps),
        "segments": [describe_segment(segment) for segment in module.segments],
        "constants": [constant.name for constant in module.graph.constants],
        "sha256": {name: _sha256(data) for name, data in sorted(entries.items())},
    }
    entries[MANIFEST] = json.dumps(manifest, indent=1, sort_keys=True).encode()
    return pack(entries, level)


def load(
    path: str | os.PathLike[str],
    configuration: Configuration | None = None,
    *,
    trusted: bool = False,
    code: bool = True,
) -> Module:
    """Read a module.

    Parameters
    ----------
    path
        The file.
    configuration
        The machine that it shall run on; the file's own if None.
    trusted
        Whether this very program wrote the file, so that undamaged bytes are enough and the
        checker need not walk the program again.
    code
        Whether to take the host kernels' machine code from the file; False compiles it anew, for a
        file from a source that is not trusted to bring executables.

    Raises
    ------
    ArtifactError
        When the file is unreadable, no artifact, damaged, of another version, or built for another
        configuration.
    """
    where = f"artifact `{path}`"
    try:
        data = Path(path).read_bytes()
    except OSError as problem:
        raise ArtifactError(
            f"{where}: expected a readable file, got `{problem.strerror}`; check the path"
        ) from None
    if not data.startswith(ZIP_MAGIC):
        raise ArtifactError(
            f"{where}: expected a file made by `tilewright compile`, got {len(data)} bytes of "
            "another kind; compile the model first"
        )
    try:
        module = _load(data, configuration, trusted)
    except TilewrightError as problem:
        raise ArtifactError(f"{where}: {problem}") from problem
    return module if code else replace(module, code={})


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether a file is meant as an artifact: by its first bytes, or else by its suffix."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC or Path(path).suffix == SUFFIX
    except OSError:
        return Path(path).suffix == SUFFIX


def _load(data: bytes, configuration: Configuration | None, trusted: bool) -> Module:
    entries = unpack(data)
    manifest = _manifest(entries)
    built_for = _configuration(manifest)
    if configuration is not None and configuration.hash != built_for.hash:
        raise ArtifactError(
            f"expected a program for configuration `{configuration.name}`, got one for "
            f"`{built_for.name}`: {built_for.differences(configuration)}; compile the model "
            "again for this configuration, or run it on its own"
        )
    _check_digests(entries, take(manifest, "sha256", dict))
    try:
        graph = _graph(entries, take(manifest, "constants", list))
        segments = []
        for index, described in enumerate(take(manifest, "segments", list)):
            program = decode_program(entries[_entry(index, "program")], built_for)
            segment = read_segment(described, program, entries[_entry(index, "constants")])
            if not trusted:
                check(program, built_for, segment.data_bytes)
            segments.append(segment)
        code = {
            name.removeprefix(CODE).removesuffix(".bin"): entry
            for name, entry in entries.items()
            if name.startswith(CODE)
        }
        return replace(module_of(graph, built_for, manifest, segments), code=code)
    except KeyError as problem:
        raise ArtifactError(f"expected an entry {problem}, got none; {AGAIN}") from None


def _manifest(entries: Mapping[str, bytes]) -> dict:
    if MANIFEST not in entries:
        raise ArtifactError(
            f"expected a file made by `tilewright compile`, got a zip file without `{MANIFEST}`; "
            "compile the model first"
        )
    try:
        manifest = json.loads(entries[MANIFEST])
    except (ValueError, RecursionError):
        raise ArtifactError(f"entry `{MANIFEST}`: expected JSON, got other text; {AGAIN}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArtifactError(
            f"entry `{MANIFEST}`: expected format `{FORMAT}`, got another one; compile the model "
            "first"
        )
    for key, name, expected in (
        ("version", "format", FORMAT_VERSION),
        ("contract", "contract", CONTRACT_VERSION),
    ):
        if manifest.get(key) != expected:
            raise ArtifactError(
                f"expected {name} version {expected}, got {manifest.get(key)}; compile the model "
                "again with this release of Tilewright"
            )
    return manifest


def _configuration(manifest: Mapping) -> Configuration:
    configuration = Configuration.from_dict(take(manifest, "configuration", dict), "manifest")
    stated = take(manifest, "hash", str)
    if stated != f"{configuration.hash:#010x}":
        raise ArtifactError(
            f"manifest: expected configuration hash `{configuration.hash:#010x}`, got `{stated}`; "
            f"{AGAIN}"
        )
    return configuration


def _check_digests(entries: Mapping[str, bytes], digests: Mapping[str, object]) -> None:
    for name in sorted({*entries, *digests} - {MANIFEST}):
        expected = digests.get(name, "none")
        got = _sha256(entries[name]) if name in entries else "none"
        if expected != got:
            raise ArtifactError(
                f"entry `{name}`: expected SHA-256 `{str(expected)[:12]}`, got `{got[:12]}`; the "
                f"file is damaged: {AGAIN}"
            )


def _graph(entries: Mapping[str, bytes], names: list) -> Graph:
    arrays = {}
    for index, name in enumerate(names):
        try:
            arrays[name] = np.load(io.BytesIO(entries[_array_entry(index)]), allow_pickle=False)
        except (ValueError, EOFError, TypeError) as problem:
            raise ArtifactError(
                f"entry `{_array_entry(index)}`: expected an array, got `{problem}`; {AGAIN}"
            ) from None
    return verify(parse_graph(entries[GRAPH].decode(errors="replace"), arrays), "artifact")


def _entry(segment: int, kind: str) -> str:
    return f"segments/{segment}/{kind}.bin"


def _array_entry(index: int) -> str:
    return f"graph/{index:04}.npy"


def _to_npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
