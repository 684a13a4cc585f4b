"""The list of the zoo, which needs no library, and what it draws."""

import importlib.util
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "model_zoo.py"


@pytest.fixture(scope="module")
def zoo():
    spec = importlib.util.spec_from_file_location("model_zoo", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_it_lists_sixty_networks_of_twelve_kinds(zoo):
    listed = zoo.networks()
    assert len(listed) >= 60
    assert len({network.name for network in listed}) == len(listed)
    assert len({network.kind for network in listed}) >= 12


def test_each_network_has_source_and_licence(zoo, capsys):
    assert zoo.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(zoo.networks())
    for line, network in zip(lines, zoo.networks(), strict=True):
        assert line.startswith(f"{network.name}: {network.kind}; ")
        if isinstance(network, zoo.Published):
            assert network.repository in line
            assert (len(network.commit), len(network.sha256)) == (40, 64)
        else:
            library = getattr(network, "network", network).library
            assert f"; {library}, random weights; " in line
            assert line.endswith(f"; {zoo.LICENCES[library]}")
            assert isinstance(network, zoo.Quantised) == ("int8 by onnxruntime" in line)


FORMS = ("qdq_uint8", "dynamic")


def test_only_what_is_asked_for_is_chosen(zoo, capsys):
    assert zoo.main(["--list", "--only", "recommendation", "--only", "espcn"]) == 0
    names = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["espcn", "dlrm_bottom", "dlrm_top", *(f"dlrm_top_{form}" for form in FORMS)]


def test_samples_fit_the_inputs_and_repeat(zoo):
    drawn = [network for network in zoo.networks() if isinstance(network, zoo.ZooNetwork)]
    for network in drawn:
        samples = zoo.draw(network.inputs, network.words, 2)
        assert list(samples) == list(network.inputs)
        for name, array in samples.items():
            assert array.shape == (2, *network.inputs[name][1:])
            if name in network.words:
                assert array.dtype == np.int64
                assert 0 < array.min() <= array.max() < zoo.WORDS
            else:
                assert array.dtype == np.float32
                assert array.std() == pytest.approx(1, rel=1e-3)
    again = zoo.draw(drawn[-1].inputs, (), 2)
    assert all(np.array_equal(again[name], samples[name]) for name in samples)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "lcnet"], "unknown network or kind `lcnet`; did you mean `lcnet_050`?"),
        ([], "expected a folder to write, got none"),
    ],
)
def test_mistakes_are_refused(zoo, arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        zoo.main(arguments)
    assert exit_.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {message}")


def test_a_published_network_is_fetched_and_checked(zoo, tmp_path, monkeypatch, capsys):
    digits = SCRIPT.parent / "digits" / "digits_int8_qdq.onnx"
    site = tmp_path / "a" / "b" / "c"
    site.mkdir(parents=True)
    (site / "x.onnx").write_bytes(digits.read_bytes())
    monkeypatch.setattr(zoo, "SITE", tmp_path.as_uri())
    right = sha256(digits.read_bytes()).hexdigest()
    one = zoo.Published("digits", "scans", "a/b", "c", "x.onnx", "MIT", right)
    other = zoo.Published("wrong", "scans", "a/b", "c", "x.onnx", "MIT", "0" * 64)
    monkeypatch.setattr(zoo, "networks", lambda: (one, other))
    assert zoo.main([str(tmp_path / "zoo")]) == 1
    assert f"expected SHA-256 {'0' * 64}, got {right}" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "zoo").iterdir()) == [
        *("digits.json", "digits.npz", "digits.onnx"),
    ]
    assert (tmp_path / "zoo" / "digits.onnx").read_bytes() == digits.read_bytes()
    with np.load(tmp_path / "zoo" / "digits.npz") as samples:
        assert samples["scan"].shape == (zoo.SAMPLES, 1, 8, 8)
    assert zoo.main([str(tmp_path / "zoo"), "--only", "digits"]) == 0
    assert "digits: is there" in capsys.readouterr().out


def test_a_missing_library_is_a_sentence_and_the_others_go_on(zoo, tmp_path, monkeypatch, capsys):
    def missing(name):
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(zoo, "import_module", missing)
    assert zoo.main([str(tmp_path), "--only", "recommendation"]) == 1
    shown = capsys.readouterr()
    assert "1 of 4: dlrm_bottom: not written: ModuleNotFoundError" in shown.err
    assert "2 of 4: dlrm_top: not written" in shown.err
    assert list(tmp_path.iterdir()) == []
