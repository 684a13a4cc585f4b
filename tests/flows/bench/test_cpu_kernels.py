"""The CPU kernel benchmark: tables mark slower kernels; means; the peak rate."""

import json
import re

import numpy as np
import pytest
from rich.console import Console

from tilewright.compiler.cpu import LEVELS, Array, RowSoftmax, generic, host
from tilewright.errors import ToolError
from tilewright.flows.bench import cpu_peak
from tilewright.flows.bench.cpu_kernels import (
    PAGE_BYTES,
    KernelCase,
    cases,
    in_one_block,
    main,
    summary,
    table,
)
from tilewright.flows.bench.cpu_peak import peak_rates
from tilewright.flows.bench.onnxruntime_peer import peer_session

from ...compiler.cpu.assembly import assembly_of
from ...compiler.onnx_models import model, node, value


def row(ratio: float, share: float, threads: int = 1) -> dict:
    return {
        "group": "rows",
        "name": "softmax",
        "threads": threads,
        "macs": 1000,
        "ours_s": 1e-6,
        "peer_s": 1e-6 * ratio,
        "ratio": ratio,
        "share_of_peak": share,
    }


def test_a_kernel_slower_than_its_peer_is_marked() -> None:
    console = Console(width=100, record=True)
    console.print(table([row(0.97, 0.5), row(1.03, 0)]))
    text = console.export_text()
    assert "* 0.97" in text
    assert "│   1.03 │" in text
    assert "50%" in text


def test_means_are_geometric_and_by_threads() -> None:
    rows = [row(0.5, 0), row(2.0, 0), row(3.0, 0, threads=2)]
    assert list(summary(rows)) == ["rows: 1.00x on 1 thread, 3.00x on 2 threads"]


def test_arrays_lie_in_one_block_from_pages_on() -> None:
    wanted = [Array("float32", (3,)), Array("int8", (4097,)), Array("float32", (64, 65))]
    first, second, third = found = in_one_block(wanted)
    assert [array.shape for array in found] == [array.shape for array in wanted]
    assert first.ctypes.data % PAGE_BYTES == 0
    assert second.ctypes.data == first.ctypes.data + PAGE_BYTES
    assert third.ctypes.data == second.ctypes.data + 2 * PAGE_BYTES


def test_the_peak_is_known_by_element_type() -> None:
    rates = peak_rates(host())
    assert {"float32", "int8"} >= set(rates)
    assert all(rate > 0 for rate in rates.values())
    assert peak_rates(host("sse2")) == {}


def test_the_peak_on_tiles_is_that_of_the_table_s_instruction() -> None:
    target = generic("amx")
    product = next(one for one in target.properties.instructions if one.unit)
    code = assembly_of(cpu_peak._integer_code(product, target.lanes), target)
    found = re.findall(r"^\t(ldtilecfg|tdp\w+|tilerelease)\b", code, re.MULTILINE)
    assert found == ["ldtilecfg", *["tdpbusd"] * cpu_peak.CHAINS, "tilerelease"]


@pytest.mark.parametrize("level", LEVELS)
def test_names_of_kernels_differ(level: str) -> None:
    names = [(case.group, case.name) for case in cases(generic(level))]
    assert len(set(names)) == len(names)


def test_exact_products_have_an_exact_peer() -> None:
    exact = {case.group for case in cases(generic("avx2")) if case.exact}
    assert exact == {"matrix product int8"}
    assert not any(case.exact for case in cases(generic("avxvnni")))


def test_the_exact_peer_sums_without_saturation() -> None:
    """By default, sums saturate only where onnxruntime finds AVX2 without VNNI."""
    w = np.full((64, 16), 127, np.int8)
    product = model(
        [node("MatMulInteger", "xw", "y")], [value("x", np.uint8, [1, 64])], "y", {"w": w}
    )
    session = peer_session(product.SerializeToString(), 1, exact=True)
    asked = session.get_session_options().get_session_config_entry("session.x64quantprecision")
    assert asked == "1"
    (found,) = session.run(None, {"x": np.full((1, 64), 255, np.uint8)})
    assert np.all(found == 64 * 255 * 127)


def test_a_model_that_the_peer_does_not_take_is_told() -> None:
    foreign = model([node("Quant", "x", "y")], [value("x", np.float32, [1])], "y", {})
    with pytest.raises(ToolError, match=r"onnxruntime cannot run the model, .* Quant"):
        peer_session(foreign.SerializeToString(), 1)


@pytest.mark.cpu_kernels
def test_figures_are_written_for_machines(monkeypatch, capsys) -> None:
    monkeypatch.setattr(
        "tilewright.flows.bench.cpu_kernels.cases",
        lambda target: [KernelCase("rows", "softmax", RowSoftmax(2, 3), 0)],
    )
    monkeypatch.setattr(
        "tilewright.flows.bench.cpu_kernels.measure",
        lambda *_: {"ours_s": 1e-6, "peer_s": 2e-6, "ratio": 2.0, "compile_s": 0.1},
    )
    assert main(["--threads", "1", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["rows"]
    assert (found["name"], found["ratio"], found["share_of_peak"]) == ("softmax", 2.0, 0)


@pytest.mark.cpu_kernels
def test_a_filter_that_nothing_passes_is_refused(capsys) -> None:
    assert main(["--only", "cubic"]) == 2
    assert "`--only cubic`: no group or name contains it" in capsys.readouterr().err


def test_a_file_that_may_be_a_model_is_not_written(capsys) -> None:
    assert main(["--json", "table.txt"]) == 2
    assert "expected a name that ends in `.json`" in capsys.readouterr().err
