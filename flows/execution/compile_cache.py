"""Compiled networks, kept: the same model for the same machine is compiled once.

A kept module is an artifact in the cache folder, named after everything that it follows from: the
model's bytes and those of files that hold its tensors, the configuration, what was asked for, and
the compiler's own source. Beside it lies its report, which an artifact leaves out, with one
digest of name, artifact and report. Whatever is wrong with a kept file, or was kept under another
name, the model is compiled again.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...atomic_write import UNFINISHED_SUFFIX, write_atomically
from ...compiler.options import Options
from ...errors import ImportModelError, TilewrightError
from ...isa.configuration import Configuration
from ...sim.cache import cache_folder, kept_folder

if TYPE_CHECKING:
    from ...compiler.module import Module

ROOT = Path(__file__).parents[2]
KIND = "networks"
"""The folder inside the cache."""
SUFFIX, REPORT_SUFFIX = ".tw", ".json"
"""Of a module, and of its report."""
SOURCES = (
    *("compiler", "isa", "runtime", "sim/timing"),
    *("flows/cli/calibration_options.py", "flows/execution/quantise_model.py"),
)
"""Code that a compiled module follows from; the timing model chooses its schedules."""
CODE = (".py", ".cpp", ".h")
"""Suffixes of code."""
DAYS_KEPT = 30
"""A module that nobody asked for so long is removed."""
SECONDS_A_DAY = 24 * 60 * 60
EXTERNAL = re.compile(rb"\n\x08location\x12([\x80-\xff]*[\x00-\x7f])")
"""How an ONNX file says that a tensor lies in another file: a key, and the length of its name."""


class CompileCache:
    """Where the module of a model lies that is compiled in one way.

    Parameters
    ----------
    model
        The ONNX file, or an artifact whose network is compiled again.
    configuration
        None for an artifact's own.
    more
        What else the module follows from; printed alike where it is alike.

    Raises
    ------
    ImportModelError
        When the model cannot be read.
    """

    def __init__(
        self,
        model: Path,
        configuration: Configuration | None,
        options: Options,
        *,
        keep_all: bool,
        more: tuple[object, ...] = (),
    ) -> None:
        try:
            data = model.read_bytes()
        except OSError as problem:
            raise ImportModelError(
                f"model `{model}`: expected a readable file, got `{problem.strerror}`; check the "
                "path and its permissions"
            ) from None
        digest = hashlib.sha256(data)
        for path in _external_files(model, data):
            with contextlib.suppress(OSError), path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        machine = configuration and (configuration.name, configuration.parameters())
        asked = (machine, astuple(options), keep_all, more)
        digest.update(repr((model.stem, asked, _source_digest())).encode())
        self.configuration = configuration
        self.path = cache_folder() / KIND / f"{digest.hexdigest()[:32]}{SUFFIX}"

    def load(self) -> "Module | None":
        """The kept module with its report; None where they are not both whole."""
        from ...runtime.artifact import load

        found = self.read()
        if found is None:
            return None
        try:
            return replace(load(self.path, self.configuration, trusted=True), report=found[1])
        except TilewrightError:
            return None

    def read(self) -> tuple[bytes, dict[str, Any]] | None:
        """The kept artifact and its module's report; None where they are not both whole."""
        try:
            data = self.path.read_bytes()
            report = json.loads(self.path.with_suffix(REPORT_SUFFIX).read_text())
            if report.pop("sha256") != self._digest(data, report):
                return None
            self._touch()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return data, report

    def save(self, module: "Module") -> None:
        """Keep a module."""
        from ...runtime.artifact import save

        with contextlib.suppress(TilewrightError, OSError):
            kept_folder(KIND, "keeping compiled networks")
            save(module, self.path)
            self._describe(module.report)

    def keep(self, artifact: Path, report: Mapping[str, object]) -> None:
        """Keep a module that was written, with its report."""
        with contextlib.suppress(TilewrightError, OSError):
            kept_folder(KIND, "keeping compiled networks")
            write_atomically(self.path, artifact.read_bytes())
            self._describe(report)

    def _describe(self, report: Mapping[str, object]) -> None:
        """Keep the report beside the artifact, and forget what nobody asks for any more."""
        digest = self._digest(self.path.read_bytes(), report)
        text = json.dumps({**report, "sha256": digest})
        write_atomically(self.path.with_suffix(REPORT_SUFFIX), text.encode())
        oldest = time.time() - DAYS_KEPT * SECONDS_A_DAY
        for other in self.path.parent.iterdir():
            if (
                other.suffix in (SUFFIX, REPORT_SUFFIX, UNFINISHED_SUFFIX)
                and other.stat().st_mtime < oldest
            ):
                other.unlink()

    def _digest(self, data: bytes, report: Mapping[str, object]) -> str:
        """Of the name, the artifact and the report, which is printed alike once it was read."""
        text = json.dumps([self.path.stem, hashlib.sha256(data).hexdigest(), report])
        return hashlib.sha256(text.encode()).hexdigest()

    def _touch(self) -> None:
        """Note that the module was asked for."""
        os.utime(self.path)
        with contextlib.suppress(OSError):
            os.utime(self.path.with_suffix(REPORT_SUFFIX))


def _external_files(model: Path, data: bytes) -> Iterator[Path]:
    """Files beside a model that hold its tensors, each once; found without reading the model."""
    names = set()
    for match in EXTERNAL.finditer(data):
        length = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(match[1]))
        names.add(data[match.end() : match.end() + length])
    paths = (model.parent / os.fsdecode(name) for name in sorted(names))
    yield from (path for path in paths if path.is_file())  # no device, and nothing but a file


@cache
def _source_digest() -> str:
    digest = hashlib.sha256()
    for source in SOURCES:
        for path in sorted([ROOT / source, *(ROOT / source).rglob("*")]):
            if path.suffix in CODE:
                digest.update(f"{path.relative_to(ROOT)} ".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
