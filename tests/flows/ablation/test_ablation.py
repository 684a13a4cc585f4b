"""`tilewright ablation`: every variant gives the same bits, and what it lacks costs cycles."""

import importlib.util
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Constant, Graph, Node, Output, QConv, TensorType, Value
from tilewright.compiler.module import Module
from tilewright.compiler.pipeline import CompileRequest, compile_module
from tilewright.errors import install_command
from tilewright.flows.ablation.figure import draw_variants
from tilewright.flows.ablation.traffic import Traffic, least_traffic, moved_traffic
from tilewright.flows.ablation.variants import (
    LayerResult,
    Variant,
    geometric_means,
    measure_variant,
    variants,
)
from tilewright.flows.bench.resnet18_layers import RESNET18, layer_graph
from tilewright.flows.cli.main import main
from tilewright.flows.execution.compile_cache import CompileCache
from tilewright.flows.execution.samples import random_samples
from tilewright.isa.configuration import DEFAULT, PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import Session, open_device

C4 = next(shape for shape in RESNET18 if shape.name == "C4")


def depthwise_graph() -> Graph:
    """A 3x3 convolution that keeps 16 channels apart."""
    generator = np.random.default_rng(5)
    constants = (
        Constant("w", generator.integers(-127, 128, (3, 3, 1, 16)).astype(np.int8)),
        Constant("bias", generator.integers(-500, 500, 16).astype(np.int32)),
        Constant("scale", np.full(16, 0.003, dtype=np.float32)),
    )
    tensor = TensorType("int8", (1, 10, 10, 16))
    conv = QConv("depthwise", (1, 1), (1, 1, 1, 1), (1, 1), 16, 3, -4)
    node = Node("keep", conv, ("x", "w", "bias", "scale"), (Value("out", tensor),))
    return Graph("apart", (Value("x", tensor),), (Output("out", "out"),), (node,), constants)


_KEPT: dict[object, Module] = {}


@pytest.fixture
def variants_once(monkeypatch) -> None:
    """Compile each variant of a network once for the tests of what is told about it."""

    def compile_once(graph, configuration, progress, *, measure, **wishes):
        request = CompileRequest(graph=graph, configuration=configuration, **wishes)
        key = CompileCache.of_request(request).path.name, measure and measure.memory
        if key not in _KEPT:
            _KEPT[key] = compile_module(graph, configuration, progress, measure=measure, **wishes)
        return _KEPT[key]

    monkeypatch.setattr("tilewright.flows.ablation.variants.compile_module", compile_once)


def bits(graph: Graph, variant: Variant) -> dict[str, np.ndarray]:
    """What a variant computes on the functional simulator."""
    inputs = next(iter(random_samples(graph, 1, 7)))
    with open_device("sim", variant.configuration) as device:
        return dict(Session(variant.compile(graph), device).run(inputs).outputs)


@pytest.mark.slow
@pytest.mark.parametrize("small", ["4x4", "16x16"])
def test_every_variant_gives_the_same_bits(model, small):
    graph = import_model(model)
    first, *others = variants(graph, PRESETS[small])
    expected = bits(graph, first)
    for variant in others:
        found = bits(graph, variant)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, variant.name)


def test_the_depthwise_mode_is_left_out_only_where_it_is_used(model):
    apart, digits = depthwise_graph(), import_model(model)
    names = [variant.name for variant in variants(apart, DEFAULT)]
    assert names[-2:] == ["without depthwise mode", "nothing of all that"]
    assert all(each.configuration == DEFAULT for each in variants(digits, DEFAULT))
    bare = DEFAULT.replace(depthwise_taps=0)
    assert all(each.configuration == bare for each in variants(apart, bare))


def test_without_the_depthwise_mode_the_bits_are_the_same_and_cost_more():
    graph = depthwise_graph()
    found = {variant.name: variant for variant in variants(graph, DEFAULT)}
    whole, without = found["everything"], found["without depthwise mode"]
    np.testing.assert_array_equal(bits(graph, whole)["out"], bits(graph, without)["out"])
    slow, fast = (measure_variant(each, graph, MemoryModel()) for each in (without, whole))
    assert slow.cycles > fast.cycles
    assert slow.moved.read_bytes > fast.moved.read_bytes
    assert slow.least == fast.least


