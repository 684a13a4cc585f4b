"""Levels of the processor: what is found, how it is capped, and which instructions code has.

Instructions are counted for every level, so that code for a processor that is not at hand is at
least compiled and looked at.
"""

import re
from collections import Counter
from dataclasses import replace

import pytest

from tilewright.compiler.cpu import (
    LEVELS,
    Convolution,
    Description,
    LayerNormalisation,
    MatrixProduct,
    Requantisation,
    RowSoftmax,
    compile_kernel,
    generic,
    host,
    host_levels,
    target,
)
from tilewright.compiler.cpu.codegen.machine_code import assemble
from tilewright.compiler.cpu.execution.kernel import lower_description
from tilewright.compiler.cpu.kernels.direct_convolution import DirectPlanner
from tilewright.compiler.cpu.kernels.matrix_product import MatrixPlanner
from tilewright.compiler.cpu.kernels.tiles import UNROLLED
from tilewright.compiler.cpu_level import LEVEL_VARIABLE
from tilewright.compiler.host import host_target
from tilewright.errors import CompileError, ProcessorError, UsageError

from .arrays import Bytes, with_bytes
from .assembly import assembly_of

TILE = Convolution(1, 2400, 6, 16, 16, (1, 1), (2, 2))
"""Rows of three pixels, sixteen channels: a row of pixels is one tile. Threads share the rows."""

BYTES = with_bytes(TILE, Bytes("uint8", 0, Requantisation()))
WORDS = Convolution(
    1,
    28,
    28,
    64,
    64,
    (3, 3),
    pads=(1, 1, 1, 1),
    dtype="int8",
    epilogue=Requantisation("int8").epilogue(),
    narrow=True,
)


def body_of(description: Description, level: str) -> str:
    """Assembly of the bodies of a kernel's parallel loops; it becomes an object file as well."""
    processor = generic(level)
    _, lowered = lower_description(description, processor)
    assert assemble(lowered.text, processor, "test").startswith(b"\x7fELF")
    return assembly_of(lowered.text, processor).partition('"body')[2]


def instructions(description: Description, level: str) -> Counter[str]:
    """How often each instruction occurs there, together with its widest registers."""
    found = re.findall(r"^\t(?:{vex}\t)?(\w+)\t(.*)$", body_of(description, level), re.MULTILINE)
    widths = [max(re.findall(r"%([xyz]mm)", operands), default="") for _, operands in found]
    pairs = zip(found, widths, strict=True)
    return Counter(f"{name} {width}".strip() for (name, _), width in pairs)


@pytest.mark.parametrize(
    ("level", "product", "count"),
    [
        ("avx512vnni", "vpdpbusd zmm", 3),
        ("avxvnni", "vpdpbusd ymm", 6),
        ("avx2", "vpmaddwd ymm", 6),
        ("sse2", "pmaddwd xmm", 6),
    ],
)
def test_bytes_are_multiplied_by_dot_products(level: str, product: str, count: int) -> None:
    """One for each of a tile's three pixels and one or two vectors of output channels."""
    found = instructions(BYTES, level)
    assert found[product] == count
    assert not any(name.startswith(("vpmulld", "pmulld", "pmuludq")) for name in found)


@pytest.mark.parametrize(("dtype", "product"), [("uint8", "tdpbusd"), ("int8", "tdpbssd")])
def test_matrices_of_bytes_are_multiplied_on_tiles(dtype: str, product: str) -> None:
    """A step multiplies two tiles of rows by two of columns, and loads each of the four once."""
    layer = MatrixProduct(256, 1024, 256, dtype, Requantisation(dtype).epilogue())
    found = re.findall(r"^\t(tile\w+|td\w+|ldtilecfg)\b", body_of(layer, "amx"), re.MULTILINE)
    steps = {product: 4, "tileloadd": 4, "tilezero": 4, "tilestored": 4}
    assert Counter(found) == {"ldtilecfg": 1, **steps, "tilerelease": 1}


@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_are_multiplied_as_vectors(rows: int) -> None:
    product = MatrixProduct(rows, 1024, 256, "uint8", Requantisation().epilogue())
    found = instructions(product, "amx")
    assert found["vpdpbusd zmm"]
    assert not any(name.startswith("td") for name in found)


def test_small_weights_take_half_the_products_on_avx2() -> None:
    found = instructions(replace(BYTES, small_pairs=True), "avx2")
    assert found["vpmaddubsw ymm"] == found["vpmaddwd ymm"] == 6


@pytest.mark.parametrize(
    ("level", "products", "count"),
    [
        ("avx512vnni", ("vpdpwssd zmm", "vpmaddwd zmm"), 28),
        ("avxvnni", ("vpdpwssd ymm", "vpmaddwd ymm"), 7),
        ("avx2", ("vpmaddwd ymm",), 7),
        ("sse2", ("pmaddwd xmm",), 7),
    ],
)
def test_words_are_multiplied_by_dot_products(
    level: str, products: tuple[str, ...], count: int
) -> None:
    """Products of byte Winograd: one for each of a row's seven tiles and a panel's vectors.

    LLVM splits some dot products and sums, so that fewer sums wait for each other.
    """
    found = instructions(WORDS, level)
    assert sum(found[product] for product in products) == UNROLLED[0] * count


