"""`--operators FILE.py`: a network with operators of the user's own, from the command line."""

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.compiler.registered import REGISTERED
from tilewright.flows.cli import arguments
from tilewright.flows.cli.main import main

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_operators.py"


@pytest.fixture(autouse=True)
def _registers_nothing() -> Iterator[None]:
    before = dict(REGISTERED)
    REGISTERED.clear()
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


@pytest.fixture
def example(_registers_nothing: None) -> Iterator:
    """The example as a module; the examples are no package."""
    spec = importlib.util.spec_from_file_location("own_operators", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def files(example, tmp_path: Path) -> tuple[Path, Path]:
    """The example's network and samples; nothing is registered."""
    found = example.write(tmp_path)
    REGISTERED.clear()
    return found


def changed(tmp_path: Path, old: str, new: str) -> Path:
    """The example's file with one change."""
    text = EXAMPLE.read_text()
    assert old in text
    file = tmp_path / "operators.py"
    file.write_text(text.replace(old, new))
    return file


@pytest.mark.parametrize("device", ["sim", "host"])
def test_a_network_is_quantised_run_and_compared(files, device, tmp_path):
    model, samples = files
    shown = tmp_path / "run.json"
    common = ["--operators", str(EXAMPLE), "--calibrate", str(samples), "--config", "4x4"]
    command = ["run", str(model), *common, "--input", str(samples), "--device", device]
    assert main([*command, "--compare", "--json", str(shown)]) == 0
    layers = json.loads(shown.read_text())["layers"]
    (layer,) = (one for one in layers if one["op"] == "Correlation")
    assert layer["target"] == ("accelerator" if device == "sim" else "host")


LAW, KERNEL = "(x + sqrt(x * x + b)) / 2", "a[place] * b[place]"
CHANGES = ((LAW, "x + b"), (KERNEL, "a[place] * b[place] * 2"), (LAW, LAW))


def test_an_artifact_needs_no_operators_and_their_meaning_is_part_of_the_cache_key(
    files, tmp_path, capsys
):
    model, samples = files
    made = []
    for number, change in enumerate((*CHANGES, CHANGES[0])):
        file = tmp_path / f"{number}.tw"
        common = ["--operators", str(changed(tmp_path, *change)), "--calibrate", str(samples)]
        assert main(["compile", str(model), *common, "--config", "4x4", "-o", str(file)]) == 0
        made.append(file.read_bytes())
        REGISTERED.clear()
    assert len({*made}) == len(CHANGES)
    assert made[0] == made[-1]
    assert main(["run", str(tmp_path / "0.tw"), "--input", str(samples), "--compare"]) == 0
    assert "Corr" in capsys.readouterr().out


def test_a_network_of_laws_alone_is_cached_by_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    laws = tmp_path / "laws.py"
    laws.write_text(
        "import tilewright\n"
        "tilewright.register_operator('Twice', domain='com.example', law='x * 2')\n"
    )
    made = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="com.example")],
        "twice",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    model = tmp_path / "twice.onnx"
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=8), model)
    command = ["run", str(model), "--operators", str(laws), "--device", "host"]
    assert main(command) == 0
    with monkeypatch.context() as patch:
        patch.setattr(arguments, "compile_placed", None)  # it is not called
        assert main(command) == 0
    laws.write_text(laws.read_text().replace("x * 2", "x * 3"))
    asked = []
    anew = arguments.compile_placed
    monkeypatch.setattr(
        arguments, "compile_placed", lambda *a, **more: asked.append(a) or anew(*a, **more)
    )
    assert main(command) == 0
    assert len(asked) == 1


def test_a_model_that_quantise_wrote_is_read_with_the_same_operators(files, tmp_path):
    model, samples = files
    written = tmp_path / "int8.onnx"
    options = ["--operators", str(EXAMPLE)]
    command = ["quantise", str(model), *options, "--calibrate", str(samples), "-o", str(written)]
    assert main(command) == 0
    assert main(["run", str(written), *options, "--config", "4x4", "--compare"]) == 0


REFUSED = {
    "a file that is not there": (None, 2, "expected a Python file, `FILE.py`; check the path"),
    "a file without operators": (
        "x = 1\n",
        2,
        "expected a file that calls `tilewright.register_operator`, got one that registers nothing",
    ),
    "a file that fails": (
        "x = 1\ny = x / 0\n",
        1,
        ", line 2: expected it to run, got `ZeroDivisionError: division by zero`; correct the file",
    ),
    "a law that is none": (
        "import tilewright\ntilewright.register_operator('A', domain='me', law='x[0]')\n",
        1,
        "operator `me.A`: law `x[0]`: `x[0]` is not part of a law",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_file_of_operators_is_refused(what, files, tmp_path, capsys):
    text, code, message = REFUSED[what]
    file = tmp_path / "operators.py"
    if text is not None:
        file.write_text(text)
    assert main(["run", str(files[0]), "--operators", str(file)]) == code
    assert re.search(re.escape(message), capsys.readouterr().err)


def test_the_example_runs(example, capsys):
    assert example.main([]) == 0
    assert "Corr" in capsys.readouterr().out


@pytest.mark.slow
def test_the_hardware_computes_the_same(example, capsys):
    assert example.main(["--device", "rtl"]) == 0
    assert "Corr" in capsys.readouterr().out
