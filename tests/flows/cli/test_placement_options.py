"""Placement from the command line: policies, user choices, the table, and the cache."""

import json
import os
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from rich.console import Console

from tilewright.compiler import placement
from tilewright.compiler.pipeline import compile_request
from tilewright.compiler.placement.costs import HostSpeed
from tilewright.errors import DeviceError
from tilewright.flows.cli.arguments import compile_model
from tilewright.flows.cli.main import main
from tilewright.flows.cli.placement_options import POLICIES, Placing
from tilewright.flows.execution import compile_graph, host_figures
from tilewright.flows.reports.placement_table import placement_table
from tilewright.isa.configuration import DEFAULT, PRESETS
from tilewright.runtime import Session, open_device

SLOW = ("--host-gops", "0.01", "--host-gbps", "0.01")
COMMON = ("--config", "8x8")


@pytest.fixture(autouse=True)
def figures(monkeypatch):
    """A host that every test knows."""
    host = HostSpeed(100.0, 50.0, 10.0, 5.0, 1.0, 20.0, 5.0)
    monkeypatch.setattr(host_figures, "measured_host", lambda: host)
    return host


def table(tilewright, *arguments: object) -> dict:
    found = json.loads(tilewright(*arguments, *COMMON, "--table", "--json"))
    return found["placement"]


def targets(found: dict) -> dict[str, str]:
    return {row["name"]: row["target"] for row in found["rows"]}


@pytest.mark.cpu_kernels
def test_a_network_runs_without_an_accelerator(tilewright, model, scans):
    arguments = ("--input", scans, "--samples", 5, *COMMON, "--compare", "--json")
    hosted = json.loads(tilewright("run", model, "--device", "host", *arguments))
    accelerated = json.loads(tilewright("run", model, *arguments))
    assert hosted["device"] == "host"
    assert hosted["totals"]["cycles"] is None
    assert not any(layer["target"] == "accelerator" for layer in hosted["layers"])
    assert any(layer["target"] == "host" for layer in hosted["layers"])
    assert hosted["comparison"]["equal"]
    for key in ("accuracy", "equal_values"):
        assert hosted[key] == accelerated[key] == 1.0


def test_the_table_of_a_run_without_an_accelerator_has_no_cycles(tilewright, model):
    said = tilewright("run", model, "--device", "host", *COMMON)
    assert said.startswith("network        digits_int8_qdq: nothing on the accelerator; on the ")
    assert "cycles per sample" not in said
    assert "quantised first" not in said, "that is said of float models"
    (total,) = (line.split() for line in said.splitlines() if line.startswith("total "))
    assert total[2] == "us"
    (heading,) = (line.split() for line in said.splitlines() if line.startswith("layer "))
    assert heading == ["layer", "operator", "target", "time", "MACs"]
    assert "configuration " not in said
    assert " 0 us" not in said
    assert float(total[1].replace(",", "")) > 0
    assert " on the accelerator at " not in said
    assert " inferences per second" in said


def test_an_artifact_runs_without_an_accelerator_too(tilewright, artifact, scans):
    said = tilewright("run", artifact, "--device", "host", "--input", scans)
    assert "nothing on the accelerator" in said
    direct = tilewright("run", artifact, "--input", scans)
    (accuracy,) = (line for line in direct.splitlines() if line.startswith("accuracy: "))
    assert accuracy in said.splitlines()


def test_an_artifact_that_was_left_to_the_host_runs_on_the_accelerator(tilewright, model, tmp_path):
    hosted = tmp_path / "hosted.tw"
    tilewright("compile", model, "-o", hosted, "--placement", "host", *COMMON)
    assert "nothing on the accelerator" in tilewright("run", hosted)
    wish = ("--placement", "accelerator", "--json")
    found = [json.loads(tilewright("run", source, *COMMON, *wish)) for source in (hosted, model)]
    assert found[0]["totals"] == found[1]["totals"]
    assert found[0]["totals"]["cycles"] > 0


def test_a_program_is_no_work_for_the_cpu():
    with (
        open_device("host", DEFAULT) as device,
        pytest.raises(DeviceError, match="expected a network without segments"),
    ):
        device.run((), np.zeros(64, np.uint8))


def test_costs_choose_between_hosts(tilewright, model):
    slow = targets(table(tilewright, "run", model, "--placement", "cost", *SLOW))
    assert slow["conv2"] == "accelerator"
    fast = table(tilewright, "run", model, "--placement", "cost", "--clock", "0.5")
    assert set(targets(fast).values()) <= {"host", "numpy"}
    assert all(row["gain_us"] <= 1e-3 for row in fast["rows"] if row["gain_us"] is not None)
    assert fast["costs"]["clock_mhz"] == 0.5


