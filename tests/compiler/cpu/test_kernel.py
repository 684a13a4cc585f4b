"""Kernels as objects: binding, storing, threads, and what is refused."""

import hashlib
import json
import threading

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.cpu import (
    LEVELS,
    CompiledKernel,
    Convolution,
    Declared,
    LayerNormalisation,
    MatrixProduct,
    Requantisation,
    RowSoftmax,
    compile_kernel,
    host,
    load_kernel,
)
from tilewright.compiler.cpu.execution.kernel import key_of, lower_description
from tilewright.compiler.cpu.execution.stored_code import MAGIC
from tilewright.compiler.tensor import evaluate
from tilewright.errors import CompileError, InputError

from ...processor import target_at
from .arrays import Bytes, normal, operands_of, whole, with_bytes
from .assembly import assembly_of

LAYER = Convolution(1, 20, 20, 16, 48, (3, 3), pads=(1, 1, 1, 1))


def bound(kernel: CompiledKernel, arrays: dict[str, np.ndarray]):
    return kernel.bind(**{name: arrays[name] for name in kernel.description.constants})


@pytest.mark.parametrize(
    "layer",
    [LAYER, with_bytes(LAYER, Bytes("int8", 0, Requantisation("int8"))), MatrixProduct(60, 30, 90)],
)
def test_results_do_not_depend_on_the_number_of_threads(layer: Convolution | MatrixProduct) -> None:
    arrays = operands_of(layer)
    results = [compile_kernel(layer, threads=threads)(*arrays.values()) for threads in (1, 2, 3)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_rows_do_not_depend_on_the_number_of_threads() -> None:
    x = normal(37, 130)
    one, two = (compile_kernel(RowSoftmax(37, 130), threads=threads)(x) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("level", LEVELS)
def test_words_are_cut_to_16_bits_and_read_with_their_sign(level: str) -> None:
    i, k = te.axes(i=37, k=5)
    x = te.tensor("x", "int32", (37, 5))
    words = te.compute("words", "int16", (i, k), x[i, k] * 3 + 1)
    (t,) = te.reduce_axes(t=5)
    out = te.compute("out", "int32", (i,), te.sum(words[i, t] * words[i, t], over=t))
    kernel = te.kernel("squares", out)
    schedule = te.Schedule(kernel, target_at(level).processor)
    values = whole("int32", 37, 5) // 30000
    got = compile_kernel(Declared(kernel, str(schedule)), target_at(level))(values)
    cut = (values * 3 + 1).astype(np.int16).astype(np.int32)
    np.testing.assert_array_equal(got, (cut * cut).sum(axis=1, dtype=np.int32))
    np.testing.assert_array_equal(got, evaluate(kernel, {"x": values}))


def test_a_pool_is_shared_by_threads_of_python() -> None:
    arrays = operands_of(LAYER)
    layer = bound(compile_kernel(LAYER, threads=2), arrays)
    images = [normal(*LAYER.operands["x"].shape) for _ in range(4)]
    expected = [layer(image) for image in images]
    wrong = []

    def work(image: np.ndarray, right: np.ndarray) -> None:
        wrong.extend(i for i in range(200) if not np.array_equal(layer(image), right))

    workers = [
        threading.Thread(target=work, args=pair) for pair in zip(images, expected, strict=True)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_stored_kernel_runs_without_being_compiled(monkeypatch) -> None:
    arrays = operands_of(LAYER)
    kernel = compile_kernel(LAYER)
    expected = kernel(*arrays.values())
    data = kernel.to_bytes()

    def refuse(*_) -> bytes:
        raise AssertionError("compiled")

    monkeypatch.setattr("tilewright.compiler.cpu.execution.kernel.assemble", refuse)
    again = load_kernel(data, LAYER)
    np.testing.assert_array_equal(again(*arrays.values()), expected)


def test_a_kernel_stored_for_another_processor_is_compiled_anew() -> None:
    arrays = operands_of(LAYER)
    data = compile_kernel(LAYER, target_at("sse2")).to_bytes()
    again = load_kernel(data, LAYER, target_at("avx2"))
    assert again.target == target_at("avx2")
    expected = compile_kernel(LAYER, target_at("avx2"))(*arrays.values())
    np.testing.assert_array_equal(again(*arrays.values()), expected)


def test_code_with_other_numbers_in_it_has_another_key() -> None:
    def scaled(factor: np.float32) -> Declared:
        (x,) = te.axes(x=2)
        given, table = te.tensor("given", "float32", (2,)), te.tensor("table", "float32", (2,))
        out = te.compute("out", "float32", (x,), given[x] * table[x])
        numbers = np.array([0.1, factor], np.float32)
        return Declared(te.kernel("scaled", out, {"table": numbers}))

    factor = np.float32(0.00012345678)
    one, other = scaled(factor), scaled(np.nextafter(factor, np.float32(1)))
    assert key_of(one, host()) != key_of(other, host())


def changed(data: bytes, change=lambda header: None, cut=lambda code: code) -> bytes:
    """Return a stored kernel with a changed header or changed code, and with its new checksum."""
    _, _, _, text, code = data.split(b"\n", 4)
    header = json.loads(text)
    change(header)
    rest = json.dumps(header).encode() + b"\n" + cut(code)
    return MAGIC + f"{hashlib.sha256(rest).hexdigest()}\n{64 * '0'}\n".encode() + rest


def test_code_without_this_users_mark_is_refused() -> None:
    kernel, arrays = compile_kernel(LAYER), operands_of(LAYER)
    data = changed(kernel.to_bytes())
    with pytest.raises(CompileError, match="your key has not signed its machine code"):
        load_kernel(data, LAYER)
    expected = kernel(*arrays.values())
    trusted = load_kernel(data, LAYER, trust_code=True)
    np.testing.assert_array_equal(trusted(*arrays.values()), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(workspace_bytes=2**63 - 1), "`workspace_bytes`: expected [0-9]+, got"),
        (
            lambda h: h.update(workspace_bytes="all"),
            '`workspace_bytes`: expected [0-9]+, got "all"',
        ),
        (lambda h: h["tensors"].reverse(), "`tensors`: expected .*, got"),
        (lambda h: h.pop("tensors"), "`tensors`: expected .*, got null"),
        (lambda h: h.update(layouts={"x": {"shape": [2**70]}}), "`layouts`: expected .*, got"),
    ],
)
def test_a_trusted_header_is_compared_with_the_description(change, message) -> None:
    description = LayerNormalisation(2, 3)
    data = changed(compile_kernel(description).to_bytes(), change)
    with pytest.raises(CompileError, match=f"the header of a kernel: {message}"):
        load_kernel(data, description, trust_code=True)


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda code: code[: len(code) // 2], "outside the file"),
        (lambda code: code[:20], "a table that ends too early"),
        (lambda code: b"", "a table that ends too early"),
        (lambda code: code.replace(b"\0kernel\0", b"\0kettle\0"), "no function `kernel`"),
        (lambda code: code.replace(b"ELF", b"elf"), "another format than an ELF object file"),
    ],
)
def test_a_trusted_object_file_that_cannot_be_placed_is_refused(cut, message) -> None:
    description = LayerNormalisation(2, 3)
    data = changed(compile_kernel(description).to_bytes(), cut=cut)
    with pytest.raises(CompileError, match=message):
        load_kernel(data, description, trust_code=True)


