"""`tilewright report`: a page whose figures add up, which a browser draws without the network."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tilewright import compile_graph, import_model
from tilewright.compiler.graph import Builder, Output, QConv, TensorType, Value
from tilewright.compiler.module import Module
from tilewright.flows.cli.main import main
from tilewright.flows.cli.placement_options import Placing
from tilewright.flows.execution.timed import time_segments
from tilewright.flows.reports.page import render, report_data, unit_timeline
from tilewright.flows.reports.page.causes import Cause, path_steps
from tilewright.flows.reports.page.layer_rows import layer_facts, layer_row
from tilewright.flows.reports.placement_table import placement_of
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Unit
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.pipeline import READY_CYCLES
from tilewright.runtime import load
from tilewright.sim.timing.stalls import Wait

from ..browser import Text

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"


def data_of(module: Module, memory: MemoryModel | None = None) -> dict:
    memory = memory or MemoryModel()
    return report_data(module, time_segments(module, memory), "sim", memory)


@pytest.fixture
def module(artifact) -> Module:
    return load(artifact)


@pytest.fixture
def data(module) -> dict:
    return data_of(module)


def test_the_critical_path_covers_every_cycle_once(data, module):
    cycles = data["summary"]["cycles"]
    assert cycles == sum(s.timing.cycles for s in time_segments(module)) > 0
    assert sum(data["path"]["causes"].values()) == cycles
    assert sum(row["cycles"] for row in data["path"]["rows"]) == cycles
    assert sum(step[1] for step in data["timeline"]["path"]) == cycles
    for layer in data["layers"]:
        assert sum(layer["causes"].values()) == layer["path_cycles"]
        assert layer["causes"][layer["bound"]] == max(layer["causes"].values())
    assert 0 < sum(layer["path_cycles"] for layer in data["layers"]) <= cycles


def test_layers_add_up_to_the_network(data):
    summary, layers = data["summary"], data["layers"]
    assert " + ".join(layer["name"] for layer in layers) == (
        "conv1 + conv2 + conv3 + residual + pool + dense"
    )
    assert sum(layer["macs"] for layer in layers) == summary["macs"]
    assert sum(layer["instructions"] for layer in layers) + 1 == summary["instructions"]
    added = [layer["added_cycles"] for layer in layers]
    assert 0 <= summary["cycles"] - sum(added) <= 4, "the end of the run belongs to no layer"
    ends = [each["end"] for each in data["completions"]]
    assert ends == np.cumsum(added).tolist()
    units = {each["unit"]: dict(zip(data["counters"]["names"], each["values"], strict=True))
             for each in data["counters"]["units"]}  # fmt: skip
    assert summary["read_bytes"] == units["LOAD"]["bytes"]
    assert summary["written_bytes"] == units["STORE"]["bytes"]
    for layer in layers:
        assert sum(layer["read"].values()) == layer["read_bytes"]


def test_columns_hold_every_cycle_of_every_unit(data, module):
    activity = data["activity"]
    slots = len(activity["beats"]["LOAD"])
    assert slots * activity["slot_cycles"] >= activity["cycles"]
    (segment,) = time_segments(module)
    for unit in Unit:
        rows = activity["units"][unit.name]
        slot_sums = np.sum([rows[wait] for wait in rows], axis=0)
        assert slot_sums.max() <= activity["slot_cycles"]
        assert abs(slot_sums.sum() - activity["cycles"]) <= slots
        expected = segment.activity.cycles(unit)
        for wait in Wait:
            if wait is not Wait.DONE:
                shown = sum(rows.get(wait.name.lower(), [0]))
                assert abs(shown - expected[wait]) <= slots / 2, "but for rounding"
    read, written = segment.beats
    assert sum(activity["beats"]["STORE"]) == written.cycle.size
    assert sum(activity["beats"]["LOAD"]) + sum(activity["beats"]["FETCH"]) == read.cycle.size


def test_no_layer_lies_above_the_roof_of_the_whole_network(data):
    roof, summary = data["roofline"], data["summary"]
    moved = max(summary["read_bytes"] + summary["program_bytes"], summary["written_bytes"])
    assert summary["macs"] / summary["cycles"] <= min(
        roof["peak"], summary["macs"] / moved * roof["bytes_per_cycle"]
    )
    for layer in data["layers"]:
        assert (layer["macs_per_cycle"] or 0) <= roof["peak"]


def test_what_if_holds_the_run_itself(module):
    memory = MemoryModel(latency_cycles=70, beats=2, cycles=3)
    data = data_of(module, memory)
    what = data["what_if"]
    row, column = what["latencies"].index(70), what["bandwidths"].index("2/3")
    assert what["grid"][row][column] == data["summary"]["cycles"]
    for cycles in what["grid"]:
        assert cycles == sorted(cycles, reverse=True), "more bandwidth is never slower here"
    assert {each["name"] for each in what["machines"]} == {
        "queue_depth", "outstanding_bursts", "bus_bits", "burst_beats",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "cause", "words"),
    [
        (MemoryModel(beats=1, cycles=32), Cause.MEMORY, "moves data: most of it"),
        (MemoryModel(latency_cycles=5000), Cause.LATENCY, "each 5000 or more"),
    ],
)
def test_a_worse_memory_binds_layers_and_the_sentence_says_so(module, memory, cause, words):
    before = {layer["name"]: layer for layer in data_of(module)["layers"]}
    (name,) = (name for name in before if name.startswith("conv3"))
    assert before[name]["bound"] == Cause.COMPUTE
    assert "GEMM's work" in before[name]["sentence"]
    after = {layer["name"]: layer for layer in data_of(module, memory)["layers"]}
    layer = after[name]
    assert layer["bound"] == cause
    share = layer["causes"][cause] / layer["path_cycles"]
    assert layer["sentence"].startswith(f"{share:.0%} of its critical path ")
    assert words in layer["sentence"]


def test_a_long_timeline_is_joined_and_never_empty(module, monkeypatch):
    """Sums by track and kind stay exact, and the slowest layers keep every instruction."""
    whole = data_of(module)
    slices = sum(map(len, [*whole["timeline"]["tracks"].values(), whole["timeline"]["path"]]))
    limit = slices - 1
    monkeypatch.setattr(unit_timeline, "MAX_SLICES", limit)
    timeline = data_of(module)["timeline"]
    rows = [*timeline["tracks"].values(), timeline["path"]]
    assert sum(map(len, rows)) <= limit
    assert 0 < timeline["exact_layers"] < len(whole["layers"])
    assert timeline["joined_cycles"] > 0
    for title, own in whole["timeline"]["tracks"].items():
        fewer = timeline["tracks"][title]
        assert sum(row[1] for row in fewer) == sum(row[1] for row in own)
        assert all(a[0] + a[1] <= b[0] for a, b in pairwise(fewer)), "slices never overlap"
    assert sum(row[1] for row in timeline["path"]) == whole["summary"]["cycles"]
    for begin, end in ((each["begin"], each["end"]) for each in whole["completions"]):
        assert any(row[0] < end and row[0] + row[1] > begin for row in timeline["tracks"]["GEMM"])
    for row in (row for track in rows for row in track if row[4] >= 0):
        assert timeline["instructions"][row[4]][0]


def test_the_graph_has_every_step_once_and_its_edges_lead_down(data, module):
    boxes = data["graph"]["boxes"]
    layers = [box["layer"] for box in boxes if box["kind"] == "layer"]
    assert sorted(layers) == list(range(len(data["layers"])))
    for box in boxes:
        if box["kind"] == "layer":
            assert box["name"] == data["layers"][box["layer"]]["name"]
    hosted = [box for box in boxes if box["kind"] == "host"]
    assert len(hosted) == sum(isinstance(step, str) for step in module.steps)
    tops = [box["top"] for box in boxes]
    assert tops == sorted(tops), "a chain with a shortcut"
    assert len(data["graph"]["paths"]) >= len(boxes) - 1


def test_a_gathered_first_layer_is_told_by_its_windows(data):
    """One channel on eight lanes, but the nine pixels of a window lie side by side."""
    conv1 = data["layers"][0]
    assert "channel" not in conv1["sentence"]
    assert "9 values of a window on 8 lanes" in conv1["sentence"]
    assert f"mostly {conv1['read']['windows']} bytes of windows" in conv1["sentence"]


def test_rows_of_windows_that_are_gathered_together_are_counted():
    """Five of ten rows of three pixels: windows above each other share them."""
    chance = np.random.default_rng(2)
    builder = Builder("tall", (Value("x", TensorType("int8", (1, 60, 40, 1))),))
    held = (
        chance.integers(-128, 128, (10, 3, 1, 128)).astype(np.int8),
        np.zeros(128, np.int32),
        np.full(128, 0.01, np.float32),
    )
    names = [builder.constant(data, f"c{place}") for place, data in enumerate(held)]
    conv = QConv("conv", (1, 1), (0, 0, 0, 0), (1, 1), 1, 3, 0)
    y = builder.emit(conv, ["x", *names])
    layer, *_ = data_of(compile_graph(builder.graph([Output("y", y)]), PRESETS["16x16"]))["layers"]
    assert "15 values of 5 rows of a window on 16 lanes" in layer["sentence"]


def test_no_dot_of_the_roofline_is_faster_than_the_array(module):
    """Where part of a layer's work precedes the cycles that it adds, they alone say too little."""
    (segment,) = time_segments(module)
    fact = layer_facts(module, segment, path_steps(segment))[1]
    hurried = replace(fact, added_cycles=1)
    assert layer_row(module, hurried, "")["macs_per_cycle"] <= 64
    assert layer_row(module, hurried, "")["of_peak"] > 1