@pytest.mark.cpu_kernels
def test_a_wish_moves_a_layer_and_says_so(tilewright, model):
    found = table(tilewright, "run", model, "--place", "conv2=host")
    (row,) = (row for row in found["rows"] if row["name"] == "conv2")
    assert row["target"] == "host"
    assert row["reason"] == "forced"
    assert row["accelerator_us"] > 0
    assert row["transfer_us"] == 0
    assert sum(row["transfer_us"] > 0 for row in found["rows"]) >= 2, "before and behind it"
    alone = table(tilewright, "run", model)
    assert targets(alone)["conv2"] == "accelerator"
    assert alone["total_us"]["transfer"] < found["total_us"]["transfer"]


@pytest.mark.cpu_kernels
def test_every_command_prints_the_same_table(tilewright, model, tmp_path):
    wish = ("--place", "conv2=host", *COMMON, "--table", "--clock", "50")
    page = tmp_path / "page.html"
    compiled = tilewright("compile", model, "-o", tmp_path / "net.tw", *wish).splitlines()
    run = tilewright("run", model, *wish).splitlines()
    reported = tilewright("report", model, "-o", page, *wish).splitlines()
    start = next(at for at, line in enumerate(compiled) if " moving it" in line)
    assert compiled[start:] == run[-len(compiled[start:]) :]
    assert compiled[start:] == reported[-len(compiled[start:]) :]
    (conv2,) = (line for line in compiled[start:] if line.startswith("conv2 "))
    assert conv2.split()[1:3] == ["host", "forced"]
    assert "on the accelerator at 50 MHz" in compiled[-5]


def test_the_table_says_what_a_run_of_model_or_artifact_takes(tilewright, model, artifact):
    for source in (model, artifact):
        for more in ((), ("--latency", "300")):
            words = ("run", source, *more, "--clock", "50", "--table", "--json")
            found = json.loads(tilewright(*words))
            rows = found["placement"]["rows"]
            there = [row["accelerator_us"] for row in rows if row["target"] == "accelerator"]
            total = found["placement"]["total_us"]["accelerator"]
            assert total == pytest.approx(found["totals"]["cycles"] / 50)
            assert sum(there) == pytest.approx(total)


def test_the_table_tells_the_time_with_both_sides_at_work(tilewright, model):
    words = ("run", model, "--place", "conv2=host", "--clock", 50, *COMMON, "--table")
    total = json.loads(tilewright(*words, "--json"))["placement"]["total_us"]
    assert 0 < total["makespan"] < 1.2 * total["sum"]
    said = tilewright(*words)
    assert f"estimated: {total['sum']:,.0f} us a sample, " in said
    assert f" for transfers;\n{total['makespan']:,.0f} us where both sides work at once\n" in said


def test_a_table_fits_its_terminal(monkeypatch):
    times = {f"{name}_us": 12345.6 for name in ("accelerator", "host", "transfer", "gain")}
    reasons = [
        "cannot run there: `softmax` of float32",
        "the accelerator is faster by 123,456.7 us",
    ]
    rows = [
        {"short": "stage/" * 9, "op": "softmax", "target": "accelerator", "reason": reason, **times}
        for reason in reasons
    ]
    monkeypatch.setenv("COLUMNS", "100")
    console = Console(width=200)
    with console.capture() as shown:
        console.print(placement_table({"rows": rows}))
    lines = shown.get().splitlines()
    assert len(lines) == 1 + len(rows)
    assert max(len(line.rstrip()) for line in lines) <= 100
    assert " unable: `softmax`" in lines[1]


def test_the_hosts_times_are_the_median_of_several_runs(tilewright, model, monkeypatch):
    calls = count(1)
    run = Session.run

    def slower_at_first(self, inputs):
        found, call = run(self, inputs), next(calls)
        seconds = dict.fromkeys(found.host.seconds, 1.0 if call == 1 else 1e-6)
        return replace(found, host=replace(found.host, seconds=seconds))

    monkeypatch.setattr(Session, "run", slower_at_first)
    found = json.loads(tilewright("run", model, "--device", "host", *COMMON, "--json"))
    assert len(found["benchmark"]["seconds"]) == 10
    times = [layer["microseconds"] for layer in found["layers"]]
    assert times == pytest.approx([1.0] * len(times))
    assert found["samples"] == 1


