"""The bench of whole networks runs both contenders and shows what they took."""

import itertools
import json

import numpy as np
import onnx
import pytest

from tilewright.flows.bench import cpu_networks, openvino_peer
from tilewright.flows.bench.cpu_networks import largest_difference, main

from ...compiler.onnx_models import model, node, value


@pytest.fixture
def network(tmp_path):
    random = np.random.default_rng(3)
    weights = {
        "w": random.standard_normal((16, 3, 3, 3)).astype(np.float32),
        "v": random.standard_normal((16, 16, 1, 1)).astype(np.float32),
    }
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="first", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"], name="relu"),
        node("Conv", ["b", "v"], ["y"], name="second"),
    ]
    path = tmp_path / "small.onnx"
    onnx.save(model(nodes, [value("x", np.float32, [1, 3, 32, 32])], ["y"], weights), path)
    return path


@pytest.mark.cpu_kernels
def test_a_network_is_compared_with_onnxruntime(network, tmp_path, capsys):
    figures = tmp_path / "figures.json"
    arguments = [str(network), "--threads", "1", "--turns", "2", "--json", str(figures)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "slowest steps" in shown
    (row,) = json.loads(figures.read_text())
    assert row["largest_difference"] < 1e-5
    assert (row["kernels"], row["numpy"]) == (3, 0)
    assert row["ratio"] == pytest.approx(row["peer_s"] / row["ours_s"])
    kinds = {(step["node"], step["kind"]) for step in row["steps"]}
    assert {("relu", "Convolution"), ("second", "Convolution")} <= kinds
    seconds = [step["seconds"] for step in row["steps"]]
    assert seconds == sorted(seconds, reverse=True)


PRETENDED = """
from time import process_time
class Core:
    def compile_model(self, model, device, asked):
        assert (device, asked["INFERENCE_NUM_THREADS"]) == ("CPU", 1)
        if model.stem == "refused":
            raise RuntimeError("no such operator")
        return self
    def create_infer_request(self):
        return self
    def infer(self, given):
        assert given["x"].shape == (1, 3, 32, 32)
        until = process_time() + 0.02
        while process_time() < until:
            pass
"""


@pytest.mark.cpu_kernels
def test_openvino_is_measured_in_a_process_of_its_own(network, tmp_path, monkeypatch, capsys):
    (tmp_path / "openvino.py").write_text(PRETENDED)
    monkeypatch.syspath_prepend(tmp_path)
    figures = tmp_path / "figures.json"
    short = ["--threads", "1", "--turns", "2", "--openvino", "--json", str(figures)]
    assert main([str(network), *short]) == 0
    assert "OpenVINO" in capsys.readouterr().out
    (row,) = json.loads(figures.read_text())
    assert row["openvino_s"] == pytest.approx(0.02, rel=0.2)
    assert row["openvino_ratio"] == row["openvino_s"] / row["ours_s"]
    refused = network.rename(tmp_path / "refused.onnx")
    assert main([str(refused), *short]) == 3
    assert "OpenVINO cannot run the model: no such operator" in capsys.readouterr().err


def test_the_fastest_process_counts_on_several_threads(monkeypatch, tmp_path):
    found = iter([0.3, 0.2, 0.1, 0.4, 0.5])
    monkeypatch.setattr(openvino_peer, "_in_process", lambda *_: next(found))
    arguments = {"turns": 1, "turn_s": 0.1}
    assert openvino_peer.openvino_seconds(tmp_path, {}, threads=2, **arguments) == 0.1
    assert openvino_peer.openvino_seconds(tmp_path, {}, threads=1, **arguments) == 0.5


def test_a_missing_openvino_is_told_before_anything_is_measured(network, monkeypatch, capsys):
    monkeypatch.setattr(openvino_peer, "find_spec", lambda name: None)
    monkeypatch.setattr(cpu_networks, "measure", None)
    assert main([str(network), "--openvino"]) == 3
    assert "OpenVINO is not installed; run `" in capsys.readouterr().err


def test_contenders_are_run_in_turns():
    calls = []
    cpu_networks.in_turns((lambda: calls.append("a"), lambda: calls.append("b")), 3, 1)
    assert calls[:2] == ["a", "b"]
    switches = sum(one != other for one, other in itertools.pairwise(calls))
    assert switches == 7
    assert calls.count("a") == calls.count("b")


def test_a_difference_is_a_share_of_the_largest_number():
    ours = [np.array([1.0, 4.0], np.float32), np.array([3], np.int8)]
    theirs = [np.array([1.0, 8.0], np.float32), np.array([4], np.int8)]
    assert largest_difference(ours, theirs) == 0.5
    assert np.isnan(largest_difference([np.array([np.nan])], [np.array([1.0])]))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["nowhere.onnx"], "model `nowhere.onnx`: expected a file, got none; check the path"),
        (["--turns", "0"], "`--turns 0`: expected numbers of 1 or more; correct it"),
        (["--threads", "1", "0"], "`--threads 1 0`: expected numbers of 1 or more; correct it"),
    ],
)
def test_nothing_is_measured_where_something_is_wrong(network, capsys, monkeypatch, more, message):
    monkeypatch.setattr(cpu_networks, "measure", None)
    assert main([str(network), *more]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