def test_a_layer_that_another_holds_back_names_it():
    shallow = PRESETS["4x4"].replace(name="shallow", act_depth=32, wgt_depth=32)
    module = compile_graph(import_model(DIGITS), shallow)
    layers = data_of(module)["layers"]
    names = [layer["name"] for layer in layers]
    held = [
        re.search(r"its first LOAD waits until (\w+) is done with ([^;]+)\.$", layer["sentence"])
        for layer in layers
    ]
    assert held[0] is None
    assert any(held)
    (segment,) = time_segments(module)
    retired = segment.timing.column("retired")
    for number, found in enumerate(held):
        if found is None:
            continue
        holder = segment.segment.layers[names.index(found[2])]
        unit = Unit[found[1]]
        own = [i for i in holder.places if segment.program[i].home is unit]
        first = path_steps(segment)
        first = next(step.step.instruction for step in first if step.layer == number)
        assert segment.timing.column("ready")[first] - 1 - READY_CYCLES in retired[own]


def test_the_page_is_one_file_that_may_not_request_anything(data):
    page = render(data)
    assert (
        "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\""
        in page
    )
    addresses = set(re.findall(r"\w+://[^\s\"'<>]*", page))
    assert addresses == {"http://www.w3.org/2000/svg"}, "which is a name, never fetched"
    assert not re.search(r"<(link|img|iframe|script[^>]* src)", page)
    assert "[[" not in page.partition('id="data"')[0]


