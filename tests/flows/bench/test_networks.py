"""The bench of many networks: figures of a good one, records of bad ones, resuming, the page."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.flows.bench import networks
from tilewright.flows.bench.networks import main, measure, take_steps
from tilewright.flows.bench.networks_page import BEGIN, END, means, tables

from ...compiler.onnx_models import model, node, value

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


@pytest.fixture
def digits(tmp_path) -> Path:
    """The digits' network with samples and a description, alone in a folder."""
    folder = tmp_path / "networks"
    folder.mkdir()
    shutil.copy(DIGITS / "digits_int8_qdq.onnx", folder / "digits.onnx")
    shutil.copy(DIGITS / "test_digits.npz", folder / "digits.npz")
    about = {"kind": "digits", "source": "a|b", "licence": "BSD-3-Clause"}
    (folder / "digits.json").write_text(json.dumps(about))
    return folder / "digits.onnx"


def steps_of(path: Path, tmp_path: Path) -> dict:
    take_steps(path, tmp_path, tmp_path / "record.json")
    return json.loads((tmp_path / "record.json").read_text())


def test_a_network_has_its_figures(digits, tmp_path):
    record = steps_of(digits, tmp_path)
    assert "failed" not in record
    assert (record["kind"], record["int8"], record["equal"]) == ("digits", True, True)
    assert (record["share"], record["macs"]) == (1.0, 230_720)
    assert record["cycles"] >= record["bound"] > 0
    assert record["host"] == []
    assert 0 < record["utilisation"] < 1
    (row,) = record["cpu"]
    assert row["ratio"] > 0


def test_what_the_host_multiplies_is_recorded_with_the_reason(digits, tmp_path):
    inner = node("DequantizeLinear", ["q", "s"], ["d"])
    weights = {"s": np.float32(0.1), "w": np.ones((1, 1, 3, 3), np.float32)}
    nodes = [node("QuantizeLinear", ["x", "s"], ["q"]), inner, node("Conv", ["d", "w"], ["y"])]
    held = model(nodes, [value("x", np.float32, [1, 1, 8, 8])], ["y"], weights)
    digits.with_suffix(".npz").unlink()
    onnx.save(held, digits)
    (said,) = steps_of(digits, tmp_path)["host"]
    assert said.startswith("1 of 1 convolution runs on the host: weights not in int8")


