"""An artifact's network, placed anew, is compiled once; what was kept is proved before its use."""

import json
import shutil
from pathlib import Path

import pytest

from tilewright.compiler.host import kernel_store
from tilewright.compiler.pipeline import compile_request
from tilewright.flows.cli.arguments import placed_module
from tilewright.flows.cli.main import main
from tilewright.flows.cli.placement_options import Placing
from tilewright.flows.execution import compile_graph
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import load, save

HOSTED = Placing("host", stated=True)


@pytest.fixture
def compilations(monkeypatch, artifact, tmp_path) -> list[str]:
    """Policies that the artifact was compiled for since it was made, in a cache of the test's."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    seen = []

    def count(request, *rest, **named):
        seen.append(request.placement.policy)
        return compile_request(request, *rest, **named)

    monkeypatch.setattr(compile_graph, "compile_request", count)
    return seen


def kept_files(tmp_path: Path) -> dict[str, Path]:
    return {path.suffix: path for path in (tmp_path / "cache" / "networks").iterdir()}


@pytest.mark.cpu_kernels
def test_the_second_run_of_an_artifact_compiles_nothing(
    tilewright, artifact, compilations, monkeypatch, scans
):
    words = ("run", artifact, "--device", "host", "--input", scans, "--samples", 4, "--json")
    first = json.loads(tilewright(*words))
    assert compilations == ["host"]
    monkeypatch.setattr(kernel_store, "compile_kernel", None)
    second = json.loads(tilewright(*words))
    assert compilations == ["host"]
    for found in (first, second):
        assert found["accuracy"] == found["equal_values"] == 1.0
        assert any(layer["target"] == "host" for layer in found["layers"])
        assert not any(layer["target"] == "accelerator" for layer in found["layers"])


@pytest.mark.cpu_kernels
def test_the_second_report_about_an_artifact_compiles_nothing(
    tilewright, artifact, compilations, tmp_path
):
    words = ("report", artifact, "--place", "conv2=host", "-o", tmp_path / "page.html", "--json")
    first, second = (json.loads(tilewright(*words)) for _ in range(2))
    assert compilations == ["accelerator"]
    assert first | {"date": ""} == second | {"date": ""}
    (row,) = (row for row in first["placement"]["rows"] if row["name"] == "conv2")
    assert (row["target"], row["reason"]) == ("host", "forced")


def test_what_a_run_compiled_a_report_takes(tilewright, artifact, compilations, tmp_path):
    wish = ("--place", "conv2=host", "--json")
    ran = json.loads(tilewright("run", artifact, *wish))
    told = json.loads(tilewright("report", artifact, "-o", tmp_path / "page.html", *wish))
    assert compilations == ["accelerator"]
    assert told["summary"]["cycles"] == ran["totals"]["cycles"]


def test_an_artifact_as_it_was_compiled_is_not_kept_again(
    tilewright, artifact, compilations, tmp_path
):
    tilewright("run", artifact)
    assert compilations == []
    assert not (tmp_path / "cache" / "networks").exists()


@pytest.mark.cpu_kernels
def test_another_wish_artifact_or_processor_is_compiled(artifact, compilations, monkeypatch):
    placed_module(artifact, None, HOSTED, keep_all=False)
    placed_module(artifact, None, Placing(stated=True), keep_all=False)
    placed_module(artifact, None, HOSTED, keep_all=True)
    assert compilations == ["host", "accelerator", "host"]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("tilewright.compiler.host.host_target", lambda: None)
        placed_module(artifact, None, HOSTED, keep_all=False)
    assert compilations == ["host", "accelerator", "host", "host"]
    placed_module(artifact, None, HOSTED, keep_all=False)
    assert len(compilations) == 4
    save(load(artifact), artifact, level=0)
    placed_module(artifact, None, HOSTED, keep_all=False)
    assert len(compilations) == 5


@pytest.mark.parametrize("suffix", [".tw", ".json"])
@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"", bytes.upper])
def test_damaged_files_are_replaced(artifact, compilations, tmp_path, suffix, damage):
    whole = placed_module(artifact, None, HOSTED, keep_all=False)
    kept = kept_files(tmp_path)[suffix]
    kept.write_bytes(damage(kept.read_bytes()))
    for _ in range(2):
        again = placed_module(artifact, None, HOSTED, keep_all=False)
        assert (again.steps, again.code) == (whole.steps, whole.code)
        assert compilations == ["host", "host"]


@pytest.mark.parametrize("copied", [[".tw"], [".json"], [".tw", ".json"]])
def test_what_was_kept_for_something_else_is_replaced(artifact, compilations, tmp_path, copied):
    """Files of another entry, whole and consistent, under this entry's names."""
    placed_module(artifact, None, Placing(stated=True), keep_all=False)
    others = {suffix: path.read_bytes() for suffix, path in kept_files(tmp_path).items()}
    shutil.rmtree(tmp_path / "cache" / "networks")
    placed_module(artifact, None, HOSTED, keep_all=False)
    for suffix in copied:
        kept_files(tmp_path)[suffix].write_bytes(others[suffix])
    module = placed_module(artifact, None, HOSTED, keep_all=False)
    assert module.segments == ()
    table = module.report["placement"]
    assert isinstance(table, dict)
    assert table["policy"] == "host"
    assert compilations == ["accelerator", "host", "host"]


def test_a_network_for_another_machine_is_refused_every_time(artifact, compilations, capsys):
    words = ["run", str(artifact), "--device", "host"]
    for _ in range(2):
        assert main([*words, "--config", "8x16"]) == 1
        assert "expected a program for configuration `8x16`" in capsys.readouterr().err
        assert main(words) == 0
        capsys.readouterr()
    assert main([*words, "--config", "8x8"]) == 0, "the one that it was compiled for"
    assert compilations == ["host", "host"], "asked for by name is another wish"


@pytest.mark.parametrize("wish", [["--calibrate", "random"], ["--fix", "scan=1"]])
@pytest.mark.parametrize(
    "command", [["run", "--device", "host"], ["report", "--placement", "host"]]
)
def test_wishes_that_an_artifact_cannot_fulfil(artifact, compilations, capsys, command, wish):
    assert main([*command, str(artifact), *wish]) == 2
    assert "artifact" in capsys.readouterr().err
    assert compilations == []


def test_an_artifact_that_is_not_there(capsys, tmp_path):
    assert main(["run", str(tmp_path / "no.tw"), "--device", "host"]) == 1
    assert capsys.readouterr().err.startswith(f"error: artifact `{tmp_path / 'no.tw'}`: expected")


def test_the_machine_is_the_artifacts_own(artifact, compilations):
    for _ in range(2):
        module = placed_module(artifact, None, HOSTED, keep_all=False)
        assert module.configuration == PRESETS["8x8"]
        assert "placement" in module.report
