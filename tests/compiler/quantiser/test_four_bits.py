"""Weights of 4 bits: their form, and the layers that get them."""

from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.quantiser import QuantiserOptions, make_batches, quantise
from tilewright.compiler.quantiser.four_bits import BLOCK, FourBitForm
from tilewright.compiler.quantiser.layers import find_layers
from tilewright.compiler.quantiser.narrow_weights import narrow_weights
from tilewright.compiler.quantiser.prepare import prepare
from tilewright.errors import CompileError
from tilewright.isa.configuration import PRESETS, Configuration, Memory
from tilewright.isa.instructions import Load
from tilewright.isa.packed_weights import factors_of

from .networks import Net

MACHINE = PRESETS["ecp5-85"].replace(packed_weights="int4")


@pytest.mark.parametrize(("inputs", "taps"), [(64, 9), (40, 1), (7, 3)])
def test_each_block_of_inputs_has_one_factor(inputs, taps):
    rows = np.random.default_rng(0).standard_normal((12, inputs * taps))
    form = FourBitForm(inputs, taps)
    scales = form.scales(rows)
    found = form.rounded(rows, scales)
    error = found * scales[:, None] - rows
    assert 10 * np.log10(np.sum(rows**2) / np.sum(error**2)) > 21
    blocks = np.zeros((12, -(-inputs // BLOCK) * BLOCK, taps), np.int8)
    blocks[:, :inputs] = found.reshape(12, inputs, taps)
    columns = blocks.reshape(12, -1, BLOCK, taps).transpose(1, 3, 2, 0)
    assert factors_of(columns).all()


def test_weights_that_have_the_form_come_back():
    numbers = np.random.default_rng(1)
    factors = numbers.integers(1, 16, (6, 2, 1, 3))
    integers = numbers.integers(-7, 8, (6, 2, BLOCK, 3))
    integers[:, :, 0] = 7
    factors[:, 0, 0, 0] = 15
    rows = (integers * factors).reshape(6, -1) * 0.25
    form = FourBitForm(2 * BLOCK, 3)
    np.testing.assert_allclose(form.scales(rows), 0.25)
    np.testing.assert_array_equal(form.rounded(rows, np.full(6, 0.25)) * 0.25, rows)


def test_zeros_stay_zeros():
    rows = np.zeros((2, 32))
    form = FourBitForm(32, 1)
    assert not form.rounded(rows, form.scales(rows)).any()


def network() -> tuple[Net, str]:
    """Convolutions, one of them depthwise, and a dense layer behind a flattened image."""
    net = Net(32, 8, 8)
    x = net.node("Relu", net.conv("x", 48, 32))
    x = net.node("Relu", net.conv(x, 48, 48, group=48))
    x = net.node("Relu", net.conv(x, 32, 48, kernel=1))
    x = net.node("MaxPool", x, kernel_shape=[4, 4], strides=[4, 4])
    return net, net.dense(net.node("Flatten", x), 32 * 4, 40)


def quantised(**options):
    net, output = network()
    graph = net.graph(output)
    return quantise(graph, make_batches(graph, net.inputs(16)), QuantiserOptions(**options))


def test_layers_get_four_bits_while_the_end_is_good_enough():
    usual, narrow = quantised(), quantised(weight_bits=4, weight_db=15.0)
    assert not usual.four_bits
    assert len(narrow.four_bits) == 3
    assert 15 <= narrow.end_db < usual.end_db
    few = quantised(weight_bits=4, weight_db=narrow.end_db + 0.5)
    assert 0 < len(few.four_bits) < 3
    assert few.end_db > narrow.end_db
    none = quantised(weight_bits=4, weight_db=60.0)
    assert not none.four_bits
    assert none.end_db == usual.end_db


def test_the_accelerator_loads_them_in_half_the_bytes():
    narrow = quantised(weight_bits=4, weight_db=10.0)
    assert {layer.kind for layer in narrow.four_bits} == {"conv", "dense"}
    graph = narrow.integer_graph()

    def weight_loads(machine: Configuration) -> list[Load]:
        module = compile_module(graph, machine)
        loads = (one for part in module.segments for one in part.program if isinstance(one, Load))
        return [one for one in loads if one.destination is Memory.WGT and not one.fill]

    packed, plain = weight_loads(MACHINE), weight_loads(MACHINE.replace(packed_weights="none"))
    assert sum(one.unpack for one in packed) >= 3
    assert not any(one.unpack for one in plain)
    size = [sum(one.length * one.steps() for one in loads) for loads in (packed, plain)]
    assert size[0] < 0.6 * size[1]


@pytest.mark.parametrize(
    ("weight_db", "kept"),
    [(31, []), (28, ["conv0"]), (21, ["conv0", "gemm8"]), (15, ["conv0", "gemm8", "conv4"])],
)
def test_layers_with_the_least_noise_per_weight_come_first(weight_db, kept):
    """`conv4` adds less noise than `gemm8`, but more for each of its few weights."""
    net, output = network()
    graph = prepare(net.graph(output))
    noise = {"conv0": 1e-3, "conv4": 3e-3, "gemm8": 5e-3}
    names = {layer.head: layer for layer in find_layers(graph, ())}

    class Search:
        options = QuantiserOptions(weight_bits=4, weight_db=weight_db)

        def progress(self, text):
            pass

        def with_four_bits(self, best, heads):
            return SimpleNamespace(heads=heads, same_class=None)

        def compare(self, found):
            for each in found:
                lost = sum(noise[names[head].name] for head in each.heads)
                each.end_db = -10 * np.log10(1e-4 + lost)
            return found

    best = SimpleNamespace(
        source=SimpleNamespace(graph=graph), points=SimpleNamespace(layers=list(names.values())),
        end_db=40.0, same_class=None,
    )  # fmt: skip
    _, layers = narrow_weights(Search(), best)  # pyright: ignore[reportArgumentType]
    assert [layer.name for layer in layers] == kept


def test_other_numbers_of_bits_are_refused():
    with pytest.raises(CompileError, match="expected weights of 4 or 8 bits, got 5"):
        QuantiserOptions(weight_bits=5)
