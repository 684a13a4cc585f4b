"""The host's side of a session: kernels, views and NumPy, in memory that is used again."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright import signing
from tilewright.compiler.cpu import compile_kernel
from tilewright.compiler.cpu.execution.kernel import key_of
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QAdd,
    Quantisation,
    TensorType,
    Value,
    evaluate,
)
from tilewright.compiler.graph.operators import (
    Binary,
    MatMul,
    Reshape,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from tilewright.compiler.host import MIN_WORK
from tilewright.compiler.module import Module
from tilewright.compiler.pipeline import compile_module
from tilewright.errors import CompileError, DeviceError, KernelWarning
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Comparison, Run, Session, load, open_device, save
from tilewright.runtime.compare import TOLERANCE, Tally
from tilewright.runtime.host import say_compiled_anew

pytestmark = pytest.mark.processor

SMALL = PRESETS["8x16"]
SHAPE = (64, 512)


def float_graph() -> Graph:
    """A chain that branches, with a view, a transposition, two softmaxes, and a slice."""
    builder = Builder("host", (Value("x", TensorType("float32", SHAPE)),))
    one = builder.constant(np.array(0.5, np.float32), "half")
    scaled = builder.emit(Binary("Mul"), ["x", one], "scaled")
    bent = builder.emit(Unary("Tanh"), [scaled], "bent")
    first = builder.emit(Softmax(1, 2), [bent], "first")
    turned = builder.emit(Transpose((1, 0)), [first], "turned")
    second = builder.emit(Softmax(1, 2), [turned], "second")
    flat = builder.emit(Reshape((1, 512 * 64)), [second], "flat")
    cut = builder.emit(Slice((0, 0), (1, 20_000), (1, 1)), [flat], "cut")
    last = builder.emit(Unary("Exp"), [cut], "last")
    back = builder.emit(Binary("Add"), [bent, first], "back")
    return builder.graph([Output("y", last), Output("z", back), Output("w", flat)])


@pytest.fixture(scope="module")
def graph() -> Graph:
    return float_graph()


@pytest.fixture(scope="module")
def module(graph) -> Module:
    return compile_module(graph, SMALL)


def inputs(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def run(module: Module, x: np.ndarray, **options) -> Run:
    with open_device("sim", SMALL) as sim:
        return Session(module, sim, **options).run(x)


@pytest.mark.cpu_kernels
def test_kernels_agree_with_numpy(module, graph):
    ran = run(module, inputs())
    assert len(ran.host.kernels) >= 3
    for name, expected in evaluate(graph, {"x": inputs()}).items():
        np.testing.assert_allclose(ran.outputs[name], expected, rtol=1e-5, atol=1e-7)


def test_without_kernels_all_is_numpy(module, graph):
    ran = run(module, inputs(), least_work=None)
    assert ran.host.kernels == ()
    for name, expected in evaluate(graph, {"x": inputs()}).items():
        np.testing.assert_array_equal(ran.outputs[name], expected)
    assert {layer.target for layer in ran.profile.layers} == {"numpy"}


@pytest.mark.cpu_kernels
def test_products_in_numpy_count_their_multiplications():
    """One is worth a kernel, and the other then has one too; without such a one, none has."""
    shapes = {"x": (4, 32, 48), "z": (2, 8)}
    kinds = (Value(name, TensorType("float32", shape)) for name, shape in shapes.items())
    builder = Builder("products", tuple(kinds))
    outputs = []
    for name, columns in (("x", 40), ("z", 4)):
        weights = builder.constant(np.ones((shapes[name][-1], columns), np.float32), "weights")
        outputs.append(Output(f"y.{name}", builder.emit(MatMul(), [name, weights], f"by.{name}")))
    made = compile_module(builder.graph(outputs), SMALL)
    given = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    macs = {"by.x": 4 * 32 * 48 * 40, "by.z": 2 * 8 * 4}
    for least_work, target in ((MIN_WORK, "host"), (1 << 30, "numpy"), (None, "numpy")):
        with open_device("sim", SMALL) as sim:
            profile = Session(made, sim, least_work=least_work).run(given).profile
        assert [layer.target for layer in profile.layers] == [target] * 2
        assert {layer.name: layer.macs for layer in profile.layers} == macs
        assert profile.all_macs == sum(macs.values())
        assert profile.macs == 0, "of the accelerator"


def test_outputs_outlive_the_next_run(module):
    with open_device("sim", SMALL) as sim:
        session = Session(module, sim)
        first = session.run(inputs(1)).outputs
        kept = {name: array.copy() for name, array in first.items()}
        session.run(inputs(2))
    for name, array in kept.items():
        np.testing.assert_array_equal(first[name], array)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_depend_on_threads_or_on_what_is_kept(module, threads):
    usual = run(module, inputs())
    other = run(module, inputs(), threads=threads, keep_all=True)
    for name, array in usual.outputs.items():
        np.testing.assert_array_equal(other.outputs[name], array)
    assert usual.values == {}
    assert {"x", *(kernel.output for kernel in other.host.kernels)} <= set(other.values)


def test_memory_is_used_again(module):
    report = module.report["host"]
    assert isinstance(report, dict)
    assert report["least_bytes"] <= report["peak_bytes"] <= 1.5 * report["least_bytes"]
    assert report["peak_bytes"] < 8 * 4 * 512 * 64


def test_an_output_that_shows_an_input_is_a_copy():
    """The caller may fill its array anew; neither changes the other."""
    builder = Builder("shown", (Value("x", TensorType("float32", SHAPE)),))
    flat = builder.emit(Reshape((512 * 64,)), ["x"], "flat")
    ends = builder.emit(Slice((0,), (9,), (1,)), [flat], "ends")
    graph = builder.graph([Output("x", "x"), Output("flat", flat), Output("ends", ends)])
    x = inputs()
    outputs = run(compile_module(graph, SMALL), x).outputs
    assert not any(np.may_share_memory(array, x) for array in outputs.values())
    for name, expected in evaluate(graph, {"x": x}).items():
        np.testing.assert_array_equal(outputs[name], expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_of_one_session_take_turns(module, threads):
    with open_device("sim", SMALL) as sim:
        session = Session(module, sim, threads=threads)
        expected = [session.run(inputs(seed)).outputs for seed in range(3)]

        def differs(seed: int) -> bool:
            found = session.run(inputs(seed)).outputs
            return any(not np.array_equal(found[name], expected[seed][name]) for name in found)

        with ThreadPoolExecutor(3) as pool:
            assert not any(pool.map(differs, [0, 1, 2] * 20))


def test_a_step_that_fails_leaves_the_accelerator_idle(monkeypatch):
    """A window must not be written by the next run while this one's segment still reads it."""
    narrow = Value("a", TensorType("int8", (1, 2, 2, 8)))
    builder = Builder("both", (narrow, Value("x", TensorType("float32", SHAPE))))
    double = builder.emit(QAdd((1, 1), 0, 0.5, 0), ["a", "a"], quantisation=Quantisation(1.0, 0))
    soft = builder.emit(Softmax(1, 2), ["x"], "soft")
    graph = builder.graph([Output("y", double), Output("z", soft)])
    ended = []
    with open_device("sim", SMALL) as sim:
        session = Session(compile_module(graph, SMALL), sim)

        def slow(*arguments):
            time.sleep(0.05)
            result = sim.run(*arguments)
            ended.append(result)
            return result

        def fails(*_):
            raise MemoryError

        monkeypatch.setattr(session, "device", SimpleNamespace(run=slow))
        monkeypatch.setattr(session.host, "run", fails)
        with pytest.raises(DeviceError, match="network `both`: expected enough memory"):
            session.run({"a": np.zeros(narrow.type.shape, np.int8), "x": inputs()})
    assert len(ended) == 1


