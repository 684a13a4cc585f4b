"""A detector as exporters write it: shapes fold away, convolutions run on the accelerator."""

import json
from collections import Counter

import numpy as np
import onnx
import pytest
from onnxruntime import quantization

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, QConv, evaluate, is_accelerated
from tilewright.compiler.importers import NeedsInputError, import_onnx
from tilewright.compiler.quantiser import accelerated_share, make_batches, quantise
from tilewright.errors import ImportModelError
from tilewright.flows.cli.main import main

from ..compiler.onnx_models import run_onnxruntime
from .builder import run_on_sim
from .detector import BEST, SHAPE_OPERATORS, Detector, draw_image

SIZE = {"height": 64, "width": 96}
BOXES = 2 * (16 * 24 + 8 * 12)
LAYERS = 7
"""Convolutions of the network."""


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector()


@pytest.fixture(scope="module")
def model(detector) -> bytes:
    return detector.file()


def image(seed: int, batch: int = 1, height: int = 64, width: int = 96) -> np.ndarray:
    return draw_image(seed, batch, height, width)


def peer(model: bytes, x: np.ndarray) -> list[np.ndarray]:
    proto = onnx.load_from_string(model)
    return list(run_onnxruntime(proto, {"image": x}, optimise=False).values())


def depends_on_inputs(graph: Graph) -> bool:
    """Whether every node computes something that another image would change."""
    told = {value.name for value in graph.inputs}
    for node in graph.nodes:
        if told.isdisjoint(node.inputs):
            return False
        told |= {value.name for value in node.outputs}
    return True


@pytest.mark.parametrize(("batch", "height", "width"), [(1, 64, 96), (2, 64, 96), (3, 32, 40)])
def test_shapes_fold_away_whatever_the_extents(detector, model, batch, height, width):
    found = Counter(node.op_type for node in detector.nodes)
    assert sum(found[kind] for kind in SHAPE_OPERATORS) > 40
    assert found["Reshape"] + found["Resize"] == 7, "whose shapes follow from them"
    graph = import_model(model, batch, dims={"height": height, "width": width})
    assert depends_on_inputs(graph)
    assert {node.op for node in graph.nodes} == {
        *("conv", "binary", "unary", "reduce", "topk", "gather_nd", "gather_elements"),
        *("reshape", "transpose", "slice", "concat", "gather"),
    }
    assert sum(node.op == "gather" for node in graph.nodes) == 2, "the resize, along two axes"
    x = draw_image(0, batch, height, width)
    ours, theirs = evaluate(graph, {"image": x}).values(), peer(model, x)
    assert theirs[0].shape == (batch, BEST, 4)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-4)


def test_fewer_boxes_than_asked_for_are_all_of_them(model):
    graph = import_model(model, dims={"height": 8, "width": 8})
    x = draw_image(0, 1, 8, 8)
    ours, theirs = evaluate(graph, {"image": x}).values(), peer(model, x)
    assert theirs[1].shape == (1, 10)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-4)


class Calibration(quantization.CalibrationDataReader):
    """Hands images to ONNX Runtime's quantiser, one by one."""

    def __init__(self) -> None:
        self.images = iter([{"image": image(seed)} for seed in range(8)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.images, None)


@pytest.fixture(scope="module")
def quantised(model, tmp_path_factory) -> bytes:
    """The model in QDQ form by ONNX Runtime, its convolutions in int8."""
    folder = tmp_path_factory.mktemp("detector")
    (folder / "float.onnx").write_bytes(model)
    quantization.quantize_static(
        *(folder / "float.onnx", folder / "int8.onnx", Calibration()),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
        op_types_to_quantize=["Conv", "Relu", "Concat", "Resize"],
        per_channel=True,
    )
    return (folder / "int8.onnx").read_bytes()


def assert_same_boxes(ours, theirs, share: float, tolerance: float) -> None:
    """Of the best boxes of one image so many are the same, as close as told."""
    (boxes, scores, kinds), (others, wanted, expected) = ours, theirs
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=tolerance)
    distances = np.abs(boxes[0][:, None] - others[0][None]).max(axis=-1)
    near = distances.min(axis=1) < 100 * tolerance
    assert near.mean() >= share
    same = kinds[0] == expected[0][distances.argmin(axis=1)]
    assert same[near].all()


