"""PyTorch modules, with a stand-in for PyTorch, which the tests do not install."""

import logging
import re
import sys
import warnings
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate, print_graph
from tilewright.compiler.quantiser import QuantiserOptions, accelerated_share
from tilewright.errors import ImportModelError, InputError, ToolError, install_command

from .quantiser.networks import small_network


class Network:
    """A module: the network that the stand-in exports, its parts, and the modes they are in."""

    def __init__(self, training: bool = False, parts: tuple["Network", ...] = ()) -> None:
        self.training, self.parts = training, parts

    def modules(self) -> list["Network"]:
        return [self, *self.parts]

    def eval(self) -> None:
        self.train(False)

    def train(self, mode: bool = True) -> None:
        for part in self.modules():
            part.training = mode


@pytest.fixture
def proto():
    net, output = small_network()
    return net.model(output)


@pytest.fixture
def torch(monkeypatch, proto):
    """A module `torch` whose exporter keeps what it was called with."""
    calls = []

    def export(module, args, *, kwargs, dynamo, verbose):
        calls.append((module.training, args, kwargs, dynamo))
        warnings.warn("something about the exporter's own parts", stacklevel=1)
        logging.getLogger("torch.onnx").warning("something else")
        return SimpleNamespace(model_proto=proto)

    module = ModuleType("torch")
    exporter = SimpleNamespace(export=export, calls=calls)
    vars(module).update(onnx=exporter, as_tensor=lambda array: ("tensor", *array.tolist()))
    monkeypatch.setitem(sys.modules, "torch", module)
    return exporter


def test_a_module_is_what_pytorch_exports(torch, proto):
    graph = tilewright.from_torch(Network(), "image")
    plain = replace(import_model(proto.SerializeToString()), name="Network")
    assert print_graph(graph) == print_graph(plain)


@pytest.mark.parametrize(
    ("example", "args", "kwargs"),
    [
        ("image", ("image",), {}),
        (("image", "mask"), ("image", "mask"), {}),
        ({"x": "image"}, (), {"x": "image"}),
        (np.arange(2), (("tensor", 0, 1),), {}),
        ([np.arange(2), "mask"], (("tensor", 0, 1), "mask"), {}),
        ({"x": np.arange(2)}, (), {"x": ("tensor", 0, 1)}),
    ],
)
def test_arguments_are_handed_over(torch, example, args, kwargs):
    tilewright.from_torch(Network(), example)
    assert torch.calls == [(False, args, kwargs, True)]


def test_a_module_is_exported_for_inference_and_left_as_it_was(torch):
    module = Network(training=True)
    tilewright.from_torch(module, "image")
    assert torch.calls[0][0] is False
    assert module.training


@pytest.mark.parametrize("training", [False, True])
def test_parts_have_modes_of_their_own(torch, training):
    """A frozen normalisation stays frozen, and a part that trains is exported for inference."""
    frozen, live = Network(False), Network(True)
    export, seen = torch.export, []

    def watched(module, *args, **kwargs):
        seen.extend(part.training for part in module.modules())
        return export(module, *args, **kwargs)

    torch.export = watched
    tilewright.from_torch(Network(training, (frozen, live)), "image")
    assert seen == [False, False, False]
    assert (frozen.training, live.training) == (False, True)


def test_nothing_is_said_of_the_exporters_own_parts(torch, caplog, recwarn):
    tilewright.from_torch(Network(), "image")
    assert not caplog.records
    assert not recwarn.list
    logging.getLogger("torch.onnx").warning("afterwards")
    assert len(caplog.records) == 1


@pytest.mark.parametrize("shape", [(20, 1, 3, 12, 12), (20, 3, 12, 12)])
def test_samples_quantise_it(torch, shape):
    samples = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    graph = tilewright.from_torch(Network(), "image", calibrate=samples)
    assert accelerated_share(graph) == 1
    real = tilewright.from_torch(Network(), "image")
    inputs = {"x": samples[0].reshape(1, 3, 12, 12)}
    ours, wanted = (next(iter(evaluate(each, inputs).values())) for each in (graph, real))
    assert 0 < np.abs(ours - wanted).max() < 0.05
    options = QuantiserOptions(keep_float=("conv0",))
    assert (
        0
        < accelerated_share(tilewright.from_torch(Network(), "image", {"x": samples}, options))
        < 1
    )


