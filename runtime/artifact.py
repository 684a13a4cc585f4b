"""Artifacts: compiled modules as single files that load without the model.

An artifact is a zip file. It contains `manifest.json` (the contents, with a SHA-256 of every other
entry), the encoded programs, the constants, the graph as text with its arrays as `.npy`, and the
machine code of the host's kernels. Nothing is pickled. Equal modules give equal bytes. Loading
verifies the graph and checks every program again. Machine code cannot be checked: it is run if this
release made it for this processor and this user's key signed it. Otherwise the kernels are compiled
again from the graph, unless the caller trusts the file.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..argument_types import checked
from ..atomic_write import write_output
from ..compiler.graph import Graph, parse_graph, print_graph, verify
from ..compiler.module import Module
from ..errors import ArtifactError, TilewrightError
from ..file_access import parse_json, read_part, reason
from ..isa.checker import check
from ..isa.configuration import CONTRACT_VERSION, Configuration
from ..isa.encoding import decode_program, encode_program
from ..isa.memory_model import MemoryModel
from ..isa.settings import memory_text, read_memory
from .archive import AGAIN, ZIP_MAGIC, pack, unpack
from .arrays import from_npy, to_npy
from .manifest import describe_segment, module_of, read_segment, take

FORMAT = "tilewright artifact"
FORMAT_VERSION = 6
"""Version of the file format; every incompatible change increments it."""

SUFFIX = ".tw"
OTHER_ARCHIVES = (".pt", ".pth", ".pt2", ".keras", ".tflite", ".npz")
"""Suffixes of models of other tools, which may begin like zip files."""
MANIFEST = "manifest.json"
GRAPH = "graph.txt"
UNFIT = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""Exceptions of operators whose attributes no importer would write."""
MAX_MESSAGE = 1000
"""Characters of a message about the content of a file."""
CODE = "code/"
"""Folder with the machine code of the host's kernels, by key."""


@checked("save", ArtifactError)
def save(module: Module, path: str | os.PathLike[str], *, level: int = 6) -> None:
    """Write a module to a file; the old file stays until the new one is complete.

    Parameters
    ----------
    module : Module
        The module that `compile_graph` returns; the file does not contain its report.
    path : str or path
        The file.
    level : int
        The compression, from 0 (none) to 9.

    Raises
    ------
    ArtifactError
        If the file cannot be written.
    """
    what = f"artifact `{path}`"
    write_output(
        Path(path), artifact_bytes(module, level=level), what, error=ArtifactError, durable=True
    )


def artifact_bytes(module: Module, *, level: int = 6) -> bytes:
    """Return the content of the file that `save` writes, with the same parameters."""
    entries = {GRAPH: print_graph(module.graph).encode()}
    for index, constant in enumerate(module.graph.constants):
        entries[_array_entry(index)] = to_npy(constant.data)
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
        "memory": memory_text(module.memory),
        "steps": list(module.steps),
        "segments": [describe_segment(segment) for segment in module.segments],
        "constants": [constant.name for constant in module.graph.constants],
        "sha256": {name: _sha256(data) for name, data in sorted(entries.items())},
    }
    if module.choices:
        manifest["choices"] = dict(module.choices)
    entries[MANIFEST] = json.dumps(manifest, indent=1, sort_keys=True).encode()
    return pack(entries, level)


@checked("load", ArtifactError)
def load(
    path: str | os.PathLike[str] | bytes,
    configuration: Configuration | None = None,
    *,
    trusted: bool = False,
    trust_code: bool = False,
) -> Module:
    """Read a module from a file.

    Parameters
    ----------
    path : str, path or bytes
        The file, or its contents.
    configuration : Configuration or None
        The configuration that will run it; None for the one that it was compiled for.
    trusted : bool
        Whether Tilewright itself wrote the file on this machine, so that its programs need no
        second check.
    trust_code : bool
        Whether to run the machine code in the file even if this user's key has not signed it. By
        default such code is compiled again, and a line on stderr says so.

    Raises
    ------
    ArtifactError
        If the file cannot be read, is damaged or not an artifact, or was built by another version
        or for another configuration.
    """
    with _explained(path):
        module = _load(_entries(path), configuration, trusted)
    return replace(module, trust_code=trust_code or trusted)