def test_convolutions_in_int8_run_on_the_accelerator(quantised):
    graph = import_model(quantised, dims=SIZE)
    assert depends_on_inputs(graph)
    layers = [node for node in graph.nodes if isinstance(node.attributes, QConv)]
    assert len(layers) == LAYERS
    assert accelerated_share(graph) == 1
    accelerated = {node.op for node in graph.nodes if is_accelerated(node)}
    assert accelerated >= {"qconv", "qconcat", "qresize"}
    x = image(20)
    ours = run_on_sim(graph, {"image": x})
    meaning = evaluate(graph, {"image": x}).values()
    assert all(np.array_equal(one, other) for one, other in zip(ours, meaning, strict=True))
    assert_same_boxes(ours, peer(quantised, x), share=1, tolerance=2e-3)


def test_the_project_quantises_it_by_itself(model):
    graph = import_onnx(model, dims=SIZE)
    samples = np.stack([image(seed) for seed in range(8)])
    integer = quantise(graph, make_batches(graph, {"image": samples})).integer_graph()
    assert depends_on_inputs(integer)
    assert accelerated_share(integer) == 1
    x = image(21)
    meaning = list(evaluate(integer, {"image": x}).values())
    exact = run_on_sim(integer, {"image": x}, least_work=None)
    assert all(np.array_equal(one, other) for one, other in zip(exact, meaning, strict=True))
    ours = run_on_sim(integer, {"image": x})
    assert_same_boxes(ours, meaning, share=1, tolerance=1e-5)
    assert_same_boxes(ours, evaluate(graph, {"image": x}).values(), share=0.7, tolerance=0.03)


@pytest.fixture
def files(model, tmp_path):
    (tmp_path / "detector.onnx").write_bytes(model)
    images = np.concatenate([image(seed) for seed in range(22, 26)])
    outputs = np.concatenate([peer(model, x[None])[0] for x in images])
    np.savez(tmp_path / "images.npz", inputs=images, outputs=outputs)
    return tmp_path / "detector.onnx", tmp_path / "images.npz"


def test_the_command_line_fixes_open_dimensions(files, capsys):
    model, images = files
    dims = ("--dim", "height=64", "--dim", "width=96")
    assert main(["run", str(model), *dims, "--input", str(images), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["sqnr_db"] > 100
    assert main(["run", str(model), "--dim", "height=64", "--input", str(images)]) == 1
    assert capsys.readouterr().err == (
        "error: model `detector`: expected the extents of all dimensions, got none for `width` "
        "(dimension 3 of `image`); export the model with a static shape or give `--dim "
        "width=EXTENT`\n"
    )


def test_a_result_of_as_many_rows_as_boxes_are_kept_is_refused_with_a_cut():
    made = Detector(suppress=True)
    last = made.nodes[-1]
    with pytest.raises(NeedsInputError) as caught:
        import_model(made.file(), dims=SIZE)
    cut = caught.value.cut
    assert set(cut) <= set(last.input)
    assert str(caught.value) == (
        f"model `model`: node `{last.name}` (NonMaxSuppression): expected operands known at "
        "import, since the extents of its result follow from their values, got some computed at "
        "run time; let the model end in front of it and do the rest on its outputs; it depends on "
        f"`image`, which holds data and cannot be fixed; `--outputs {','.join(cut)}` cuts the "
        "model there"
    )
    graph = import_model(made.file(), dims=SIZE, outputs=cut)
    assert [output.name for output in graph.outputs] == list(cut)


def test_an_image_is_not_fixed_to_make_a_constant_of_the_network():
    made = Detector(suppress=True).file()
    with pytest.raises(ImportModelError, match=r"holds the data, not sizes; .* `--outputs "):
        import_model(made, fixed={"image": image(27)}, dims=SIZE)


def test_the_result_of_one_image_is_known_once_the_image_is():
    made = Detector(suppress=True).file()
    x = image(27)
    graph = import_onnx(made, fixed={"image": x}, dims=SIZE)
    (kept,) = evaluate(graph, {}).values()
    np.testing.assert_array_equal(kept, peer(made, x)[0])
