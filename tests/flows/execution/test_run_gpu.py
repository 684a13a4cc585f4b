"""`tilewright run --device gpu`: what the command prints, and what it refuses."""

import json
import sys

import pytest

from tilewright.flows.cli.main import main


def test_a_network_on_the_interpreter_is_compared_and_timed(tilewright, model):
    found = json.loads(
        tilewright(
            "run", model, "--device", "gpu:interpreter", "--compare", "--repeat", 1, "--json", "-"
        )
    )
    assert found["device"] == "gpu:interpreter"
    targets = {layer["op"]: layer["target"] for layer in found["layers"]}
    assert targets.pop("reshape") == "numpy"
    assert {*targets.values()} == {"gpu"}
    assert found["comparison"]["equal"]


def test_a_sentence_counts_the_steps_of_a_gpu(tilewright, model, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    said = tilewright("run", model, "--device", "GPU:interpreter", "--repeat", 1)
    assert "; on the host, on its GPU: quantize, qconv (3), qconv+qadd" in said.splitlines()[0]
    assert "its times are not those of a GPU" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--device", "gpu:cuda"], 3, "device `gpu:cuda`: the Python package `cuda-bindings`"),
        (["--device", "gpu:none"], 1, "device `gpu:none`: unknown driver; expected one of gpu:"),
        (["--device", "gpu:interpreter?half"], 1,
         "device `gpu:interpreter?half`: unknown option `half`; expected `?tf32`, or none"),
        (["--device", "gpu", "--placement", "cost"], 2,
         "`--placement cost`: expected a device that is an accelerator, got `--device gpu`"),
        (["--device", "gpu", "--trace", "t.json"], 2,
         "`--trace`: expected `--device sim`, `rtl` or `gate`, got `gpu`; there are no cycles"),
        (["--device", "gpu", "--latency", "9"], 2,
         "`--latency`: expected `--device sim`, `rtl` or `gate`, got `gpu`; it has no effect"),
        (["--device", "gpu", "--program-for", "latency=9"], 2,
         "`--program-for latency=9`: expected a device with an accelerator, got `gpu`"),
    ],
)  # fmt: skip
def test_mistakes_are_told(model, words, code, said, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    assert main(["run", str(model), *words]) == code
    assert said in capsys.readouterr().err