def test_a_float_network_is_quantised_first(tmp_path):
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((8, 3, 3, 3)).astype(np.float32)}
    nodes = [node("Conv", ["x", "w"], ["y"], name="conv")]
    path = tmp_path / "float.onnx"
    onnx.save(model(nodes, [value("x", np.float32, [1, 3, 8, 8])], ["y"], weights), path)
    images = random.standard_normal((4, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "float.npz", inputs=images)
    record = steps_of(path, tmp_path)
    assert record.get("reason") is None
    assert not record["int8"]
    assert record["sqnr_db"] > 20
    assert record["share"] == 1
    assert len(record["cpu"]) == 2


def test_a_refusal_is_recorded_with_its_sentence(digits, tmp_path):
    np.savez(digits.with_suffix(".npz"), inputs=np.zeros((2, 5), np.float32))
    record = steps_of(digits, tmp_path)
    assert record["failed"] == "run"
    assert record["reason"].startswith("error: input file")
    assert record["cycles"]
    assert record["cpu"], "which needs no samples"


def test_a_reason_names_files_without_their_folders(digits, tmp_path, monkeypatch):
    def refuse(title, words, target):
        raise networks.StepFailed(f"error: {title}: cannot load {words[0]}")

    monkeypatch.setattr(networks, "figures", refuse)
    assert steps_of(digits, tmp_path)["reason"] == "error: compile: cannot load digits.onnx"


def test_a_damaged_file_is_one_record(tmp_path):
    path = tmp_path / "damaged.onnx"
    path.write_bytes(b"no model")
    np.savez(tmp_path / "damaged.npz", inputs=np.zeros((2, 5), np.float32))
    record = measure(path)
    assert record["failed"] == "quantise"
    assert record["reason"].startswith("error: model `damaged`: expected an ONNX file")
    assert "cpu" not in record


def test_a_wrong_output_on_the_cpu_is_a_failure(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(networks, "is_quantised", lambda model: False)
    rows = [{"ours_s": 1, "peer_s": 1, "ratio": 1, "largest_difference": float("nan")}]
    report = {
        "evaluation": dict.fromkeys(("sqnr_db", "same_class", "accuracy", "float_accuracy")),
        "calibration": {"rescued": []},
        "cycles": 3,
        "bound": 2,
        "host_products": [
            {"macs": 3, "sentence": "1 of 2 dense layers runs on the host: in float"}
        ],
        "totals": {"macs": 5, "all_macs": 8, "utilisation": 0.5, "cycles": 3},
        "comparison": {"equal": True, "tallies": []},
    }
    answers = {"cpu": rows}
    monkeypatch.setattr(
        networks, "figures", lambda title, words, target: answers.get(title, report)
    )
    record = steps_of(digits, tmp_path)
    assert (record["failed"], record["share"]) == ("cpu", 5 / 8)
    assert record["reason"] == "outputs nan of the largest from onnxruntime's"
    report["host_products"] = []
    record = steps_of(digits, tmp_path)
    assert record["failed"] == "run"
    assert record["reason"] == "3 multiplications on the host without a reason"


def test_a_network_that_takes_too_long_is_recorded(digits):
    record = measure(digits, 0.01)
    assert record["failed"] == "start"
    assert record["reason"] == "no result in 0.01 s"
    assert record["kind"] == "digits"


def test_a_record_is_kept_and_the_page_is_written_around_it(digits, tmp_path, monkeypatch, capsys):
    found = {"kind": "digits", "source": "a|b", "licence": "MIT", "int8": True}
    calls = []

    def pretended(path, limit_s):
        calls.append(path.stem)
        return {**found, "failed": "cpu", "reason": "error: no", "host": ["1 in float", "2 long"]}

    monkeypatch.setattr(networks, "measure", pretended)
    page = tmp_path / "page.md"
    page.write_text(f"# Models\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    asked = [str(digits.parent), "--records", str(tmp_path / "records.json"), "-o", str(page)]
    assert main(asked) == 0
    assert main(asked) == 0
    assert calls == ["digits"]
    assert main([*asked, "--again"]) == 0
    assert calls == ["digits", "digits"]
    text = page.read_text()
    assert text.startswith(f"# Models\n\n{BEGIN}\n\n1 networks of 1 kinds")
    assert text.endswith(f"{END}\n\nThe end.\n")
    assert "old" not in text
    assert "| digits | cpu | error: no |" in text
    assert "| digits | 1 in float; 2 long |" in text
    assert "| digits | a\\|b | MIT |" in text
    assert "0 without a failure" in capsys.readouterr().out


def test_means_are_geometric_and_a_float_network_counts_in_both_forms():
    one = {"int8": False, "cycles": 440, "bound": 400, "cpu": [{"ratio": 2.0}, {"ratio": 8.0}]}
    other = {"int8": True, "cycles": 484, "bound": 400, "cpu": [{"ratio": 2.0}]}
    failed = {"int8": False, "failed": "start"}
    assert means([one, other, failed]) == (
        "Geometric means: 15.4% over the bound (2 networks), 2.00x on the CPU in float "
        "(1 networks), 4.00x on the CPU in int8 (2 networks)."
    )
    assert means([failed]) == ""
    about = {"kind": "a kind", "source": "here", "licence": "MIT"}
    assert "| 440 | 10.0% |" in tables({"one": one | about})
    assert "| - | - |" in tables({"failed": failed | about | {"reason": "late"}})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "digit"], "unknown network `digit`; did you mean `digits`?"),
        (["--limit", "0"], "`--limit 0`: expected seconds above 0; correct it"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(digits, tmp_path, words, message, capsys):
    records = tmp_path / "records.json"
    assert main([str(digits.parent), "--records", str(records), *words]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
    assert not records.exists()


def test_an_empty_folder_and_foreign_records_are_refused(digits, tmp_path, capsys):
    records = tmp_path / "records.json"
    empty = tmp_path / "empty"
    assert main([str(empty), "--records", str(records)]) == 2
    message = f"folder `{empty}`: expected ONNX files, got none; check the path"
    assert capsys.readouterr().err == f"error: {message}\n"
    records.write_text('{"digits": 3}')
    assert main([str(digits.parent), "--records", str(records)]) == 1
    message = f"records `{records}`: expected a file of this bench; choose another name"
    assert capsys.readouterr().err == f"error: {message}\n"
