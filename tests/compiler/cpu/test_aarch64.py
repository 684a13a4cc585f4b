"""Another instruction set is a table and a level: code for AArch64, compiled and looked at."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright
from tilewright.compiler.cpu import (
    LEVELS,
    Convolution,
    CpuTarget,
    Epilogue,
    HeadProduct,
    LayerNormalisation,
    Requantisation,
    RowSoftmax,
    generic,
    target,
)
from tilewright.compiler.cpu.codegen.machine_code import assemble
from tilewright.compiler.cpu.execution.kernel import ENTRY, lower_description
from tilewright.compiler.cpu.execution.pool_code import pool_code
from tilewright.compiler.cpu.execution.stored_code import check_object
from tilewright.compiler.cpu.instructions import (
    Architecture,
    Intrinsic,
    Level,
    RegisterTile,
    dot_product,
)
from tilewright.errors import CompileError

from .arrays import Bytes, with_bytes
from .assembly import assembly_of

DISTANCE, PAGE, IN_PAGE = 261, 275, 277
"""Relocations: the distance of an address, that of its page, and its place there."""

AARCH64 = Architecture(
    name="AArch64",
    triple="aarch64",
    machine=183,
    relocations=dict.fromkeys((DISTANCE, PAGE, IN_PAGE), 4),
    futex=98,
    pause=Intrinsic("llvm.aarch64.hint", ((32, 1),)),
)
SDOT = dot_product("sdot", 4, 4, (("int8", "int8"),), "llvm.aarch64.neon.sdot.v4i32.v16i8")
WORDS = replace(
    dot_product("words", 4, 2, (("int16", "int16"), ("int16", "int8"))), element="int16", adds=False
)
"""No instruction has this law; LLVM makes several."""
NEON = Level(
    *(AARCH64, ("neon", "dotprod"), "cortex-a76", 4, 32),
    RegisterTile(rows=8, rows_alone=8, rows_of_bytes=8, vectors=24),
    (SDOT, WORDS),
)

LAYER = Convolution(1, 30, 30, 16, 16, (3, 3), (2, 2), winograd=False)
BYTES, UNSIGNED = (
    with_bytes(LAYER, Bytes(kind, 3, Requantisation(kind))) for kind in ("int8", "uint8")
)
HEADS = HeadProduct(
    *(1, 2, 16, 32, 24), dtype="int8", zero_points=(3, -5), epilogue=Epilogue("sum", "int32")
)
CASES = {
    "floats": LAYER,
    "bytes": BYTES,
    "unsigned bytes": UNSIGNED,
    "heads": HEADS,
    "rows": LayerNormalisation(5, 70),
    "powers": RowSoftmax(9, 33),
}


@pytest.fixture
def neon(monkeypatch: pytest.MonkeyPatch) -> CpuTarget:
    monkeypatch.setattr(target, "LEVELS", {**LEVELS, "neon": NEON})
    return generic("neon")


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_objects_that_the_loader_accepts(neon: CpuTarget, name: str) -> None:
    _, lowered = lower_description(CASES[name], neon)
    code = assemble(lowered.text, neon, "test")
    check_object(code, ENTRY, AARCH64)
    with pytest.raises(CompileError, match="another format than an ELF object file for x86-64"):
        check_object(code, ENTRY, LEVELS["sse2"].architecture)


def test_relocations_of_another_architecture_are_refused(neon: CpuTarget) -> None:
    code = assemble(lower_description(CASES["floats"], neon)[1].text, neon, "test")
    other = replace(AARCH64, relocations=LEVELS["sse2"].architecture.relocations)
    with pytest.raises(CompileError, match="an unknown relocation"):
        check_object(code, ENTRY, other)


def test_sums_of_products_are_the_table_s_instructions(neon: CpuTarget) -> None:
    found = {
        name: Counter(re.findall(r"^\t(fmla|sdot|smull)\tv\d+\.4s", code, re.MULTILINE))
        for name in ("floats", "bytes", "unsigned bytes", "heads")
        for code in [assembly_of(lower_description(CASES[name], neon)[1].text, neon)]
    }
    assert found["floats"].keys() == {"fmla"}
    assert found["bytes"].keys() == found["heads"].keys() == {"sdot"}
    assert found["unsigned bytes"].keys() == {"smull"}


def test_threads_wait_by_the_architecture_s_means(neon: CpuTarget) -> None:
    code = assembly_of(pool_code(AARCH64), neon)
    assert re.search(r"\tyield\n", code)
    assert re.search(r"\tmov\tw0, #98\b", code)


def test_messages_name_all_architectures(neon: CpuTarget) -> None:
    assert target.architectures() == "x86-64 or AArch64"


def test_only_the_table_names_instructions_of_x86() -> None:
    root = Path(tilewright.__file__).parent
    folders = (root / name for name in ("compiler", "flows", "runtime"))
    files = (file for folder in folders for file in folder.rglob("*.py"))
    named = [file.name for file in files if "llvm.x86" in file.read_text("utf-8")]
    assert named == ["x86.py"]
