"""The machine's constants have one place; what is derived from them follows when one changes."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tilewright.isa import pipeline
from tilewright.isa.pipeline import PIPELINE
from tilewright.sim.decode import constants_header

ROOT = Path(__file__).resolve().parents[2]

CHANGES = {
    '"FETCH_BURSTS", 4,': '"FETCH_BURSTS", 3,',
    '"GEMMS_IN_FLIGHT", 4,': '"GEMMS_IN_FLIGHT", 1,',
    "READ_LATENCY + 2,": "READ_LATENCY + 4,",
    "GEMM_ARRAY_CYCLES + 2,": "GEMM_ARRAY_CYCLES + 5,",
    "WIDE_MULTIPLIER_CYCLES + 6,": "WIDE_MULTIPLIER_CYCLES + 9,",
    "READ_LATENCY + 4,": "READ_LATENCY + 5,",
}
"""Texts of `isa/pipeline.py`, and other machines' texts."""

PROBE = """
import sys
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.sim.timing.definition import Model
from tilewright.sim.timing.native import TimedProgram

configuration, memory = PRESETS["tiny"], MemoryModel(latency_cycles=9)
for seed in range(40):
    program, _ = random_program(configuration, seed)
    cycles, times = Model(program, configuration, memory).run()
    if sys.argv[1] == "engine":
        told, columns = TimedProgram(program, configuration).run(memory)
        assert cycles == told and (times == columns).all(), seed
    print(cycles, end=" ")
"""


def test_each_constant_is_told_once():
    named = {name: value for name, value in vars(pipeline).items() if isinstance(value, int)}
    assert named == {constant.name: constant.value for constant in PIPELINE}
    assert not [c for c in PIPELINE if not (c.unit and c.owner and c.meaning)]


def test_native_headers_write_no_constant_of_the_machine():
    sources = [*(ROOT / "sim").glob("*.h"), *(ROOT / "sim" / "timing").glob("*.*")]
    text = "\n".join(path.read_text() for path in sources if path.suffix in (".h", ".cpp"))
    header = dict(re.findall(r"constexpr std::int32_t (\w+) = (-?\d+);", constants_header()))
    assert {c.name: str(c.value) for c in PIPELINE}.items() <= header.items()
    written = re.findall(r"constexpr [^;{}]*;", text)
    names = Counter(name for line in written for name in re.findall(r"\b([A-Z_]{3,}) =", line))
    assert not set(header) & set(names)
    timing = [path.read_text() for path in sources if path.parent.name == "timing"]
    literals = re.findall(r"constexpr \w+ ([A-Z_]+ = \d+)", "\n".join(timing))
    assert literals == []


@pytest.mark.slow
def test_definition_and_engine_follow_a_change(tmp_path):
    package = tmp_path / "tilewright"
    for folder in ("isa", "hardware", "sim", "flows"):
        ignored = shutil.ignore_patterns("__pycache__", "assets")
        shutil.copytree(ROOT / folder, package / folder, ignore=ignored)
    for name in ("__init__.py", "errors.py"):
        shutil.copy(ROOT / name, package)
    table = package / "isa" / "pipeline.py"
    text = table.read_text()
    cycles = {}
    for old, new in CHANGES.items():
        assert text.count(old) == 1, old
        table.write_text(text.replace(old, new))
        cycles[new] = _probe(tmp_path, "definition")
    table.write_text(text)
    today = _probe(tmp_path, "engine")
    assert [new for new in cycles if cycles[new] == today] == []
    for old, new in CHANGES.items():
        text = text.replace(old, new)
    table.write_text(text)
    assert _probe(tmp_path, "engine") not in (today, *cycles.values())


def _probe(folder: Path, model: str) -> str:
    """Cycles of random programs; with `engine`, after comparing both models."""
    # A table that is changed within a second, and keeps its size, would run by its old bytecode.
    own = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, model],
        cwd=folder,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
