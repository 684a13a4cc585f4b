"""Compiled networks are kept, and compiled again when anything that they follow from changes."""

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest

import tilewright as package
from tilewright.atomic_write import write_atomically
from tilewright.compiler.cpu_level import LEVEL_VARIABLE, NO_LEVEL
from tilewright.compiler.frontend import import_model
from tilewright.compiler.options import Options
from tilewright.errors import CompileError
from tilewright.flows import demo
from tilewright.flows.cli.arguments import compile_model
from tilewright.flows.cli.main import main
from tilewright.flows.cli.placement_options import STRICT_PLACING, Placing
from tilewright.flows.execution import compile_graph
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import load
from tilewright.sim.timing import native, time_program, timing

MODEL = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"


@pytest.fixture
def compilations(compiled_once, monkeypatch, tmp_path):
    """Names of the machines that models were compiled for, in a cache of the test's own."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    seen, compile_request = [], compile_graph.compile_request

    def count(request, *rest, **named):
        seen.append(request.configuration.name)
        return compile_request(request, *rest, **named)

    monkeypatch.setattr(compile_graph, "compile_request", count)
    return seen


def test_a_model_is_compiled_once(compilations):
    first = compile_model(MODEL, PRESETS["8x8"])
    again = compile_model(MODEL, PRESETS["8x8"])
    assert compilations == ["8x8"]
    assert again.segments == first.segments
    assert again.steps == first.steps


def test_another_machine_or_another_wish_is_compiled(compilations):
    compile_model(MODEL, PRESETS["8x8"])
    compile_model(MODEL, PRESETS["16x16"])
    compile_model(MODEL, PRESETS["8x8"], keep_all=True)
    assert compilations == ["8x8", "16x16", "8x8"]


def test_another_level_of_the_processor_is_compiled(compilations, monkeypatch):
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    compile_model(MODEL, PRESETS["8x8"])
    monkeypatch.setenv(LEVEL_VARIABLE, NO_LEVEL)
    compile_model(MODEL, PRESETS["8x8"])
    compile_model(MODEL, PRESETS["8x8"])
    assert compilations == ["8x8", "8x8"]


def test_another_model_of_the_same_name_is_compiled(compilations, tmp_path):
    copy = tmp_path / MODEL.name
    copy.write_bytes(MODEL.read_bytes())
    compile_model(MODEL, PRESETS["8x8"])
    compile_model(copy, PRESETS["8x8"])
    assert compilations == ["8x8"]
    copy.write_bytes(MODEL.read_bytes() + b"\x72\x00")
    compile_model(copy, PRESETS["8x8"])
    assert compilations == ["8x8", "8x8"]


def varint(number: int) -> bytes:
    data = b""
    while number > 127:
        data, number = data + bytes([number & 127 | 128]), number >> 7
    return data + bytes([number])


def in_another_order(proto: onnx.ModelProto) -> bytes:
    """The same model, with the value of each entry of external data before its key."""
    tensors = b""
    for tensor in proto.graph.initializer:
        entries = [(entry.key, entry.value) for entry in tensor.external_data]
        del tensor.external_data[:]
        data = tensor.SerializeToString()
        for key, value in entries:
            entry = b"\x12%c%b\x0a%c%b" % (len(value), value.encode(), len(key), key.encode())
            data += b"\x6a%c%b" % (len(entry), entry)
        tensors += b"\x2a" + varint(len(data)) + data
    del proto.graph.initializer[:]
    # The graph comes in two parts, which a parser merges.
    return proto.SerializeToString() + b"\x3a" + varint(len(tensors)) + tensors


@pytest.mark.parametrize("write", [onnx.ModelProto.SerializeToString, in_another_order])
def test_other_weights_beside_the_same_model_are_compiled(compilations, tmp_path, write):
    path, weights = tmp_path / "model.onnx", tmp_path / "weights.bin"
    proto = onnx.load(MODEL)
    onnx.save(proto, path, save_as_external_data=True, location=weights.name, size_threshold=64)
    path.write_bytes(write(onnx.load(path, load_external_data=False)))
    first = compile_model(path, PRESETS["8x8"])
    assert compile_model(path, PRESETS["8x8"]).segments == first.segments
    assert compilations == ["8x8"]
    data = bytearray(weights.read_bytes())
    data[0] ^= 1
    weights.write_bytes(data)
    assert compile_model(path, PRESETS["8x8"]).segments != first.segments
    assert compilations == ["8x8", "8x8"]


def test_a_network_without_this_users_mark_is_compiled_again(compilations, monkeypatch, tmp_path):
    """Whoever can write the cache can make digests, but not this mark."""
    compile_model(MODEL, PRESETS["8x8"])
    (kept,) = (tmp_path / "cache" / "networks").glob("*.json")
    report = json.loads(kept.read_text())
    for mark in ("0" * 64, 1, None):
        kept.write_text(json.dumps({**report, "mark": mark}))
        compile_model(MODEL, PRESETS["8x8"])
    assert compilations == ["8x8"] * 4


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"", bytes.upper])
def test_a_damaged_file_is_replaced(compilations, tmp_path, damage):
    whole = compile_model(MODEL, PRESETS["8x8"])
    (kept,) = (tmp_path / "cache" / "networks").glob("*.tw")
    kept.write_bytes(damage(kept.read_bytes()))
    assert compile_model(MODEL, PRESETS["8x8"]).segments == whole.segments
    assert compilations == ["8x8", "8x8"]
    compile_model(MODEL, PRESETS["8x8"])
    assert compilations == ["8x8", "8x8"]


def test_a_cache_that_cannot_be_written_costs_time_only(compilations, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(blocked))
    assert compile_model(MODEL, PRESETS["8x8"]).segments
    assert compilations == ["8x8"]


def test_a_refusal_is_not_kept(compilations):
    small = PRESETS["tiny"].replace(name="small", wgt_depth=8, act_depth=8)
    for _ in range(2):
        with pytest.raises(CompileError, match="no tile fits"):
            compile_model(MODEL, small, placing=STRICT_PLACING)
    assert compilations == ["small", "small"]


@pytest.fixture
def written(compilations, tilewright, tmp_path):
    """The command that compiles into a file; what it prints."""

    def compile_into(name: str, *more: str) -> str:
        target = tmp_path / name
        return tilewright("compile", MODEL, "--config", "8x8", "-o", target, *more)

    return compile_into


def test_the_command_copies_what_is_kept(written, compilations, tmp_path):
    first, again = written("one.tw"), written("two.tw")
    assert compilations == ["8x8"]
    assert again == first.replace("one.tw", "two.tw")
    assert (tmp_path / "one.tw").read_bytes() == (tmp_path / "two.tw").read_bytes()
    assert load(tmp_path / "two.tw").segments == compile_model(MODEL, PRESETS["8x8"]).segments
    assert compilations == ["8x8"]


def test_what_another_command_compiled_is_copied_too(written, compilations, tmp_path):
    compile_model(MODEL, PRESETS["8x8"])
    written("one.tw")
    assert compilations == ["8x8"]
    assert load(tmp_path / "one.tw").configuration == PRESETS["8x8"]


@pytest.mark.parametrize("suffix", [".tw", ".json"])
def test_nothing_damaged_is_copied(written, compilations, tmp_path, suffix):
    first = written("one.tw")
    (kept,) = (tmp_path / "cache" / "networks").glob(f"*{suffix}")
    kept.write_bytes(kept.read_bytes()[:-9])
    assert written("two.tw") == first.replace("one.tw", "two.tw")
    assert compilations == ["8x8", "8x8"]
    assert (tmp_path / "one.tw").read_bytes() == (tmp_path / "two.tw").read_bytes()


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", None])
def test_a_report_that_was_changed_is_compiled_again(written, compilations, tmp_path, text):
    first = written("one.tw")
    (kept,) = (tmp_path / "cache" / "networks").glob("*.json")
    report = json.loads(kept.read_text())
    kept.write_text(text or json.dumps({**report, "cycles": report["cycles"] + 1}))
    assert written("two.tw") == first.replace("one.tw", "two.tw")
    assert compilations == ["8x8", "8x8"]


def test_files_left_by_killed_processes_are_removed(written, monkeypatch, tmp_path):
    folder = tmp_path / "cache" / "networks"
    folder.mkdir(parents=True)

    def die(*_):
        raise SystemExit

    monkeypatch.setattr("os.replace", die)
    monkeypatch.setattr("pathlib.Path.unlink", die)
    with pytest.raises(SystemExit):
        write_atomically(folder / "kept.tw", b"half")
    monkeypatch.undo()
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(folder.parent))
    (left,) = folder.iterdir()
    written("one.tw")
    assert left.exists(), "it may still be written"
    os.utime(left, (0, 0))
    written("two.tw", "--keep-all")
    assert not left.exists()


def test_a_pipe_receives_what_a_file_would(written, compilations, tmp_path):
    whole = written("one.tw", "--table")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
        for path in (tmp_path / "cache" / "networks").iterdir():
            path.unlink()
        for _ in range(2):
            assert written("pipe", "--table") == whole.replace("one.tw", "pipe")
            assert os.read(reader, 1 << 20) == (tmp_path / "one.tw").read_bytes()
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert compilations == ["8x8", "8x8"]


def test_the_command_writes_its_file_where_nothing_can_be_kept(
    compilations, monkeypatch, tmp_path, capsys
):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(blocked))
    target = tmp_path / "one.tw"
    assert main(["compile", str(MODEL), "--config", "8x8", "-o", str(target)]) == 0
    assert (
        f"cache: `{blocked}` cannot be used (Not a directory): builds and compiled programs "
        "are not kept; make room, or set `TILEWRIGHT_CACHE` to a folder of your own\n"
    ) in capsys.readouterr().err  # among lines of progress on a slow machine
    assert load(target).configuration == PRESETS["8x8"]
    assert compilations == ["8x8"]
    assert blocked.read_text() == ""


@pytest.fixture
def replaced(monkeypatch, tmp_path):
    """Moves into the cache as (source, target); those to a suffix in the set `refused` fail."""
    moves, refused, replace = [], set(), os.replace
    folder = tmp_path / "cache" / "networks"

    def move(source, target):
        if Path(target).parent == folder:
            moves.append((Path(source), Path(target)))
            if Path(target).suffix in refused:
                raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr("os.replace", move)
    return SimpleNamespace(moves=moves, refused=refused, folder=folder)


@pytest.mark.parametrize("suffix", [".tw", ".json"])
def test_what_cannot_be_kept_leaves_the_older_files(
    written, compilations, replaced, suffix, tmp_path, capsys
):
    first = written("one.tw")
    (report,) = replaced.folder.glob("*.json")
    report.write_bytes(report.read_bytes()[:-9])
    before = {path: path.read_bytes() for path in replaced.folder.iterdir()}
    replaced.refused.add(suffix)
    assert main(["compile", str(MODEL), "--config", "8x8", "-o", str(tmp_path / "two.tw")]) == 0
    said = capsys.readouterr()
    assert said.out == first.replace("one.tw", "two.tw")
    assert "(No space left on device)" in said.err
    assert {path: path.read_bytes() for path in replaced.folder.iterdir()} == before
    replaced.refused.clear()
    written("three.tw")
    written("four.tw")
    assert compilations == ["8x8"] * 3


def test_files_are_kept_under_their_names_when_they_are_whole(written, compilations, replaced):
    """Each has a name of its own until then, whoever writes at the same time."""
    written("one.tw")
    for path in replaced.folder.iterdir():
        path.unlink()
    written("two.tw")
    sources, targets = zip(*replaced.moves, strict=True)
    assert [target.suffix for target in targets] == [".tw", ".json"] * 2
    assert len(set(sources)) == len(sources)
    assert {source.parent for source in sources} == {replaced.folder}


def test_the_command_tells_cycles_and_bounds_the_first_time_and_later(written, tmp_path):
    found = [json.loads(written("one.tw", "--json")) for _ in range(2)]
    assert found[0] == found[1]
    (report, _) = found
    module = load(tmp_path / "one.tw")
    cycles = sum(time_program(s.program, module.configuration).cycles for s in module.segments)
    assert report["cycles"] == cycles
    assert report["bound"] <= cycles
    assert [layer["name"] for layer in report["layers"]] == [
        layer.name for segment in module.segments for layer in segment.layers
    ]
    for layer in report["layers"]:
        assert layer["exact"]
        assert 0 <= layer["gap"] == pytest.approx(layer["cycles"] / layer["bound"] - 1)
    said = written("one.tw", "--json", str(tmp_path / "report.json"))
    assert json.loads((tmp_path / "report.json").read_text()) == report
    bound = f"lower bound {report['bound']:,} cycles: no schedule can save more than "
    assert f"{cycles:,} cycles, {cycles / 100 / 1e3:#.3g} ms at 100 MHz; {bound}" in said


def test_a_copy_that_cannot_be_written_is_refused(written, compilations, tmp_path, capsys):
    written("one.tw")
    target = tmp_path / "nowhere" / "two.tw"
    assert main(["compile", str(MODEL), "--config", "8x8", "-o", str(target)]) == 2
    assert capsys.readouterr().err == (
        f"error: artifact `{target}`: cannot be written, got `No such file or directory`; choose "
        "another path\n"
    )


@pytest.mark.parametrize("name", [".", "/"])
def test_a_folder_is_refused_as_an_artifact(compilations, monkeypatch, tmp_path, capsys, name):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["compile", str(MODEL), "--config", "8x8", "-o", name]) == 2
        assert capsys.readouterr().err == (
            f"error: artifact `{Path(name)}`: cannot be written, got `Is a directory`; choose "
            "another path\n"
        )


def test_a_kept_network_waits_for_nothing_that_only_compiling_needs():
    """A second interpreter, since here everything has been imported long ago."""
    code = (
        "import sys; from tilewright.flows.cli.main import parser; "
        "parser(['compile', 'model.onnx']); "
        "print([name for name in ('amaranth', 'rich', 'tilewright.compiler.scheduling.fusion') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def hidden_compiler(monkeypatch, tmp_path) -> None:
    """No C++ compiler, and no library that was loaded or built before."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(timing, "library", native.library.__wrapped__)
    monkeypatch.setattr(native, "library", native.library.__wrapped__)


