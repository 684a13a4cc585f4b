"""Damaged artifacts with good checksums are refused in a sentence, or do what they say."""

import json
import zipfile
from io import BytesIO

import pytest

from tilewright.flows.verify.damage import artifact_damage, artifacts
from tilewright.flows.verify.damage.artifact_damage import damaged_artifact
from tilewright.flows.verify.damage.artifacts import (
    LIMIT_BYTES,
    artifact_trial,
    damaged_artifacts,
    main,
    small_networks,
    try_artifact,
)
from tilewright.flows.verify.damage.campaign import try_files
from tilewright.flows.verify.damage.workers import DamageWorker


@pytest.fixture
def worker():
    made = DamageWorker(artifact_trial, limit_bytes=LIMIT_BYTES)
    yield made
    made.stop()


def test_damaged_artifacts_are_refused_or_do_what_they_say(worker):
    count = try_files(damaged_artifacts([], range(1, 120)), [worker])
    assert not count.failures
    assert count.kinds.total() == 119
    assert min(count.kinds["equal"], count.kinds["refused"]) > 10


def test_the_same_seed_does_the_same_damage():
    given = small_networks()
    once = [damaged_artifact(given, seed) for seed in range(50)]
    assert once == [damaged_artifact(given, seed) for seed in range(50)]
    assert len({*once, *given}) > 50


def test_damage_passes_the_checksums():
    """Nearly all of it: only then it reaches what is behind them."""
    passed = 0
    for seed in range(100):
        with zipfile.ZipFile(BytesIO(small_networks()[1])) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        chance = artifact_damage.random.Random(seed)
        artifact_damage._damage_entry(chance, entries, entries, [], fixed_code=False)
        artifact_damage._recompute_digests(entries)
        try:
            kept = json.loads(entries["manifest.json"])["sha256"]
        except (ValueError, KeyError, TypeError):
            continue
        found = {name: artifact_damage.hashlib.sha256(d).hexdigest() for name, d in entries.items()}
        passed += kept == {name: found[name] for name in found if name != "manifest.json"}
    assert passed > 70


def test_a_wrong_value_is_told(tmp_path, monkeypatch):
    right = artifacts.defined_outputs
    good = small_networks()[1]
    assert try_artifact(tmp_path / "a.tw", good, 1) == ("equal", "")

    def wrong(module, inputs):
        return {name: array + array.dtype.type(1) for name, array in right(module, inputs).items()}

    monkeypatch.setattr(artifacts, "defined_outputs", wrong)
    kind, text = try_artifact(tmp_path / "a.tw", good, 1)
    assert kind == "failed"
    assert "expected" in text


def test_another_exception_is_told(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise TypeError("unhashable")

    monkeypatch.setattr(artifacts, "load", fails)
    found = try_artifact(tmp_path / "a.tw", b"", 1)
    assert found == ("failed", "loading raises TypeError: unhashable")


def test_the_command_prints_what_it_saw(capsys):
    assert main(["--artifacts", "3", "--workers", "1"]) == 0
    assert capsys.readouterr().out.startswith("damaged artifacts: 3 in ")