@pytest.mark.cpu_kernels
def test_an_artifact_brings_the_machine_code(module, tmp_path, monkeypatch):
    assert module.code
    save(module, tmp_path / "host.tw")
    loaded = load(tmp_path / "host.tw")
    assert loaded.code == module.code

    def none(*_):
        raise AssertionError("compiled anew")

    monkeypatch.setattr("tilewright.compiler.host.kernel_store.compile_kernel", none)
    monkeypatch.setattr("tilewright.compiler.cpu.execution.kernel.compile_kernel", none)
    ran, usual = run(loaded, inputs()), run(module, inputs())
    for name, array in usual.outputs.items():
        np.testing.assert_array_equal(ran.outputs[name], array)


def test_code_that_is_missing_is_compiled(module):
    ran, usual = run(replace(module, code={}), inputs()), run(module, inputs())
    for name, array in usual.outputs.items():
        np.testing.assert_array_equal(ran.outputs[name], array)


def another_key(monkeypatch, folder) -> None:
    """Become another user, whose key has signed nothing yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    signing._key.cache_clear()
    say_compiled_anew.cache_clear()


def patch_cache(monkeypatch, folder) -> None:
    """Start with an empty cache of kernels."""
    for user in ("tilewright.runtime.kernel_cache", "tilewright.sim.cache"):
        monkeypatch.setattr(f"{user}.cache_folder", lambda: folder)


@pytest.fixture
def own_key():
    """Return to the usual key after the test."""
    yield
    signing._key.cache_clear()


@pytest.mark.cpu_kernels
@pytest.mark.usefixtures("own_key")
def test_machine_code_from_a_stranger_is_compiled_anew(
    module, graph, tmp_path, monkeypatch, capsys
):
    """Even where it is well-formed; a line says so once, and the results are right."""
    save(module, tmp_path / "host.tw")
    expected = run(module, inputs()).outputs
    with monkeypatch.context() as patch:
        another_key(patch, tmp_path / "home")
        patch_cache(patch, tmp_path / "cache")
        ran = run(load(tmp_path / "host.tw"), inputs())
        run(load(tmp_path / "host.tw"), inputs())
        assert capsys.readouterr().err == (
            f"host: compiled {len(module.code)} kernels of `{module.name}` anew: your key has not "
            "signed its machine code; `--trust-code` (in Python `load(path, trust_code=True)`) "
            "runs it as it is\n"
        )
        patch.setattr("tilewright.compiler.host.kernel_store.compile_kernel", None)
        cached = run(load(tmp_path / "host.tw"), inputs())
        for file in (tmp_path / "cache" / "kernels").iterdir():
            file.unlink()
        taken = run(load(tmp_path / "host.tw", trust_code=True), inputs())
    for name, array in expected.items():
        for outputs in (ran.outputs, cached.outputs, taken.outputs):
            np.testing.assert_array_equal(outputs[name], array)


@pytest.mark.cpu_kernels
@pytest.mark.usefixtures("own_key")
def test_only_own_code_is_taken_from_the_cache(module, tmp_path, monkeypatch):
    """Foreign and damaged files are replaced; what only this process could read is not kept."""
    patch_cache(monkeypatch, tmp_path / "cache")
    bare, folder = replace(module, code={}), tmp_path / "cache" / "kernels"
    expected = run(module, inputs()).outputs
    run(bare, inputs())
    own = {path: path.read_bytes() for path in folder.iterdir()}
    assert {path.stem for path in own} == set(module.code)
    another_key(monkeypatch, tmp_path / "home")
    run(bare, inputs())
    foreign = {path: path.read_bytes() for path in folder.iterdir()}
    assert own.keys() == foreign.keys()
    assert not set(own.values()) & set(foreign.values())
    for path, data in foreign.items():
        path.write_bytes(data[:-1])
    outputs = run(bare, inputs()).outputs
    assert {path: path.read_bytes() for path in folder.iterdir()} == foreign
    for name, array in expected.items():
        np.testing.assert_array_equal(outputs[name], array)
    for path in foreign:
        path.unlink()
    signing.key_path().write_bytes(b"no key")
    signing._key.cache_clear()
    run(bare, inputs())
    assert not list(folder.iterdir())


def test_a_network_that_memory_cannot_hold_is_refused_in_one_sentence(monkeypatch):
    builder = Builder("vast", (Value("x", TensorType("float32", SHAPE)),))
    graph = builder.graph([Output("y", builder.emit(Softmax(1, 2), ["x"], "soft"))])
    module = compile_module(graph, SMALL)

    def refuse(size):
        raise MemoryError("Unable to allocate 64.0 GiB")

    monkeypatch.setattr("tilewright.runtime.host._arena", refuse)
    with open_device("sim", SMALL) as sim, pytest.raises(DeviceError) as refused:
        Session(module, sim)
    assert str(refused.value) == (
        "network `vast`: expected enough memory for its values, got `Unable to allocate 64.0 GiB`; "
        "free some, or compile a smaller network"
    )


@pytest.mark.cpu_kernels
def test_changed_code_is_not_run(module, tmp_path, monkeypatch, capsys):
    patch_cache(monkeypatch, tmp_path)
    code = {key: data[:-1] + bytes([data[-1] ^ 1]) for key, data in module.code.items()}
    say_compiled_anew.cache_clear()
    with open_device("sim", SMALL) as sim:
        session = Session(replace(module, code=code), sim)
        ran = session.run(inputs())
    assert set(session.host.distrusted) == set(code)
    assert not session.host.refused
    assert capsys.readouterr().err.endswith("the code of a kernel is damaged or truncated\n")
    for name, array in run(module, inputs()).outputs.items():
        np.testing.assert_array_equal(ran.outputs[name], array)


@pytest.mark.cpu_kernels
def test_a_kernel_that_does_not_compile_is_seen(graph, monkeypatch):
    def refuse(*_):
        raise CompileError("no registers left")

    monkeypatch.setattr("tilewright.compiler.host.kernel_store.compile_kernel", refuse)
    with pytest.warns(KernelWarning) as seen:
        module = compile_module(graph, SMALL)
    assert not module.code
    for one in seen:
        assert "does not compile, so NumPy computes it" in str(one.message)
        assert "no registers left; this is a fault of Tilewright" in str(one.message)
    with pytest.raises(KernelWarning):  # tests turn it into an error
        compile_module(graph, SMALL)


@pytest.mark.cpu_kernels
def test_a_kernel_finds_what_numpy_gave_in_the_place_of_another(graph, tmp_path, monkeypatch):
    """One kernel at a time cannot be compiled; those that read its value look in the arena."""
    patch_cache(monkeypatch, tmp_path)
    module = compile_module(graph, SMALL)
    expected = evaluate(graph, {"x": inputs()})
    refused = set()
    for key in module.code:
        store = "tilewright.compiler.host.kernel_store"

        def compile_other(description, target, threads, key=key):
            if key_of(description, target) == key:
                raise CompileError("not this one")
            return compile_kernel(description, target, threads)

        with monkeypatch.context() as patch, open_device("sim", SMALL) as sim:
            patch.setattr(f"{store}.compile_kernel", compile_other)
            rest = {other: data for other, data in module.code.items() if other != key}
            with pytest.warns(KernelWarning, match="not this one"):
                session = Session(replace(module, code=rest), sim)
            outputs = session.run(inputs()).outputs
        refused |= set(session.host.refused)
        for name, array in expected.items():
            np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-7)
    assert refused & set(session.host.plan.memory.offsets)


@pytest.mark.cpu_kernels
def test_each_kernel_is_compared_with_its_meaning(module):
    comparison = Comparison(module)
    comparison.add({"x": inputs()}, run(module, inputs(), keep_all=True))
    assert comparison.equal
    rounded = [tally for tally in comparison.kernels.values() if tally.tolerance]
    assert any(0 < tally.largest < TOLERANCE / 8 for tally in rounded)


@pytest.mark.cpu_kernels
def test_a_wrong_kernel_is_found_and_named(module):
    """The comparison can fail: one element of a kernel's result is a thousandth too large."""
    ran = run(module, inputs(), keep_all=True)
    name = next(kernel.output for kernel in ran.host.kernels if not kernel.exact)
    ran.values[name].reshape(-1)[7] += np.abs(ran.values[name]).max() / 1000
    comparison = Comparison(module)
    comparison.add({"x": inputs()}, ran)
    assert comparison.kernels[name].differing == 1
    assert not comparison.equal
    sentence = comparison.first_difference()
    assert sentence is not None
    assert "1 of 32768 values differ (sample 0: at [0, 7]" in sentence