def test_the_least_traffic_is_each_needed_byte_once():
    apart = variants(depthwise_graph(), DEFAULT)[0].compile(depthwise_graph())
    assert least_traffic(apart) == Traffic(10 * 10 * 16 + 9 * 16 + 8 * 16, 10 * 10 * 16)


@pytest.mark.parametrize(("name", "rows"), [("C3", 56), ("C4", 28)])
def test_of_an_input_only_pixels_in_a_window_are_needed(name, rows):
    """A 3x3 window in steps of two reads all of 56 x 56; a 1x1 window every other row, column."""
    shape = next(shape for shape in RESNET18 if shape.name == name)
    graph = layer_graph(shape)
    module = variants(graph, DEFAULT)[0].compile(graph)
    weights = shape.kernel**2 * shape.channels_in * shape.channels_out
    read = rows * rows * shape.channels_in + weights + 8 * shape.channels_out
    assert least_traffic(module) == Traffic(read, 28 * 28 * shape.channels_out)


@pytest.mark.usefixtures("variants_once")
@pytest.mark.parametrize("place", range(8))
def test_no_variant_moves_less_than_the_least(model, place):
    graph = import_model(model)
    module = variants(graph, PRESETS["4x4"])[place].compile(graph)
    moved, least = moved_traffic(module), least_traffic(module)
    assert moved.read_bytes >= least.read_bytes
    assert moved.written_bytes >= least.written_bytes


@pytest.mark.usefixtures("variants_once")
def test_a_network_has_a_row_for_each_variant(tilewright, model):
    said = tilewright("ablation", model, "--config", "4x4")
    lines = said.splitlines()
    named = [line.split("  ")[0] for line in lines[lines.index("") + 2 :]]
    chosen = variants(import_model(model), PRESETS["4x4"])
    assert named == [*(each.name for each in chosen), "least traffic"]


@pytest.mark.usefixtures("variants_once")
def test_json_is_complete_and_says_what_a_run_takes(tilewright, model):
    found = json.loads(tilewright("ablation", model, "--config", "4x4", "--json"))
    run = json.loads(tilewright("run", model, "--config", "4x4", "--json", "-"))
    rows = {row["name"]: row for row in found["variants"]}
    whole = rows["everything"]
    for row in rows.values():
        moved = row["read_bytes"] + row["written_bytes"]
        assert row["over_least"] == moved / sum(found["least"].values())
        assert row["ratio"] == row["cycles"] / whole["cycles"]
    for name in ("cycles", "read_bytes", "written_bytes"):
        assert whole[name] == run["totals"][name]
    assert whole["of_peak"] == run["totals"]["utilisation"]
    assert rows["pipeline depth 1"]["cycles"] > rows["pipeline depth 2"]["cycles"]
    assert rows["nothing of all that"]["cycles"] > whole["cycles"]


@pytest.mark.slow
def test_an_artifact_is_compiled_anew(tilewright, model, artifact):
    table = tilewright("ablation", model, "--config", "8x8", "--json")
    assert tilewright("ablation", artifact, "--json") == table


def test_layers_are_measured_at_every_depth(tilewright, tmp_path):
    path = tmp_path / "layers.json"
    said = tilewright("ablation", "--layers", "C10,C4", "--json", path)
    found = json.loads(path.read_text())
    assert [layer["name"] for layer in found["layers"]] == ["C4", "C10"]
    for layer in found["layers"]:
        cycles = {row["depth"]: row["cycles"] for row in layer["depths"]}
        assert list(cycles) == [1, 2, 3, 0]
        assert cycles[1] > 1.2 * cycles[2]
        for row in layer["depths"]:
            assert row["of_peak"] == pytest.approx(layer["macs"] / (256 * row["cycles"]))
            assert row["of_peak"] <= layer["bound"]
            assert row["of_bound"] == pytest.approx(row["of_peak"] / layer["bound"])
    total = {row["depth"]: row["cycles"] for row in found["total"]["depths"]}
    assert total[1] == sum(
        layer["times"] * layer["depths"][0]["cycles"] for layer in found["layers"]
    )
    assert f"{total[0]:,}" in said
    for place, mean in enumerate(found["geometric_means"]):
        shares = [(layer["times"], layer["depths"][place]["of_bound"]) for layer in found["layers"]]
        assert mean["depth"] == found["layers"][0]["depths"][place]["depth"]
        once = np.prod([share for _, share in shares]) ** (1 / len(shares))
        count = sum(times for times, _ in shares)
        repeated = np.prod([share**times for times, share in shares]) ** (1 / count)
        assert mean["of_bound_each_layer_once"] == pytest.approx(once)
        assert mean["of_bound_as_often_as_in_network"] == pytest.approx(repeated)
    assert f"{once:.1%} of each layer once, {repeated:.1%} of each as often" in said