def test_damaged_bytes_are_refused() -> None:
    data = compile_kernel(LayerNormalisation(2, 3)).to_bytes()
    for damaged in (data[:-1], data[:150], data.replace(b"workspace", b"workspake")):
        with pytest.raises(CompileError, match="is damaged or truncated"):
            load_kernel(damaged, LayerNormalisation(2, 3))
    with pytest.raises(CompileError, match="are not a kernel of the CPU target"):
        load_kernel(b"ELF", LayerNormalisation(2, 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": normal(1, 20, 20, 15)}, r"`x` is float32\[1, 20, 20, 15\], expected float32\[1, 20"),
        ({"w": np.zeros((3, 3, 16, 48))}, r"`w` is float64\[3, 3, 16, 48\], expected float32"),
        ({"x": normal(1, 20, 16, 20).transpose(0, 1, 3, 2)}, "`x` is not contiguous"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, np.ndarray], message: str) -> None:
    kernel = compile_kernel(LAYER)
    with pytest.raises(InputError, match=message):
        kernel(*{**operands_of(LAYER), **change}.values())


def test_constants_are_bound_all_or_none() -> None:
    with pytest.raises(InputError, match="expected the constants scale, bias, got scale"):
        compile_kernel(LayerNormalisation(2, 3)).bind(scale=normal(3))


def test_a_buffer_too_large_for_the_stack_is_refused() -> None:
    y, x = te.axes(y=2, x=1 << 17)
    image = te.tensor("image", "float32", (2, 1 << 17))
    twice = te.compute("twice", "float32", (y, x), image[y, x] * 2.0)
    out = te.compute("out", "float32", (y, x), twice[y, x] + 1.0)
    with pytest.raises(CompileError, match="`twice` has 524288 bytes inside a loop"):
        compile_kernel(Declared(te.kernel("k", out), "compute_at(twice, out, y)"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float32"])
def test_a_maximum_starts_with_the_least_number_of_its_type(dtype: str) -> None:
    y, x = te.axes(y=5, x=20)
    (k,) = te.reduce_axes(k=3)
    image = te.tensor("image", dtype, (7, 20))
    out = te.compute("out", dtype, (y, x), te.max(image[y + k, x], over=k))
    values = whole(dtype, 7, 20) // 2 if dtype != "float32" else -np.abs(normal(7, 20))
    values[:, :3] = np.iinfo(dtype).min if dtype != "float32" else -np.inf
    got = compile_kernel(Declared(te.kernel("pool", out), "reorder(out, k, y)"))(values)
    windows = np.lib.stride_tricks.sliding_window_view(values, 3, axis=0)
    np.testing.assert_array_equal(got, windows.max(axis=-1))


@pytest.mark.parametrize("steps", ["", "vectorise(out, x)"])
def test_a_table_is_never_read_beyond_its_ends(steps: str) -> None:
    (x,) = te.axes(x=20)
    table, index = te.tensor("table", "int8", (256,)), te.tensor("index", "int32", (20,))
    out = te.compute("out", "int8", (x,), te.lookup(table, index[x]))
    numbers = whole("int32", 20)
    numbers[:6] = -129, -128, 0, 127, 128, 1 << 30
    held = whole("int8", 256)
    got = compile_kernel(Declared(te.kernel("k", out), steps))(held, numbers)
    np.testing.assert_array_equal(got, held[np.clip(numbers, -128, 127) + 128])


@pytest.mark.parametrize("level", ["avx512vnni", "avx2"])
@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (20, 33), (16, 100)])
def test_columns_of_a_matrix_are_read_as_rows(rows: int, columns: int, level: str) -> None:
    """Where all that is read is the matrix'; a gather would take one load per element."""
    target = target_at(level)
    x, y = te.axes(x=columns, y=rows)
    image = te.tensor("image", "float32", (rows, columns))
    out = te.compute("out", "float32", (x, y), image[y, x])
    split = "split(out, x, {0})\nsplit(out, y, {0})\nreorder(out, x.o, y.o, x.i, y.i)\n"
    steps = split.format(target.lanes) + "unroll(out, x.i)\nvectorise(out, y.i)"
    turn = Declared(te.kernel("turn", out), steps)
    whole = rows % target.lanes == columns % target.lanes == 0
    text = assembly_of(lower_description(turn, target)[1].text, target)
    assert whole is ("gather" not in text and "vinsertps" not in text)
    values = normal(rows, columns)
    np.testing.assert_array_equal(compile_kernel(turn, target)(values), values.T)


def test_equal_constants_of_a_kernel_share_memory() -> None:
    """The weights of a layer that is written out for every step then stay in the cache."""
    kernel = compile_kernel(MatrixProduct(1, 40, 50))
    x, w, bias = normal(1, 40), normal(40, 50), np.zeros(50, np.float32)
    other = w.copy()
    other[7, 9] += 1
    first, same, changed, negative = (
        kernel.bind(w=w, bias=bias),
        kernel.bind(w=w.copy(), bias=bias.copy()),
        kernel.bind(w=other, bias=bias),
        kernel.bind(w=w, bias=-bias),
    )
    assert same.constants["w"] is first.constants["w"]
    assert same.constants["bias"] is first.constants["bias"]
    assert changed.constants["w"] is not first.constants["w"]
    assert negative.constants["bias"] is not first.constants["bias"]
    np.testing.assert_array_equal(same(x), first(x))
    np.testing.assert_allclose(changed(x)[..., 9], first(x)[..., 9] + x[..., 7], atol=1e-4)
