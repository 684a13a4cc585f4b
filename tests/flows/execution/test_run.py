"""`tilewright run`: tables for people, JSON for machines, and comparisons that can fail."""

import json
import re

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Builder, Output, TensorType, Value
from tilewright.compiler.graph.operators import Unary
from tilewright.compiler.pipeline import compile as pipeline
from tilewright.errors import DeviceError
from tilewright.flows.cli.main import main
from tilewright.flows.execution.samples import random_samples, read_samples
from tilewright.flows.reports.run_tables import say_cycles
from tilewright.flows.reports.terminal import shorten
from tilewright.isa.configuration import DEFAULT, PRESETS
from tilewright.runtime import devices
from tilewright.runtime import host as runtime_host
from tilewright.runtime.devices import DEVICES, SimDevice
from tilewright.runtime.profile import LayerProfile, Profile
from tilewright.sim.functional import FunctionalMachine


def results(tilewright, *arguments: object) -> dict:
    return json.loads(tilewright("run", *arguments, "--json", "-"))


def test_the_table_names_layers_targets_and_totals(tilewright, model, scans, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    said = tilewright("run", model, "--config", "8x16", "--input", scans, "--samples", 5)
    lines = said.splitlines()
    layers = sum(" accel " in line for line in lines[1:])
    assert lines[0] == (
        f"network        digits_int8_qdq: {layers} layers on the accelerator; on the host, in "
        "NumPy: quantize, reshape (2), dequantize"
    )
    (conv2,) = (line.split() for line in lines if line.startswith("conv2 "))
    assert conv2[1:3] == ["conv", "accel"]
    assert conv2[4] == "73,728"
    assert any(line.startswith("total ") for line in lines)
    assert "per-layer cycles: how much later the run ends because of the layer" in lines
    assert "+ 2 reshapes at no cost" in lines
    assert "accuracy: 100.00% of 5 labels" in lines
    assert (
        "identical to the input file's outputs: 100.00% of 5 samples, 100.000% of all values"
        in lines
    )


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("conv3 + residual + pool", 23, "conv3 + residual + pool"),
        ("conv3 + residual + pool", 22, "conv3 + … + pool"),
        ("conv3 + residual + pool", 15, "conv3 + …"),
        ("conv3 + residual + pool", 8, "conv…ool"),
        ("conv3 + residual", 15, "conv3 + …"),
        ("block/Convolution", 12, "block/…ution"),
    ],
)
def test_long_names_are_shortened_to_what_says_most(text, width, shown):
    assert shorten(text, width) == shown
    assert len(shorten(text, width)) <= width