@pytest.mark.cpu_kernels
def test_all_multiplications_are_in_the_total(tilewright, model, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # room for exact counts, whatever the times are
    words = ("run", model, "--place", "conv2=host", *COMMON)
    layers = json.loads(tilewright(*words, "--json"))["layers"]
    assert any(layer["target"] == "host" and layer["macs"] for layer in layers)
    said = tilewright(*words).splitlines()
    (total,) = (line.split() for line in said if line.startswith("total "))
    assert total[2] == f"{sum(layer['macs'] for layer in layers):,}"


def test_a_page_about_a_network_that_was_left_to_the_host(model, capsys):
    assert main(["report", str(model), "--placement", "host", *COMMON]) == 1
    said = capsys.readouterr().err
    assert "leave layers to the accelerator (`--placement`, `--place`)" in said


def test_without_a_wish_nothing_is_printed_of_places(tilewright, model):
    assert "moving it" not in tilewright("run", model, *COMMON)


def test_another_placement_is_compiled_and_kept(monkeypatch, model, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    seen = []

    def count(request, *rest, **named):
        seen.append(request.placement.policy)
        return compile_request(request, *rest, **named)

    monkeypatch.setattr(compile_graph, "compile_request", count)
    wishes = [
        Placing(),
        Placing("host"),
        Placing("cost"),
        Placing("cost", clock=50),
        Placing(forced=(("conv2", "host"),)),
        Placing(clock=50),
    ]
    for wish in [*wishes, *wishes]:
        module = compile_model(model, PRESETS["8x8"], placing=wish)
        assert "placement" in module.report, "kept modules know their report"
    assert seen == ["accelerator", "host", "cost", "cost", "accelerator"]


def test_layers_that_do_not_fit_are_told(tilewright, model, tmp_path):
    small = ("--config", "gatemate", "--set", "tile_loops=1", "-o", tmp_path / "small.tw")
    reason = (
        "kernel `conv2`: gemm: a reduction takes 3 loops of `tile_loops` (axes i, ky, kx), but "
        "configuration `gatemate,tile_loops=1` has 1; raise `tile_loops`"
    )
    said = tilewright("compile", model, *small).splitlines()
    assert (
        "2 layers run on the host, as they do not fit the accelerator (`--table` lists them): "
        f"{reason}"
    ) in said
    said = tilewright("compile", model, *small, "--table").splitlines()
    first = said.index("on the host because they do not fit the accelerator:") + 1
    assert said[first] == f"conv2: {reason}"
    assert said[first + 1].startswith("conv3: kernel `conv3`: gemm: a reduction takes 3 loops")
    rows = json.loads(tilewright("compile", model, *small, "--json"))["placement"]["rows"]
    reasons = {row["name"]: row["reason"] for row in rows}
    assert reasons["conv2"] == f"does not fit there: {reason}"
    assert "do not fit" not in tilewright("compile", model, *COMMON, "-o", tmp_path / "whole.tw")


def test_figures_that_are_stated_replace_measured_ones(figures):
    stated = Placing(clock=50, host_gops=3, host_gbps=4, link_gbps=5, segment_us=0).costs()
    assert (stated.clock_mhz, stated.host.gbps) == (50, 4)
    assert stated.host.int8_gops == stated.host.float_gops == 3
    assert (stated.link.gbps, stated.link.start_us) == (5, 0)
    assert Placing().costs().host == figures


def test_the_command_line_has_the_policies_of_the_compiler():
    assert POLICIES == placement.POLICIES
    assert Placing().placement() == placement.DEFAULT_PLACEMENT


def test_a_layer_that_does_not_exist(capsys, model):
    assert main(["run", str(model), "--place", "conv9=host", *COMMON]) == 1
    said = capsys.readouterr()
    assert said.err == (
        "error: placement of `conv9`: expected a layer of `digits_int8_qdq`, the end of a layer's "
        "name or a pattern with `*`, got none; did you mean `conv3`, `conv2`, `conv1`?\n"
    )


@pytest.mark.parametrize("command", ["run", "compile", "report", "ablation", "quantise", "passes"])
def test_no_file_is_overwritten_that_is_not_json(capsys, model, tmp_path, command):
    notes = tmp_path / "notes.json"
    notes.write_text("not JSON")
    needed = ["--calibrate", str(model)] if command == "quantise" else []
    assert main([command, str(model), *needed, "--json", str(notes)]) == 2
    assert capsys.readouterr().err == (
        f"error: `--json {notes}`: expected a new file or one of JSON, got a file of something "
        "else, which is left as it is; choose another name\n"
    )
    assert notes.read_text() == "not JSON"
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(model.read_bytes())
    assert main([command, str(model), *needed, "--json", str(copy)]) == 2
    assert "expected a name that ends in `.json`" in capsys.readouterr().err
    assert copy.read_bytes() == model.read_bytes()


def test_an_older_result_is_replaced(tilewright, model, tmp_path):
    target = tmp_path / "result.json"
    for text in ("", "[1, 2]"):
        target.write_text(text)
        tilewright("run", model, *COMMON, "--json", target)
        assert json.loads(target.read_text())["network"] == "digits_int8_qdq"


def test_a_model_that_cannot_be_read(capsys, model, monkeypatch):
    opened = os.open

    def refuse(path, *arguments, **options):
        if path == model:
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert main(["run", str(model), *COMMON]) == 1
    assert capsys.readouterr().err == (
        f"error: model `{model}`: expected a readable file, got `Permission denied`; check the "
        "path and its permissions\n"
    )


def test_a_folder_is_no_model(capsys, tmp_path):
    assert main(["compile", str(tmp_path)]) == 1
    assert (
        "expected a readable file, got `not a regular file but a folder`" in capsys.readouterr().err
    )
