"""Models are cut at any values, and a refusal proposes where."""

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import NeedsInputError, RefusedError, import_onnx
from tilewright.errors import ImportModelError
from tilewright.flows.cli.main import main

from .onnx_models import floats, integers, model, node, run_onnxruntime, value


def ending_in(*last: onnx.NodeProto, outputs: tuple[str, ...], **more: np.ndarray):
    """A model of an image, with boxes [1, 9, 4] and scores [1, 2, 9], and further nodes."""
    chance = np.random.default_rng(1)
    constants = {
        "w": chance.normal(size=(4, 3, 1, 1)), "v": chance.normal(size=(2, 3, 1, 1)),
        "by": integers([1, -1, 4]), "sy": integers([1, 2, -1]), "most": integers([3]),
        "over": floats([0.5]), "low": floats([0.1]), **more,
    }  # fmt: skip
    constants = {
        name: data.astype(np.float32) if data.dtype == np.float64 else data
        for name, data in constants.items()
    }
    nodes = [
        node("Relu", ["image"], ["rectified"], name="first"),
        node("Conv", ["rectified", "w"], ["b"]),
        node("Conv", ["rectified", "v"], ["s"]),
        node("Reshape", ["b", "by"], ["boxes"], name="boxes/reshape"),
        node("Reshape", ["s", "sy"], ["scores"]),
        node("ReduceMean", ["rectified"], ["mean"], axes=[2, 3]),
        *last,
    ]
    return model(nodes, [value("image", np.float32, [1, 3, 3, 3])], outputs, constants)


NMS = node("NonMaxSuppression", ["boxes", "scores", "most", "over", "low"], ["kept"], name="nms")


def looping() -> onnx.NodeProto:
    """A Loop whose number of turns depends on the scores."""
    body = onnx.helper.make_graph(
        [node("Identity", ["going"], ["goes"]), node("Add", ["total", "total"], ["next"])],
        "body",
        [
            onnx.helper.make_tensor_value_info("turn", onnx.TensorProto.INT64, []),
            onnx.helper.make_tensor_value_info("going", onnx.TensorProto.BOOL, []),
            onnx.helper.make_tensor_value_info("total", onnx.TensorProto.FLOAT, [1, 9, 4]),
        ],
        [onnx.ValueInfoProto(name="goes"), onnx.ValueInfoProto(name="next")],
    )
    return node("Loop", ["turns", "", "boxes"], ["doubled"], name="loop", body=body)