def test_nothing_is_timed_where_the_accelerator_runs_nothing(
    compiled_anew, compilations, monkeypatch
):
    """The timing model is compiled only when a program is timed."""

    def library():
        raise AssertionError("the timing model is not needed")

    monkeypatch.setattr(timing, "library", library)
    placing = Placing(policy="host")
    module = compile_model(MODEL, PRESETS["8x8"], placing=placing)
    assert not module.segments
    assert "search" not in module.report
    assert compilations == ["8x8"]


def test_without_a_compiler_the_program_is_the_same(
    compiled_anew, compilations, monkeypatch, tmp_path, capsys
):
    """Schedules are then timed by the model in Python, which the output tells."""
    with_compiler = compile_model(MODEL, PRESETS["8x8"])
    assert with_compiler.report["search"] == {"candidates": 3, "measure": "native timing model"}
    for path in (tmp_path / "cache" / "networks").iterdir():
        path.unlink()
    hidden_compiler(monkeypatch, tmp_path)
    capsys.readouterr()
    for _ in range(2):
        without = compile_model(MODEL, PRESETS["8x8"])
        assert without.segments == with_compiler.segments
        assert without.report["search"] == {"candidates": 3, "measure": "Python timing model"}
    assert compilations == ["8x8", "8x8"]
    assert "; timing in Python: the same cycles, hundreds of times slower" in (
        capsys.readouterr().err
    )