@pytest.mark.parametrize(
    ("level", "product", "register", "vectors"),
    [
        ("avx512vnni", "vfmadd231ps zmm", "%zmm", 1),
        ("avx2", "vfmadd231ps ymm", "%ymm", 2),
        ("sse2", "mulps xmm", "%xmm", 2),
    ],
)
def test_sums_of_a_tile_stay_in_registers(
    level: str, product: str, register: str, vectors: int
) -> None:
    """No vector is stored inside a reduction loop: as many stores as vectors of output.

    The loop is unrolled by a few.
    """
    found = instructions(TILE, level)
    stores = re.findall(rf"\tv?movups\t{register}", body_of(TILE, level))
    assert found[product] == UNROLLED[0] * 3 * vectors
    assert len(stores) == 3 * vectors


@pytest.mark.parametrize("level", LEVELS)
def test_threads_share_only_long_loops(level: str) -> None:
    assert not body_of(RowSoftmax(4, 16), level)
    assert body_of(RowSoftmax(4000, 16), level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("layer", "shared"),
    [
        (Convolution(1, 28, 28, 32, 16), True),
        (Convolution(1, 28, 28, 32, 16, (3, 3), pads=(1, 1, 1, 1), winograd=False), True),
        (Convolution(1, 7, 7, 512, 512), False),
        (Convolution(1, 1, 1, 64, 64), False),
    ],
)
def test_threads_share_pixels_unless_weights_are_large(
    layer: Convolution, shared: bool, level: str
) -> None:
    planner = layer.planner(generic(level))
    assert isinstance(planner, (DirectPlanner, MatrixPlanner))
    assert (planner.parts > 2) is shared


@pytest.mark.parametrize("level", LEVELS)
def test_code_for_any_processor_of_a_level_has_no_instruction_above_it(level: str) -> None:
    allowed = {"sse2": "x", "avx2": "xy", "avxvnni": "xy"}.get(level, "xyz")
    for layer in (TILE, BYTES, WORDS, LayerNormalisation(5, 70)):
        found = instructions(layer, level)
        assert {name[-3] for name in found if name.endswith("mm")} <= set(allowed)
        assert level != "sse2" or not any(name.startswith("v") for name in found)


def test_a_level_that_does_not_exist_is_refused() -> None:
    choice = "amx, avx512vnni, avxvnni, avx2 or sse2"
    with pytest.raises(CompileError, match=f"^CPU target: unknown level `avx3`; choose {choice}$"):
        host("avx3")


@pytest.fixture
def avx2_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without AVX-512, and no variable."""
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    monkeypatch.setattr(f"{target.__name__}._own_levels", lambda: ("avx2", "sse2"))


@pytest.mark.usefixtures("avx2_machine")
def test_the_variable_caps_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (host_levels(), host().level) == (("avx2", "sse2"), "avx2")
    monkeypatch.setenv(LEVEL_VARIABLE, "sse2")
    assert (host_levels(), host().level) == (("sse2",), "sse2")


@pytest.mark.usefixtures("avx2_machine")
@pytest.mark.parametrize(
    ("cap", "level", "reason"),
    [
        ("", "avx512vnni", "this processor lacks level `avx512vnni`; choose avx2 or sse2"),
        ("sse2", "avx2", "level `avx2` is above TILEWRIGHT_CPU_LEVEL=sse2; choose sse2"),
        ("none", "sse2", "TILEWRIGHT_CPU_LEVEL=none turns CPU kernels off; unset it"),
    ],
)
def test_code_that_this_machine_does_not_run_is_refused_by_name(
    cap: str, level: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, cap)
    for ask in (host, lambda level: compile_kernel(TILE, generic(level))):
        with pytest.raises(ProcessorError, match=f"^CPU target: {reason}$"):
            ask(level)


def test_tiles_that_the_system_refuses_are_no_lack_of_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    monkeypatch.setattr(target, "_has_features", lambda level: True)
    amx = replace(LEVELS["amx"], is_permitted=lambda: False)
    monkeypatch.setattr(target, "LEVELS", {**LEVELS, "amx": amx})
    target._own_levels.cache_clear()
    try:
        assert host_levels()[0] == "avx512vnni"
        with pytest.raises(ProcessorError, match="the operating system refuses the tiles that"):
            host("amx")
        monkeypatch.setenv(LEVEL_VARIABLE, "amx")
        with pytest.raises(
            UsageError, match=r"^TILEWRIGHT_CPU_LEVEL: the operating system refuses"
        ):
            host_levels()
    finally:
        target._own_levels.cache_clear()


@pytest.mark.usefixtures("avx2_machine")
@pytest.mark.parametrize(
    ("cap", "problem"),
    [
        ("avx3", "unknown level `avx3`; choose amx, avx512vnni, avxvnni, avx2, sse2 or none"),
        ("avx512vnni", "this processor lacks level `avx512vnni`; choose avx2, sse2 or none"),
    ],
)
def test_a_cap_that_makes_no_sense_is_refused(
    cap: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, cap)
    with pytest.raises(UsageError, match=f"^TILEWRIGHT_CPU_LEVEL: {problem}$"):
        host_target()


def test_another_architecture_has_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    monkeypatch.setattr(f"{target.__name__}._own_levels", tuple)
    assert host_target() is None
    with pytest.raises(ProcessorError, match=r"^CPU target: schedules exist for x86-64, not for `"):
        host()