CASES = {
    "NonMaxSuppression": ([NMS], ("mean", "kept"), ("mean", "boxes", "scores")),
    "NonZero": ([node("NonZero", ["boxes"], ["kept"])], ("kept",), ("boxes",)),
    "two of them": (
        [
            node("NonZero", ["scores"], ["first"]),
            node("Tanh", ["boxes"], ["bent"]),
            node("NonZero", ["bent"], ["second"]),
        ],
        ("first", "second", "scores"),
        ("scores", "bent"),
    ),
    "one behind another": (
        [NMS, node("NonZero", ["kept"], ["again"])], ("again",), ("boxes", "scores"),
    ),
    "TopK": (
        [
            node("ReduceMax", ["scores"], ["best"], keepdims=0),
            node("Cast", ["best"], ["whole"], to=onnx.TensorProto.INT64),
            node("Reshape", ["whole", "one"], ["count"]),
            node("TopK", ["scores", "count"], ["top", "places"]),
        ],
        ("top",),
        ("scores", "count"),
    ),
    "Loop": (
        [
            node("ReduceMax", ["scores"], ["best"], keepdims=0),
            node("Cast", ["best"], ["turns"], to=onnx.TensorProto.INT64),
            looping(),
        ],
        ("doubled", "mean"),
        ("mean", "boxes", "turns"),
    ),
    "an operator that does not exist": (
        [node("Secret", ["scores"], ["y"], domain="some.where")], ("y", "mean"),
        ("mean", "scores"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_proposes_a_cut_that_is_accepted(case):
    last, outputs, cut = CASES[case]
    proto = ending_in(*last, outputs=outputs, one=integers([1]))
    proto.opset_import.append(onnx.helper.make_opsetid("some.where", 1))
    file = proto.SerializeToString()
    with pytest.raises(RefusedError) as caught:
        import_model(file)
    assert set(caught.value.cut) == set(cut)
    assert str(caught.value).endswith(
        f"; `--outputs {','.join(caught.value.cut)}` cuts the model there"
    )
    graph = import_model(file, outputs=caught.value.cut)
    x = np.random.default_rng(2).normal(size=(1, 3, 3, 3)).astype(np.float32)
    known = ending_in(outputs=("boxes", "scores", "mean"))
    expected = run_onnxruntime(known, {"image": x})
    got = evaluate(graph, {"image": x})
    assert set(got) == set(cut)
    for name in set(got) & set(expected):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-6)


def test_a_model_is_cut_at_values_and_at_nodes():
    file = ending_in(NMS, outputs=("kept",)).SerializeToString()
    graph = import_onnx(file, outputs=["boxes/reshape", "mean"])
    assert [output.name for output in graph.outputs] == ["boxes", "mean"]
    graph = import_onnx(file, outputs=["first"])
    assert [node.op for node in graph.nodes] == ["unary"]


def test_an_unknown_cut_gets_a_suggestion():
    file = ending_in(NMS, outputs=("kept",)).SerializeToString()
    with pytest.raises(ImportModelError) as caught:
        import_onnx(file, outputs=["boxs"])
    assert str(caught.value).startswith(
        "model `model`: expected outputs that its nodes make, got `boxs`; did you mean `boxes`"
    )


def test_a_cut_like_no_name_gets_the_last_ones() -> None:
    """The model cannot be imported whole, so that no command could list its names."""
    file = ending_in(NMS, outputs=("kept",)).SerializeToString()
    with pytest.raises(ImportModelError, match=r"got `qqq`; the last ones are `.*` or `kept`$"):
        import_onnx(file, outputs=["qqq"])


def test_a_suggestion_for_a_cut_has_each_name_once():
    """Exporters often name a node as its output."""
    node = onnx.helper.make_node("Relu", ["x"], ["front"], name="front")
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])
        for name in ("x", "front")
    )
    file = onnx.helper.make_model(
        onnx.helper.make_graph([node], "model", [x], [y])
    ).SerializeToString()
    with pytest.raises(ImportModelError, match=r"got `frnt`; did you mean `front`\?$"):
        import_onnx(file, outputs=["frnt"])


def test_sizes_are_fixed_and_data_are_not():
    """The first model reshapes to an input of sizes, the second one to rounded data."""
    for shape, data in (([2], ()), ([1, 3, 3, 3], ("s",))):
        nodes = [
            node("Cast", ["s"], ["i"], to=onnx.TensorProto.INT64),
            node("Reshape", ["i", "one"], ["flat"]),
            node("Reshape", ["x", "flat"], ["y"]),
        ]
        inputs = [value("x", np.float32, [6]), value("s", np.float32, shape)]
        proto = model(nodes, inputs, ["y"], {"one": integers([-1])})
        with pytest.raises(NeedsInputError) as caught:
            import_model(proto.SerializeToString())
        assert caught.value.inputs == ("s",)
        assert caught.value.data == data
        assert ("--fix" in str(caught.value)) == (not data)


def test_the_network_is_not_fixed_to_a_constant_by_accident(tmp_path, capsys):
    path, samples = tmp_path / "detector.onnx", tmp_path / "samples.npz"
    onnx.save(ending_in(NMS, outputs=("kept",)), path)
    np.savez(samples, image=floats(np.ones((1, 1, 3, 3, 3))))
    assert main(["run", str(path), "--input", str(samples)]) == 1
    assert capsys.readouterr().err.endswith("`--outputs boxes,scores` cuts the model there\n")
    zeros = f"image={np.zeros((1, 3, 3, 3), int).tolist()}"
    assert main(["run", str(path), "--fix", zeros]) == 1
    assert capsys.readouterr().err == (
        "error: fixed `image`: expected outputs that are computed at run time, got constants "
        "alone: this input holds the data, not sizes; give it as data, and cut the model: "
        "`--outputs boxes,scores`\n"
    )
    artifact = tmp_path / "detector.tw"
    assert main(["compile", str(path), "--outputs", "boxes,scores", "-o", str(artifact)]) == 0
    assert main(["run", str(artifact)]) == 0


def test_a_refused_node_whose_result_has_a_name_in_use_is_one_sentence():
    """As in a damaged file: no node is without its result, so results do not tell the position."""
    proto = ending_in(node("NonZero", ["boxes"], ["rectified"], name="late"), outputs=("mean",))
    with pytest.raises(ImportModelError):
        import_onnx(proto.SerializeToString())
