"""A model's own bytes, and tensors in other files: read only where a model may have them."""

import os

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.model_file import digest_external
from tilewright.errors import ImportModelError

from .onnx_models import model, node, value


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(11).standard_normal(shape).astype(np.float32)


def test_data_beside_the_model_is_read(tmp_path) -> None:
    weights = random(8, 8)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", np.float32, [1, 8])], ["y"])
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    x = random(1, 8)
    np.testing.assert_allclose(evaluate(import_onnx(path), {"x": x})["y"], x @ weights, rtol=1e-5)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ImportModelError, match="expected its data in a file next to the model"):
        import_onnx(path)


@pytest.mark.parametrize(
    ("location", "got"),
    [
        ("../weights.bin", "the path `../weights.bin`, which leads out of the folder"),
        ("/dev/zero", "the path `/dev/zero`, which leads out of the folder"),
        ("folder/../../weights.bin", "which leads out of the folder"),
        ("link", "the link `link`, which leads out of the folder"),
        ("loop", "`loop`: Too many levels of symbolic links"),
        ("pipe", "`pipe`: not a regular file but a pipe"),
        ("folder", "`folder`: not a regular file but a folder"),
        ("none", "`none`: No such file or directory"),
        ("", "the path ``, which leads out of the folder"),
        ("nul\0", "which leads out of the folder"),
        ("huge", "`huge`: 1,099,511,627,776 bytes, where at most 2,147,483,648 are read"),
        ("short", "`short`: 8 bytes, where 256 are needed"),
    ],
)
def test_data_of_a_model_lies_in_files_of_its_folder(tmp_path, location, got) -> None:
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "weights.bin").write_bytes(bytes(256))
    (folder / "link").symlink_to(tmp_path / "weights.bin")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "huge").touch()
    os.truncate(folder / "huge", 1 << 40)
    (folder / "short").write_bytes(bytes(8))
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", np.float32, [1, 8])], ["y"])
    proto.graph.initializer.append(numpy_helper.from_array(random(8, 8), "w"))
    (weights,) = proto.graph.initializer
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location} | ({"length": "256"} if location == "short" else {})
    for name, text in entries.items():
        weights.external_data.add(key=name, value=text)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    assert digest_external(path.read_bytes(), path) == b""  # nor is it opened for the cache
    with pytest.raises(ImportModelError) as refused:
        import_onnx(path)
    assert got in str(refused.value)


@pytest.mark.parametrize("path", ["/dev/zero", "."])
def test_what_is_no_file_is_no_model(path) -> None:
    with pytest.raises(ImportModelError, match="expected a readable file, got `not a regular file"):
        import_onnx(path)
