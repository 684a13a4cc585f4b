"""Compiled networks, kept: the same model for the same machine is compiled once.

A kept module is an artifact in the cache folder, named after everything that it follows from: the
model's bytes, the configuration, what was asked for, and the compiler's own source. Beside it lies
its report, which an artifact leaves out, and the artifact's digest. Whatever is wrong with a kept
file, the model is compiled again.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.options import Options
from ..errors import TilewrightError
from ..isa.configuration import Configuration
from ..sim.toolchain import cache_folder, kept_folder

if TYPE_CHECKING:
    from ..compiler.module import Module

ROOT = Path(__file__).parents[1]
KIND = "networks"
"""The folder inside the cache."""
SUFFIX, REPORT_SUFFIX = ".tw", ".json"
"""Of a module, and of its report."""
SOURCES = ("compiler", "isa", "runtime", "sim/timing")
"""Folders whose code a compiled module follows from; the timing model chooses its schedules."""
DAYS_KEPT = 30
"""A module that nobody asked for so long is removed."""
SECONDS_A_DAY = 24 * 60 * 60


class CompileCache:
    """Where the modules of one model lie.

    Parameters
    ----------
    model
        The ONNX file.
    more
        What else the module follows from; printed alike where it is alike.
    """

    def __init__(
        self,
        model: Path,
        configuration: Configuration,
        options: Options,
        *,
        keep_all: bool,
        more: tuple[object, ...] = (),
    ) -> None:
        digest = hashlib.sha256(model.read_bytes())
        asked = (configuration.name, configuration.parameters(), astuple(options), keep_all, more)
        digest.update(repr((model.stem, asked, _source_digest())).encode())
        self.configuration = configuration
        self.path = cache_folder() / KIND / f"{digest.hexdigest()[:32]}{SUFFIX}"

    def load(self) -> "Module | None":
        """The kept module; None where there is none that can be read."""
        from ..runtime.artifact import load

        try:
            module = load(self.path, self.configuration, trusted=True)
            self._touch()
        except (TilewrightError, OSError):
            return None
        return module

    def read(self) -> tuple[bytes, dict[str, Any]] | None:
        """The kept artifact and its module's report; None where they are not both whole."""
        try:
            data = self.path.read_bytes()
            report = json.loads(self.path.with_suffix(REPORT_SUFFIX).read_text())
            if report.pop("sha256") != hashlib.sha256(data).hexdigest():
                return None
            self._touch()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return data, report

    def save(self, module: "Module") -> None:
        """Keep a module."""
        from ..runtime.artifact import save

        with contextlib.suppress(TilewrightError, OSError):
            kept_folder(KIND, "keeping compiled networks")
            save(module, self.path)
            self._describe(module.report)

    def keep(self, artifact: Path, report: Mapping[str, object]) -> None:
        """Keep a module that was written, with its report."""
        with contextlib.suppress(TilewrightError, OSError):
            kept_folder(KIND, "keeping compiled networks")
            shutil.copyfile(artifact, self.path)
            self._describe(report)

    def _describe(self, report: Mapping[str, object]) -> None:
        """Keep the report beside the artifact, and forget what nobody asks for any more."""
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        text = json.dumps({**report, "sha256": digest})
        self.path.with_suffix(REPORT_SUFFIX).write_text(text)
        oldest = time.time() - DAYS_KEPT * SECONDS_A_DAY
        for other in self.path.parent.iterdir():
            if other.suffix in (SUFFIX, REPORT_SUFFIX) and other.stat().st_mtime < oldest:
                other.unlink()

    def _touch(self) -> None:
        """Note that the module was asked for."""
        os.utime(self.path)
        with contextlib.suppress(OSError):
            os.utime(self.path.with_suffix(REPORT_SUFFIX))


@cache
def _source_digest() -> str:
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)} ".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