def memory_of(path: str | os.PathLike[str]) -> MemoryModel:
    """Return the main memory that an artifact's programs were made for.

    Raises
    ------
    ArtifactError
        If the file cannot be read, or is not an artifact of this version.
    """
    with _explained(path):
        return _memory(_manifest(_entries(path)))


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether a file is an artifact, by its first bytes or its suffix."""
    if Path(path).suffix.lower() in OTHER_ARCHIVES:
        return False
    try:
        return read_part(path, 0, len(ZIP_MAGIC)) == ZIP_MAGIC or Path(path).suffix == SUFFIX
    except OSError:
        return Path(path).suffix == SUFFIX


@contextmanager
def _explained(path: str | os.PathLike[str] | bytes) -> Iterator[None]:
    """Name the artifact in errors of the block."""
    where = "artifact" if isinstance(path, bytes) else f"artifact `{path}`"
    try:
        yield
    except TilewrightError as problem:
        raise ArtifactError(f"{where}: {_readable(str(problem))}") from problem
    except MemoryError:
        raise ArtifactError(
            f"{where}: its content does not fit memory; free some, or compile a smaller network"
        ) from None


def _entries(path: str | os.PathLike[str] | bytes) -> dict[str, bytes]:
    try:
        data = path if isinstance(path, bytes) else read_part(path)
    except OSError as problem:
        raise ArtifactError(
            f"expected a readable file, got `{reason(problem)}`; check the path"
        ) from None
    if not data.startswith(ZIP_MAGIC):
        raise ArtifactError(
            f"expected a file made by `tilewright compile`, got {len(data):,} bytes of another "
            "kind; compile the model first, with `tilewright compile MODEL`"
        )
    return unpack(data)


def _memory(manifest: Mapping) -> MemoryModel:
    return read_memory(take(manifest, "memory", str), "manifest: `memory`")


def _choices(manifest: Mapping) -> dict[str, str]:
    choices = manifest.get("choices", {})
    if not isinstance(choices, dict) or not all(isinstance(one, str) for one in choices.values()):
        raise ArtifactError(f"manifest: `choices`: expected texts by key, got others; {AGAIN}")
    return choices


def _readable(text: str) -> str:
    """Put a message on one line, without the middle if it repeats a long part of the file."""
    text, half = " ".join(text.split()), MAX_MESSAGE // 2
    return text if len(text) <= MAX_MESSAGE else f"{text[:half]} [...] {text[-half:]}"


def _load(
    entries: Mapping[str, bytes], configuration: Configuration | None, trusted: bool
) -> Module:
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
        module = module_of(graph, built_for, manifest, segments)
        choices = _choices(manifest)
        return replace(module, memory=_memory(manifest), code=code, choices=choices)
    except KeyError as problem:
        raise ArtifactError(f"expected an entry `{problem.args[0]}`, got none; {AGAIN}") from None


def _manifest(entries: Mapping[str, bytes]) -> dict:
    if MANIFEST not in entries:
        raise ArtifactError(
            f"expected a file made by `tilewright compile`, got a zip file without `{MANIFEST}`; "
            "compile the model first"
        )
    try:
        manifest = parse_json(entries[MANIFEST])
    except ValueError:
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
        if not isinstance(name, str):
            raise ArtifactError(f"manifest: `constants`: expected names, got {name!r:.60}")
        try:
            arrays[name] = from_npy(entries[_array_entry(index)])
        except ValueError as problem:
            raise ArtifactError(
                f"entry `{_array_entry(index)}`: expected an array, got `{problem}`; {AGAIN}"
            ) from None
    text = entries[GRAPH].decode(errors="replace")
    try:
        return verify(parse_graph(text, arrays), "artifact")
    except UNFIT as problem:
        raise ArtifactError(
            f"entry `{GRAPH}`: expected attributes that fit their operators, got "
            f"`{type(problem).__name__}: {problem}`; {AGAIN}"
        ) from problem


def _entry(segment: int, kind: str) -> str:
    return f"segments/{segment}/{kind}.bin"


def _array_entry(index: int) -> str:
    return f"graph/{index:04}.npy"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