SAMPLES = np.zeros((4, 3, 9, 9), np.float32)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            SAMPLES,
            "samples to calibrate with: `x`: expected [samples, 3, 12, 12], got [4, 3, 9, 9]; "
            "reshape it",
        ),
        (
            SAMPLES[:, None],
            "samples to calibrate with: `x`: expected [samples, 1, 3, 12, 12], got "
            "[4, 1, 3, 9, 9]; reshape it",
        ),
        ([], "samples to calibrate with: expected at least one batch, got none; give some"),
        (
            {"y": SAMPLES},
            "samples to calibrate with: expected `x`, got `y`; give an array for each input, by "
            "its name",
        ),
    ],
)
def test_samples_that_do_not_fit_are_refused(torch, samples, message):
    with pytest.raises(InputError) as caught:
        tilewright.from_torch(Network(), "image", samples)
    assert str(caught.value) == message


def random_samples(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, (count, 3, 12, 12)).astype(np.float32)


def test_a_graph_has_the_name_of_its_class(torch):
    assert tilewright.from_torch(Network(), "image").name == "Network"


def test_batches_with_labels_tell_the_accuracy(torch, capsys):
    samples, labels = random_samples(12), np.arange(12) % 10
    loader = [(samples[at : at + 5], labels[at : at + 5]) for at in range(0, 12, 5)]
    graph = tilewright.from_torch(Network(), "image", loader)
    assert print_graph(graph) == print_graph(tilewright.from_torch(Network(), "image", samples))
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"Network: quantised, \d+\.\d dB signal to noise, same class as in float [\d.]+%, accuracy "
        r"[\d.]+% in float, [\d.]+% in int8, on 12 of the samples that calibrated it",
        first,
    )
    assert "accuracy" not in second


def test_targets_that_are_no_classes_are_not_labels(torch, capsys):
    tilewright.from_torch(Network(), "image", [(random_samples(4), np.zeros(4, np.float32))])
    assert "accuracy" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("samples", "doubt"),
    [
        (random_samples(1), "`x`: one sample says little about ranges; give a hundred"),
        (
            np.zeros((3, 3, 12, 12), np.float32),
            "`x`: all samples are zero and give no ranges; give real ones",
        ),
        (
            np.repeat(random_samples(1), 3, axis=0),
            "`x`: all samples are equal and say as little as one; give different ones",
        ),
    ],
)
def test_samples_that_show_little_are_mentioned(torch, samples, doubt):
    said: list[str] = []
    tilewright.from_torch(Network(), "image", samples, say=said.append)
    assert said[0] == f"warning: {doubt}"
    assert len(said) == 2


@pytest.mark.parametrize("samples", [None, random_samples(4)])
def test_the_network_is_also_written_as_onnx(torch, tmp_path, samples):
    path = tmp_path / "network.onnx"
    graph = tilewright.from_torch(Network(), "image", samples)
    onnx.save(tilewright.export_onnx(graph), path)
    again = import_model(path)
    inputs = {"x": random_samples(1)}
    ours, theirs = (next(iter(evaluate(each, inputs).values())) for each in (graph, again))
    np.testing.assert_array_equal(ours, theirs)
    assert accelerated_share(again) == (0 if samples is None else 1)


def test_a_missing_pytorch_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ToolError) as caught:
        tilewright.from_torch(Network(), "image")
    assert str(caught.value) == (
        "PyTorch: expected module `torch`, got `import of torch halted; None in sys.modules`; "
        f"install it with `{install_command('torch')}`"
    )
    assert caught.value.exit_code == 3


def test_a_missing_exporter_is_told(torch):
    def export(*args, **kwargs):
        raise ModuleNotFoundError("No module named 'onnxscript'")

    torch.export = export
    with pytest.raises(ToolError) as caught:
        tilewright.from_torch(Network(), "image")
    assert str(caught.value) == (
        "PyTorch: expected what it exports ONNX with, got `No module named 'onnxscript'`; install "
        f"it with `{install_command('torch')}`"
    )


def test_a_module_that_cannot_be_exported_is_told_by_the_cause(torch):
    def export(*args, **kwargs):
        try:
            raise ValueError("Given groups=1, expected 3 channels\n  in module `conv1`")
        except ValueError as error:
            raise RuntimeError("Failed to export the model\nNext steps: ...") from error

    torch.export = export
    module = Network(training=True)
    with pytest.raises(ImportModelError) as caught:
        tilewright.from_torch(module, "image")
    assert module.training
    assert str(caught.value) == (
        "module `Network`: expected PyTorch to export it with these arguments, got `Given "
        "groups=1, expected 3 channels`; see that the module can be called with them, and that "
        "`torch.export.export` takes it"
    )
