"""Artifacts: what was saved is loaded, and nothing else is."""

import contextlib
import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.frontend import import_model
from tilewright.compiler.module import Module
from tilewright.compiler.pipeline import compile_module
from tilewright.errors import ArtifactError
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, load, open_device, save

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"
SMALL = PRESETS["8x8"]


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_module(import_model(MODEL), SMALL)


@pytest.fixture(scope="module")
def artifact(module, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "digits.tw"
    save(module, path)
    return path


def parts(module: Module) -> tuple:
    """All that an artifact keeps; the report is not among it."""
    return module.name, module.configuration, module.graph, module.steps, module.segments


def rewrite(source: Path, target: Path, change) -> Path:
    """A copy of an artifact whose entries `change` has altered."""
    with zipfile.ZipFile(source) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return target


def edit_manifest(source: Path, target: Path, **changes) -> Path:
    def change(entries):
        manifest = json.loads(entries["manifest.json"])
        entries["manifest.json"] = json.dumps({**manifest, **changes}).encode()

    return rewrite(source, target, change)


def test_a_module_survives_the_round_trip(module, artifact):
    assert parts(load(artifact)) == parts(module)
    assert parts(load(artifact, SMALL)) == parts(module)


def test_a_loaded_module_gives_the_same_outputs_without_the_model(module, artifact):
    scan = np.random.default_rng(1).integers(0, 17, (1, 1, 8, 8)).astype(np.float32)
    with open_device("sim", SMALL) as sim:
        expected = Session(module, sim).run(scan)
        got = Session(load(artifact), sim).run(scan)
    assert got.profile == expected.profile
    for name, array in expected.outputs.items():
        np.testing.assert_array_equal(got.outputs[name], array)
    np.testing.assert_array_equal(got.results[0].dram, expected.results[0].dram)


def test_equal_modules_give_equal_bytes(artifact, tmp_path):
    again = compile_module(import_model(MODEL), SMALL)
    save(again, tmp_path / "again.tw")
    assert (tmp_path / "again.tw").read_bytes() == artifact.read_bytes()


def test_nothing_in_an_artifact_is_pickled(artifact):
    with zipfile.ZipFile(artifact) as archive:
        kinds = {Path(name).suffix for name in archive.namelist()}
    assert kinds == {".json", ".txt", ".npy", ".bin"}


def test_a_failed_write_leaves_the_older_file_whole(module, artifact, tmp_path, monkeypatch):
    target = tmp_path / "kept.tw"
    target.write_bytes(artifact.read_bytes())

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(ArtifactError) as refused:
        save(module, target)
    assert str(refused.value) == (
        f"artifact `{target}`: cannot be written, got `No space left on device`; make room, or "
        "choose another path"
    )
    assert target.read_bytes() == artifact.read_bytes()
    assert list(tmp_path.iterdir()) == [target]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_truncated_artifact_is_refused(artifact, data, tmp_path_factory):
    whole = artifact.read_bytes()
    cut = whole[: data.draw(st.integers(4, len(whole) - 1))]
    path = tmp_path_factory.mktemp("cut") / "cut.tw"
    path.write_bytes(cut)
    with pytest.raises(ArtifactError) as refused:
        load(path)
    assert str(refused.value) == (
        f"artifact `{path}`: expected a whole file, got {len(cut)} bytes that are cut off or "
        "damaged; copy it again, or compile the model again"
    )


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_never_changes_what_is_loaded(module, artifact, data, tmp_path_factory):
    """It is refused, or it is one of the few that mean nothing, such as an entry's time."""
    damaged = bytearray(artifact.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    path = tmp_path_factory.mktemp("flipped") / "flipped.tw"
    path.write_bytes(damaged)
    loaded = None
    with contextlib.suppress(ArtifactError):
        loaded = load(path)
    assert loaded is None or parts(loaded) == parts(module)


def test_changed_bytes_are_refused_even_in_a_sound_zip_file(artifact, tmp_path):
    def change(entries):
        code = entries["segments/0/program.bin"]
        entries["segments/0/program.bin"] = code[:100] + bytes([code[100] ^ 1]) + code[101:]

    with pytest.raises(ArtifactError) as refused:
        load(rewrite(artifact, tmp_path / "changed.tw", change))
    assert str(refused.value).startswith(
        f"artifact `{tmp_path / 'changed.tw'}`: entry `segments/0/program.bin`: expected SHA-256 `"
    )
    assert str(refused.value).endswith(
        "the file is damaged: copy it again, or compile the model again"
    )


def test_added_and_missing_entries_are_refused(artifact, tmp_path):
    with pytest.raises(ArtifactError, match=r"entry `more\.txt`: expected SHA-256 `none`, got"):
        load(rewrite(artifact, tmp_path / "more.tw", lambda e: e.update({"more.txt": b"x"})))
    with pytest.raises(ArtifactError, match=r"entry `graph.txt`: expected .* got `none`"):
        load(rewrite(artifact, tmp_path / "less.tw", lambda e: e.pop("graph.txt")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"version": 99},
            "expected format version 6, got 99; compile the model again with this release of "
            "Tilewright",
        ),
        (
            {"version": 1},
            "expected format version 6, got 1; compile the model again with this release of "
            "Tilewright",
        ),
        (
            {"contract": 0},
            "expected contract version 3, got 0; compile the model again with this release of "
            "Tilewright",
        ),
        (
            {"format": "something"},
            "entry `manifest.json`: expected format `tilewright artifact`, got another one; "
            "compile the model first",
        ),
        (
            {"hash": "0x00000000"},
            f"manifest: expected configuration hash `{SMALL.hash:#010x}`, got `0x00000000`; copy "
            "it again, or compile the model again",
        ),
        ({"segments": 3}, "manifest: `segments`: expected list, got int"),
        ({"steps": [0]}, "step 0: expected `conv1.reshape` to be computed before it"),
        ({"steps": ["nothing"]}, "step 'nothing': expected a value of the graph or a segment"),
        ({"steps": []}, "output `logits`: expected a step to compute it, got none"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_manifest_that_is_not_ours_is_refused(artifact, tmp_path, changes, message):
    path = edit_manifest(artifact, tmp_path / "edited.tw", **changes)
    with pytest.raises(ArtifactError) as refused:
        load(path)
    assert str(refused.value) == f"artifact `{path}`: {message}"


def test_places_outside_the_data_window_are_refused(artifact, tmp_path):
    with zipfile.ZipFile(artifact) as archive:
        segments = json.loads(archive.read("manifest.json"))["segments"]
    segments[0]["activations"][0]["offset"] = segments[0]["data_bytes"]
    path = edit_manifest(artifact, tmp_path / "moved.tw", segments=segments)
    with pytest.raises(ArtifactError, match="expected a place inside the data window of"):
        load(path)


def test_a_program_that_the_checker_refuses_is_not_loaded(artifact, tmp_path):
    """Whoever wrote the file also wrote its checksums: the proof is made again."""
    with zipfile.ZipFile(artifact) as archive:
        segments = json.loads(archive.read("manifest.json"))["segments"]
    segments[0]["data_bytes"] = 64
    path = edit_manifest(artifact, tmp_path / "short.tw", segments=segments)
    with pytest.raises(ArtifactError, match=r"short\.tw"):
        load(path)


def resealed(source: Path, target: Path, **entries: bytes) -> Path:
    """A copy with other entries, and checksums that fit."""

    def change(found):
        found.update(entries)
        manifest = json.loads(found["manifest.json"])
        manifest["sha256"] = {
            name: hashlib.sha256(data).hexdigest()
            for name, data in found.items()
            if name != "manifest.json"
        }
        found["manifest.json"] = json.dumps(manifest).encode()

    return rewrite(source, target, change)


@pytest.mark.parametrize(
    "shape", ["(1099511627776,)", "(9223372036854775807, 3)", "(-1,)", "(((" * 999]
)
def test_an_array_larger_than_its_bytes_is_refused(artifact, tmp_path, shape):
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    path = resealed(artifact, tmp_path / "vast.tw", **{"graph/0000.npy": header + bytes(64)})
    with pytest.raises(ArtifactError, match=r"entry `graph/0000.npy`: expected an array, got"):
        load(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{", "{a=" + "(" * 5000 + ")" * 5000 + ", "),
        ("{", "{a=" + "-" * 50000 + "1, "),
        ("[1,", f"[{'9' * 5000},"),
        ('@ "', '@ "\\x'),
    ],
    ids=["parentheses", "signs", "extent", "escape"],
)
def test_absurd_graph_text_is_refused(artifact, tmp_path, old, new):
    with zipfile.ZipFile(artifact) as archive:
        text = archive.read("graph.txt").decode()
    first, rest = text.split("\n", 1)
    path = resealed(
        artifact,
        tmp_path / "text.tw",
        **{"graph.txt": f"{first}\n{rest.replace(old, new)}".encode()},
    )
    with pytest.raises(ArtifactError, match=r"text\.tw`: graph text: ") as refused:
        load(path)
    assert len(str(refused.value)) < 700


def test_a_file_that_unpacks_to_gigabytes_is_refused_before_it_does(artifact, tmp_path):
    data = artifact.read_bytes()
    with zipfile.ZipFile(artifact) as archive:
        size = next(info.file_size for info in archive.infolist() if info.filename == "graph.txt")
    at = data.index(b"PK\x01\x02", data.rindex(b"graph.txt") - 46)
    assert int.from_bytes(data[at + 24 : at + 28], "little") == size
    path = tmp_path / "bomb.tw"
    path.write_bytes(data[: at + 24] + (2**32 - 2).to_bytes(4, "little") + data[at + 28 :])
    with pytest.raises(ArtifactError, match="expected at most 1,073,741,824 bytes when unpacked"):
        load(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("strides", [2**70, 1, 1, 1]), ("stored_shape", [-1, -1, -1, -1]), ("offset", 2**63 - 1)],
)
def test_absurd_places_are_refused(artifact, tmp_path, field, value):
    with zipfile.ZipFile(artifact) as archive:
        segments = json.loads(archive.read("manifest.json"))["segments"]
    segments[0]["activations"][0][field] = value
    path = edit_manifest(artifact, tmp_path / "place.tw", segments=segments)
    with pytest.raises(ArtifactError, match="expected"):
        load(path)


@pytest.mark.parametrize(
    ("size", "said"),
    [(2**40, "expected at most"), (2**63 - 1, "expected at most"), (2**70, "expected JSON")],
)
def test_a_data_window_beyond_all_addresses_is_refused(artifact, tmp_path, size, said):
    with zipfile.ZipFile(artifact) as archive:
        segments = json.loads(archive.read("manifest.json"))["segments"]
    segments[0]["data_bytes"] = size
    path = edit_manifest(artifact, tmp_path / "window.tw", segments=segments)
    with pytest.raises(ArtifactError, match=said):
        load(path)


def test_an_artifact_for_another_configuration_names_the_differences(artifact):
    with pytest.raises(ArtifactError) as refused:
        load(artifact, SMALL.replace(name="mine", act_depth=4096, lut_tables=4))
    assert str(refused.value) == (
        f"artifact `{artifact}`: expected a program for configuration `mine`, got one for `8x8`: "
        "`act_depth` 2048 against 4096, `lut_tables` 2 against 4; compile the model again for "
        "this configuration, or run it on its own"
    )


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "text.tw"
    path.write_text("hello")
    with pytest.raises(ArtifactError) as refused:
        load(path)
    assert str(refused.value) == (
        f"artifact `{path}`: expected a file made by `tilewright compile`, got 5 bytes of another "
        "kind; compile the model first, with `tilewright compile MODEL`"
    )
    with pytest.raises(ArtifactError) as refused:
        load(tmp_path / "absent.tw")
    assert str(refused.value) == (
        f"artifact `{tmp_path / 'absent.tw'}`: expected a readable file, got `No such file or "
        "directory`; check the path"
    )
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ArtifactError, match=r"got a zip file without `manifest\.json`"):
        load(tmp_path / "other.zip")