def test_a_full_disk_costs_the_cache_alone(compilations, monkeypatch, tmp_path, capsys):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    for _ in range(2):
        assert compile_model(MODEL, PRESETS["8x8"]).report["cycles"] == 4_705
    assert compilations == ["8x8", "8x8"]
    assert capsys.readouterr().err.count("(No space left on device)") == 1


def test_the_api_takes_what_it_compiled_before(compilations):
    graph = import_model(MODEL)
    first = package.compile_graph(graph, PRESETS["8x8"])
    again = package.compile_graph(graph, PRESETS["8x8"])
    assert compilations == ["8x8"]
    assert (again.segments, again.report) == (first.segments, first.report)
    package.compile_graph(graph, PRESETS["8x8"], cache=False)
    package.compile_graph(graph, PRESETS["8x8"], keep_all=True)
    package.compile_graph(graph, PRESETS["8x8"], options=Options(candidates=1))
    assert compilations == ["8x8"] * 4


@pytest.mark.parametrize("config", ["8x8", "16x16"])
def test_all_ways_to_compile_give_the_same_program(tilewright, config, tmp_path, capsys):
    """The API and the commands; the demo, which compares layers, stores all of them."""
    machine, graph = PRESETS[config], import_model(MODEL)
    report = package.compile_graph(graph, machine).report
    kept = package.compile_graph(graph, machine, keep_all=True).report["cycles"]
    assert kept > report["cycles"]
    path = tmp_path / "digits.tw"
    compiled = json.loads(tilewright("compile", MODEL, "--config", config, "-o", path, "--json"))
    assert {**report, **compiled} == {**compiled, "compile_s": report["compile_s"]}
    ran = json.loads(tilewright("run", MODEL, "--config", config, "--json"))
    assert (ran["totals"]["cycles"], ran["search"]) == (report["cycles"], report["search"])
    demo.demo(machine, {"sim": 1})
    assert f" {kept:,} cycles a digit" in capsys.readouterr().out.splitlines()[-1]
