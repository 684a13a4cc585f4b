"""Hostile inputs at the edges: each ends in its result or in one sentence."""

from collections import Counter
from pathlib import Path

import pytest

from tilewright.compiler.importers import import_onnx
from tilewright.errors import TilewrightError
from tilewright.flows.board.known_boards import find_board
from tilewright.flows.cli.operator_options import load_operators
from tilewright.flows.execution.samples import read_arrays
from tilewright.flows.sweep.records import Database
from tilewright.flows.sweep.spaces import read_description
from tilewright.flows.verify.damage import edges
from tilewright.flows.verify.damage.edges import KINDS, edge_trial, hostile_inputs
from tilewright.isa.configuration import PRESETS
from tilewright.isa.settings import load_configuration
from tilewright.runtime.artifact import load
from tilewright.runtime.devices import open_device


def test_hostile_inputs_end_in_a_sentence_or_the_right_result(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    found: Counter[tuple[str, str]] = Counter()
    with edge_trial() as trial:
        for seed, source, data in hostile_inputs(range(144)):
            kind, message = trial(data, seed)
            assert kind in ("equal", "refused"), f"seed {seed}: {message}"
            found[source, kind] += 1
    assert {source for source, _ in found} == set(KINDS)
    assert all(found[source, "refused"] for source in KINDS)
    assert sum(found[source, "equal"] for source in KINDS) > 5, "some are harmless"


@pytest.mark.parametrize("problem", [ValueError("raw"), RecursionError("deep"), KeyError("x")])
def test_a_raw_exception_is_a_failure(monkeypatch, tmp_path, problem):
    def fail(path, data):
        raise problem

    monkeypatch.setattr(edges, "KINDS", {"database": (None, fail)})
    kind, message = edges.try_input(tmp_path / "input", b"", 0)
    assert (kind, message) == ("failed", f"{type(problem).__name__}: {problem}")


@pytest.mark.parametrize(
    "name", ["x" * 300, "x" * 5000, "a\0b", "a\ud800b", "x" * 300 + "/it.toml"]
)
def test_a_name_that_no_file_has_is_refused(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    reads = (
        Database, find_board, read_description, import_onnx, load, load_configuration, read_arrays,
        lambda name: load_operators([Path(f"{name}.py")]),
        lambda name: open_device("rtl", PRESETS["tiny"], trace=Path(name, "it")),
    )  # fmt: skip
    for read in reads:
        with pytest.raises(TilewrightError):
            read(name)
    assert not any(tmp_path.iterdir())


def test_a_long_base_of_a_sweep_is_a_machine(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(f'base = "{"x" * 300}"\n', "utf-8")
    assert read_description(str(path)).base == "x" * 300