def test_a_narrow_terminal_still_names_fused_layers(tilewright, model, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = tilewright("run", model, "--config", "32x32").splitlines()
    (fused,) = (line.split() for line in lines if line.startswith("conv3 + … + pool  "))
    assert fused[5].startswith("conv+…")
    assert fused[6] == "accel"
    assert max(map(len, lines[5:-8])) <= 80


def test_a_use_above_one_is_explained(capsys):
    def row(name: str, cycles: int, use: float) -> LayerProfile:
        return LayerProfile(name, name, "conv", "accelerator", 99, 1, 0, 0, cycles, use)

    def said(*rows: LayerProfile) -> str:
        say_cycles(Profile(rows, 100, True, 0.9, {}))
        return capsys.readouterr().out

    assert "use above 100%" not in said(row("a", 50, 1.0), row("b", 50, 0.9))
    assert "use above 100%" in said(row("a", 50, 0.8), row("b", 50, 1.01))


def test_json_holds_what_the_table_says(tilewright, model, scans):
    found = results(tilewright, model, "--config", "8x8", "--input", scans, "--samples", 3)
    assert found["device"] == "sim"
    assert found["configuration"]["hash"] == f"{PRESETS['8x8'].hash:#010x}"
    assert found["samples"] == 3
    assert found["totals"]["exact"] is True
    assert found["totals"]["macs"] == sum(layer["macs"] for layer in found["layers"])
    assert found["totals"]["read_bytes"] == sum(layer["read_bytes"] for layer in found["layers"])
    assert found["accuracy"] == 1.0
    assert "comparison" not in found


@pytest.mark.cpu_kernels
def test_products_that_run_in_numpy_count(tilewright, model, monkeypatch):
    """Without kernels for this processor NumPy does what kernels did."""
    monkeypatch.setenv("COLUMNS", "200")  # room for whole numbers, however long a step takes
    words = (model, "--config", "8x8", "--place", "conv2=host")
    usual = results(tilewright, *words)
    macs = {layer["target"]: 0 for layer in usual["layers"]}
    for layer in usual["layers"]:
        macs[layer["target"]] += layer["macs"]
    assert macs["host"] == 73_728
    assert usual["totals"]["macs"] == macs["accelerator"]
    assert usual["totals"]["all_macs"] == macs["accelerator"] + 73_728
    for place in (pipeline, runtime_host):
        monkeypatch.setattr(place, "host_target", lambda: None)
    plain = results(tilewright, *words)
    (conv2,) = (layer for layer in plain["layers"] if layer["name"] == "conv2")
    assert (conv2["target"], conv2["macs"]) == ("numpy", 73_728)
    assert plain["totals"]["all_macs"] == usual["totals"]["all_macs"]
    monkeypatch.setenv("COLUMNS", "160")  # room for exact counts, whatever the times are
    said = tilewright("run", *words).splitlines()
    (row,) = (line.split() for line in said if line.startswith("conv2 "))
    assert row[5] == "73,728"
    (total,) = (line.split() for line in said if line.startswith("total "))
    assert total[2] == f"{plain['totals']['all_macs']:,}"


def test_json_without_a_file_is_stdout(tilewright, model):
    assert json.loads(tilewright("run", model, "--json"))["device"] == "sim"


def test_json_goes_to_a_file_beside_the_table(tilewright, model, tmp_path):
    said = tilewright("run", model, "--config", "8x8", "--json", tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text())["samples"] == 1
    assert "1 sample of random inputs (seed 0)" in said


@pytest.mark.parametrize("device", ["reference", "sim"])
def test_every_layer_is_compared_on_request(tilewright, model, scans, device):
    arguments = (model, "--config", "8x8", "--input", scans, "--samples", 2, "--compare")
    found = results(tilewright, *arguments, "--device", device)["comparison"]
    assert found["equal"]
    assert found["not_kept"] == []
    assert found["on_chip"]
    compared = {tally["name"]: tally["values"] for tally in found["tallies"]}
    layers = set(compared) - {"logits", "data window 0 of `sim`"}
    assert len(layers) + len(found["on_chip"]) == 6, "nodes on the accelerator"
    assert {"conv1": 2048, "dense": 20, "logits": 20}.items() <= compared.items()
    assert ("data window 0 of `sim`" in compared) == (device == "reference")


def test_a_difference_is_an_error(model, scans, monkeypatch, capsys):
    """A simulator with a wrong GEMM is found out, and named by the first layer that shows it."""
    right = FunctionalMachine._gemm

    def wrong(self, gemm):
        right(self, gemm)
        self.memories[4][:64] ^= 1

    monkeypatch.setattr(FunctionalMachine, "_gemm", wrong)
    monkeypatch.setattr(devices, "functional_machine", lambda _: FunctionalMachine)
    code = main(["run", str(model), "--input", str(scans), "--samples", "1", "--compare"])
    assert code == DeviceError.exit_code
    said = capsys.readouterr()
    error = said.err.splitlines()[-1]  # a slow machine prints its progress before
    assert error.startswith("error: device `sim`: `conv")
    assert error.endswith("this is a fault of the device or the compiler: report it with the model")
    assert "integer reference: 6 of 6" not in said.out


def test_an_artifact_runs_like_its_model(tilewright, artifact, model, scans):
    common = ("--input", scans, "--samples", 2, "--compare")
    direct = results(tilewright, model, "--config", "8x8", *common)
    loaded = results(tilewright, artifact, *common)
    for layer in (*direct["layers"], *loaded["layers"]):
        hosted = layer["target"] != "accelerator"
        assert (layer.pop("microseconds") is not None) == hosted
    for key in ("configuration", "layers", "totals", "accuracy", "comparison"):
        assert loaded[key] == direct[key]


def test_layers_that_were_overwritten_are_told(tilewright, model, tmp_path):
    path = tmp_path / "digits.tw"
    tilewright("compile", model, "--config", "8x8", "-o", path)
    said = tilewright("run", path, "--compare")
    assert "compile with `--keep-all` to compare all" in said
    assert "inside fused layers, whose values stay on chip; what their layers give was" in said


def test_memory_changes_the_cycles(tilewright, model):
    def cycles(*more):
        return results(tilewright, model, *more)["totals"]["cycles"]

    usual = cycles()
    assert cycles("--latency", 500) > usual
    assert cycles("--bandwidth", "1/4") > usual


def test_stalls_cannot_be_foretold_and_are_named(tilewright, model):
    said = tilewright("run", model, "--stalls", 0.5)
    assert "(without the memory's random stalls)" in said
    assert "cycles (no stalls)" in said


def test_a_changed_parameter_is_told(tilewright, model):
    found = results(tilewright, model, "--set", "act_depth=4096", "--set", "bus_bits=128")
    changed = DEFAULT.replace(act_depth=4096, bus_bits=128)
    assert found["configuration"]["name"] == "16x16,act_depth=4096,bus_bits=128"
    assert found["configuration"]["hash"] == f"{changed.hash:#010x}"


def test_random_inputs_follow_their_seed(model):
    graph = import_model(model)
    one, same, other = (random_samples(graph, 3, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.inputs["scan"], same.inputs["scan"])
    assert (one.inputs["scan"] != other.inputs["scan"]).any()
    assert one.inputs["scan"].shape == (3, 1, 1, 8, 8)


def test_input_files_with_and_without_batch_axis_are_the_same(model, scans, tmp_path):
    graph = import_model(model)
    rows = read_samples(scans, graph)
    assert (rows.count, rows.inputs["scan"].shape) == (360, (360, 1, 1, 8, 8))
    np.save(tmp_path / "batches.npy", rows.inputs["scan"])
    np.savez(tmp_path / "named.npz", scan=rows.inputs["scan"][:, 0])
    for name in ("batches.npy", "named.npz"):
        again = read_samples(tmp_path / name, graph)
        np.testing.assert_array_equal(again.inputs["scan"], rows.inputs["scan"])
        assert again.labels is None
    assert rows.first(7).count == 7
    assert len(list(rows.first(7))) == 7


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_floats_of_another_width_are_converted(model, scans, tmp_path, dtype):
    graph = import_model(model)
    scan = read_samples(scans, graph).inputs["scan"]
    np.save(tmp_path / "wide.npy", scan.astype(dtype))
    again = read_samples(tmp_path / "wide.npy", graph).inputs["scan"]
    assert again.dtype == np.float32
    np.testing.assert_array_equal(again, scan.astype(dtype).astype(np.float32))


def test_inputs_in_bfloat16_are_random_floats(tmp_path):
    builder = Builder("network", [Value("x", TensorType("bfloat16", (1, 40)))])
    graph = builder.graph([Output("y", builder.emit(Unary("Neg"), ["x"]))])
    (inputs,) = random_samples(graph, 1, 0)
    assert inputs["x"].dtype == "bfloat16"
    assert len(np.unique(inputs["x"].astype(np.float32))) > 20
    np.save(tmp_path / "x.npy", inputs["x"].astype(np.float32))
    (read,) = read_samples(tmp_path / "x.npy", graph)
    np.testing.assert_array_equal(read["x"], inputs["x"])


@pytest.mark.slow
def test_the_hardware_gives_exact_cycles_that_stalls_change_and_bits_that_they_do_not(
    model, capsys
):
    """Progress of a build goes to stderr, so stdout stays JSON."""
    found = []
    for stalls in ("0", "0.3"):
        words = [
            "run",
            str(model),
            "--config",
            "8x16",
            "--device",
            "rtl",
            "--compare",
            "--json",
            "-",
        ]
        assert main([*words, "--stalls", stalls, "--seed", "5", "--samples", "2"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    quiet, stalled = found
    assert quiet["totals"]["exact"]
    assert quiet["totals"]["cycles"] < stalled["totals"]["cycles"]
    assert quiet["comparison"] == stalled["comparison"]
    names = [tally["name"] for tally in quiet["comparison"]["tallies"]]
    assert names[-1] == "data window 0 of `sim`"


@pytest.mark.parametrize("damaged", [False, True])
def test_hardware_is_compared_without_being_asked(damaged, model, capsys, monkeypatch):
    class Hardware(SimDevice):
        name = "rtl"

        def _run(self, program, dram):
            result = super()._run(program, dram)
            dram[-1] ^= damaged
            return result

    monkeypatch.setitem(DEVICES, "rtl", Hardware)
    code = main(["run", str(model), "--config", "4x4", "--device", "rtl"])
    said = capsys.readouterr()
    assert code == damaged
    assert ("data window 0 of `sim`" in said.err) == damaged
    verdict = "1 bytes differ" if damaged else "equal"
    assert re.search(rf"^data window 0 of `sim`: [\d,]+ bytes, {verdict}$", said.out, re.MULTILINE)


def test_a_device_that_was_not_compared_says_so(model, capsys, monkeypatch):
    class Board(SimDevice):
        name = "reference board"

    monkeypatch.setitem(DEVICES, "rtl", Board)
    assert main(["run", str(model), "--config", "4x4", "--device", "rtl"]) == 0
    assert "the results were not compared with `sim`; add `--compare`\n" in capsys.readouterr().out