def test_a_layer_counts_once_or_as_often_as_the_network_has_it():
    def layer(times: int, share: float) -> LayerResult:
        return LayerResult("any", times, 1, Traffic(1, 1), 1.0, 1000 * share, {0: 1000})

    once, repeated = geometric_means([layer(3, 0.9), layer(1, 0.4)], 0)
    assert once == pytest.approx((0.9 * 0.4) ** (1 / 2))
    assert repeated == pytest.approx((0.9**3 * 0.4) ** (1 / 4))


def test_a_narrow_memory_lowers_the_roofline(tilewright):
    call = ("ablation", "--layers", "C4", "--json", "--bandwidth", "1/4")
    (layer,) = json.loads(tilewright(*call))["layers"]
    # Two bytes a cycle, and writing is the busier direction.
    assert layer["macs_per_byte"] == C4.macs / (28 * 28 * 128)
    assert layer["bound"] == layer["macs_per_byte"] * 2 / 256
    assert all(row["of_bound"] <= 1 for row in layer["depths"])


def texts(figure: bytes) -> set[str]:
    return {text.strip() for text in ElementTree.fromstring(figure).itertext()}


def test_a_figure_of_layers_is_xml_and_the_same_each_time(tilewright, tmp_path):
    paths = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for path in paths:
        tilewright("ablation", "--layers", "C4", "--figure", path)
    one, two = (path.read_bytes() for path in paths)
    assert one == two
    assert {"C4", "all", "depth 1", "all the room", "roofline"} <= texts(one)


def test_a_figure_of_variants_is_xml_and_the_same_each_time(tmp_path):
    graph, paths = depthwise_graph(), [tmp_path / "one.svg", tmp_path / "two.svg"]
    chosen = variants(graph, DEFAULT)
    results = [measure_variant(each, graph, MemoryModel()) for each in chosen]
    for path in paths:
        draw_variants(path, "apart", results)
    one, two = (path.read_bytes() for path in paths)
    assert one == two
    assert {"read", "written", "least", *(each.name for each in chosen)} <= texts(one)


def test_errors_come_before_anything_long(model, monkeypatch, capsys):
    def said(*arguments: object) -> tuple[int, str]:
        code = main(["ablation", *map(str, arguments)])
        return code, capsys.readouterr().err

    assert said("--json", model) == (
        2,
        f"error: `--json {model}`: expected a name that ends in `.json`, or none for stdout; put "
        "MODEL before `--json`\n",
    )
    assert said("--layers", "C1") == (
        2,
        "error: `--layers C1`: expected some of C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, got "
        "`C1`; correct it\n",
    )
    assert said(model, "--layers", "C2") == (
        2,
        f"error: `--layers C2`: expected no MODEL beside it, got `{model}`; leave one of them "
        "out\n",
    )
    assert said("--figure", "out.png") == (
        2,
        "error: `--figure out.png`: expected a name that ends in `.svg`; rename it\n",
    )
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    assert said("--figure", "out.svg") == (
        3,
        "error: `--figure`: the Python package `matplotlib` is not installed; run "
        f"`{install_command('figures')}`, or leave `--figure` out\n",
    )


@pytest.mark.slow
def test_a_figure_that_cannot_be_written(model, tmp_path: Path, capsys):
    target = tmp_path / "nowhere" / "out.svg"
    assert main(["ablation", str(model), "--config", "4x4", "--figure", str(target)]) == 2
    *_, last = capsys.readouterr().err.splitlines()  # after progress, if compiling takes long
    assert last == (
        f"error: `--figure {target}`: cannot be written, got `No such file or directory`; choose "
        "another path"
    )


def test_a_variant_that_does_not_fit_is_named(model, capsys):
    assert main(["ablation", str(model), "--config", "4x4", "--set", "wgt_depth=8"]) == 1
    assert capsys.readouterr().err.startswith("error: ablation `everything`: kernel `conv2`: no ")