@pytest.mark.cpu_kernels
def test_without_kept_values_outputs_are_compared_to_within_the_tolerance(module):
    comparison = Comparison(module)
    comparison.add({"x": inputs()}, run(module, inputs()))
    assert comparison.equal
    assert {tally.tolerance for tally in comparison.outputs.values()} == {TOLERANCE}


@pytest.mark.parametrize(
    ("got", "expected", "differing"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-5], 0),
        ([1.0, 2.0], [1.0, 2.01], 1),
        ([np.nan, np.inf], [np.nan, np.inf], 0),
        ([1.0, np.inf], [np.nan, -np.inf], 2),
        ([1.0, np.inf], [1.0, 3e38], 1),
        ([0.0, -0.0], [-0.0, 0.0], 0),
    ],
)
def test_distances_are_relative_to_the_largest_magnitude(got, expected, differing):
    tally = Tally("x", tolerance=TOLERANCE)
    tally.add(np.array(got, np.float32), np.array(expected, np.float32), "sample 0")
    assert tally.differing == differing


def test_nans_are_one_in_exact_kernels():
    tally = Tally("x")
    got = np.array([-np.nan, 0.0, 1.0], np.float32)
    tally.add(got, np.array([np.nan, -0.0, np.nan], np.float32), "sample 0")
    assert tally.differing == 2
    assert tally.first.startswith("sample 0: at [1] ")


def test_integers_of_rounded_kernels_may_differ_by_one():
    tally = Tally("x", tolerance=TOLERANCE)
    tally.add(np.array([1, 2, 3], np.int8), np.array([2, 2, 5], np.int8), "sample 0")
    assert (tally.differing, tally.largest) == (1, 2.0)