def test_names_in_a_model_are_never_markup(data):
    hostile = "</script><script>document.title='caught'</script>[[script]]<b>"
    data["network"] = hostile
    data["layers"][0]["name"] = hostile
    page = render(data)
    assert page.count("</script>") == 2
    assert "<b>" not in page
    assert page.count("[[script]]") == 3, "in the title and the data, where it is text"


def test_the_command_writes_page_and_data(tilewright, model, tmp_path):
    page, values = tmp_path / "report.html", tmp_path / "report.json"
    said = tilewright(
        "report", model, "--config", "8x16", "--latency", 100, "-o", page, "--json", values
    )
    data = json.loads(values.read_text())
    assert said.startswith(f"{page}: {data['summary']['cycles']:,} cycles, ")
    assert data["configuration"]["name"] == "8x16"
    assert data["memory"]["latency_cycles"] == 100
    assert data["measured"] is None
    layers = [layer["name"] for layer in data["layers"]]
    rows = [row for row in data["placement"]["rows"] if row["target"] == "accelerator"]
    assert [row["short"] for row in rows] == layers
    assert page.read_text() == render(data)
    assert page.stat().st_size < 500_000


@pytest.mark.slow
def test_a_measurement_stands_beside_the_model(artifact, tmp_path, capsys):
    """Progress of a build goes to stderr, so stdout stays JSON."""
    page = str(tmp_path / "report.html")
    assert main(["report", str(artifact), "--device", "rtl", "-o", page, "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["measured"] == {
        "instructions": data["summary"]["instructions"] - 1,
        "equal": True,
    }


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_draws_all_of_it_and_requests_nothing(browse, data, module, tmp_path, width):
    page = tmp_path / "report.html"
    data["placement"] = placement_of(module, Placing(clock=50))
    total = data["placement"]["total_us"]
    total["makespan"] = total["sum"] - 30  # as where both sides have work at once
    page.write_text(render(data))
    document, requested = browse(page, width)
    assert 'data-ready="true"' in document, "no script failed"
    assert requested == []
    assert document.count('class="row layer"') == len(data["layers"])
    assert document.count('class="dot"') == sum(
        layer["macs_per_cycle"] is not None for layer in data["layers"]
    )
    assert len(re.findall("<canvas [^>]*height", document)) == 1
    assert document.count('class="box" role="button"') == len(data["layers"])
    text = Text(document).text
    assert f"{data['summary']['cycles']:,}" in text["cards"]
    told: dict[str, int] = {}
    for number, layer in enumerate(data["layers"], 1):
        sentence = layer["sentence"].replace("`", "")
        share, _, reason = sentence.partition("% ")
        first = told.setdefault(reason, number)
        expected = sentence if first == number else f"{share}%, as layer {first}."
        assert expected in text["layers"]
    for unit in ("FETCH", *Unit.__members__):
        assert unit in text["activity"]
    assert "this run" in text["what-if"]
    for row in data["placement"]["rows"]:
        assert row["short"] in text["placement"]
        assert row["reason"].replace("`", "") in text["placement"]
    assert "on the accelerator at 50 MHz" in text["placement"]
    for before, us, after in (
        ("Estimated ", total["sum"], " a sample: "),
        ("; ", total["makespan"], " where both sides work at once."),
    ):
        assert f"{before}{us:.3g} µs{after}" in text["placement"]


@pytest.mark.slow
@pytest.mark.browser
def test_a_reason_is_told_once(browse, data, tmp_path):
    reason = "of its critical path is GEMM's work with every lane in use."
    shares = [99, 98, 97]
    for layer, share in zip(data["layers"], shares, strict=False):
        layer["sentence"] = f"{share}% {reason}"
    page = tmp_path / "report.html"
    page.write_text(render(data))
    text = Text(browse(page)[0]).text["layers"]
    assert text.count(reason) == 1
    for share in shares[1:]:
        assert f"{share}%, as layer 1." in text


@pytest.mark.slow
@pytest.mark.browser
def test_a_request_would_be_seen(browse, tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<img src="http://127.0.0.1:9/picture.png">')
    _, requested = browse(page)
    assert requested == ["http://127.0.0.1:9/picture.png"]
