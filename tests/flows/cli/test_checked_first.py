"""Options that cannot be right are refused before a network is compiled, not after."""

import re

import numpy as np
import pytest

from tilewright.flows.cli.main import main


class _SearchedError(Exception):
    """The search for schedules began, which takes minutes for long networks."""


@pytest.fixture
def refused(monkeypatch, model, tmp_path, capsys):
    """Run a command on a network that is not in the cache; what it says, if it never searches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "steps.txt").write_text("arena()\n")
    np.savez(tmp_path / "other.npz", zzz=np.zeros((3, 3)))
    np.savez(tmp_path / "shape.npz", inputs=np.zeros((3, 3)))

    def search(*_, **__):
        raise _SearchedError

    monkeypatch.setattr("tilewright.compiler.pipeline.compile.group", search)

    def call(words: str) -> str:
        command, *options = words.split()
        assert main([command, str(model), *options]) in (1, 2), "refused"
        said = capsys.readouterr()
        assert said.out == ""
        return said.err.splitlines()[-1]

    return call


NO_FILE = r"`none.npz`: expected a readable file"
NO_LAYER = r"there is no layer `conv9` on the accelerator; did you mean `conv3`"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run --input none.npz", NO_FILE),
        ("run --input steps.txt", "expected NumPy's"),
        ("run --input other.npz", r"expected an array `inputs` or `scan`, got `zzz`"),
        ("run --input shape.npz", r"expected float32\[samples, 1, 8, 8\] for input `scan`"),
        ("run --state a=b", r"state `a=b`: expected an input and an output"),
        ("run --samples 99999999", r"expected at most 2,097,152 samples, got 99,999,999"),
        ("run --schedule conv9=steps.txt", NO_LAYER),
        ("run --place conv9=host", "placement of `conv9`"),
        ("compile --state a=b", r"state `a=b`: expected an input and an output"),
        ("compile --schedule conv9=steps.txt", NO_LAYER),
        ("report --device gate --input none.npz", NO_FILE),
        ("report --schedule conv9=steps.txt", NO_LAYER),
        ("report --input other.npz", r"`--input`: expected a device that runs the network, got"),
        ("evaluate --layer conv9", NO_LAYER),
        ("evaluate --layer conv1 --schedule none", r"`--schedule none`: cannot be read"),
        ("passes --until scheduled --layer conv9", r"`--layer conv9`: expected the name of a node"),
        ("passes --latency -1", r"`--latency -1`: `latency_cycles` must be from 1"),
        ("passes --set nothing=3", "unknown parameter `nothing`"),
        ("export --hex hex --input none.npz", NO_FILE),
        ("export --hex steps.txt", r"`--hex steps.txt`: cannot be made"),
        ("tune --latency 64", r"`--latency`: expected `--target accelerator`; it has no effect"),
        ("tune --config 8x8", r"`--config`: expected `--target accelerator`; it has no effect"),
        ("tune --set lanes=8x8", r"`--set`: expected `--target accelerator`; it has no effect"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_before_the_search(refused, words, message):
    assert re.search(message, refused(words))


def test_the_search_would_begin(refused):
    """So the refusals above come before it."""
    assert "unexpected _SearchedError" in refused("run")
