"""Weights that fit 4 bits and a factor for each column of a tile are stored and loaded so."""

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.pipeline.compile import compile_request
from tilewright.compiler.pipeline.network_bound import network_work
from tilewright.compiler.pipeline.request import CompileRequest, Linked
from tilewright.compiler.scheduling.kernel_programs import ProgramStore
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.instructions import Load
from tilewright.isa.settings import DEFAULT_MEMORY
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session
from tilewright.sim.timing import ExactMeasure, time_program

from .test_constant_operands import Model

PACKED = PRESETS["8x8"].replace(name="packed", packed_weights="int4", bus_bits=32)
MACHINES = [
    PACKED,
    PRESETS["8x16"].replace(name="packed words", packed_weights="int4", bus_bits=32),
    PRESETS["ecp5-85"].replace(name="packed beats", packed_weights="int4"),
]


def network(wide: bool = False) -> onnx.ModelProto:
    """A convolution and a dense layer of 4-bit weights.

    The convolution has a factor for each block of 16 inputs and each output. The dense layer has
    one for each output, since its inputs are in another order on the accelerator.
    """
    built = Model()
    numbers = np.random.default_rng(3)

    def weights(block: int, inputs: int, *shape: int) -> np.ndarray:
        factors = numbers.integers(1, 16, (-(-inputs // block), shape[-1]))
        factors = np.repeat(factors, block, axis=0)
        drawn = numbers.integers(-8, 8, (inputs, *shape)) * factors[:inputs].reshape(
            inputs, *[1] * (len(shape) - 1), shape[-1]
        )
        if wide:
            drawn[3] = 111
        return drawn.astype(np.int8)

    kernel = np.moveaxis(weights(16, 32, 3, 3, 40), (0, -1), (1, 0))
    held = [built.hold(kernel, "w"), built.hold(np.float32(0.002), "s")]
    first = built.node("Conv", [built.quantised("x"), built.node("DequantizeLinear", held)])
    flat = built.node("Flatten", [built.quantised(first)])
    held = [built.hold(weights(640, 640, 72), "w"), built.hold(np.float32(0.002), "s")]
    second = built.node("MatMul", [flat, built.node("DequantizeLinear", held)])
    return built.made([built.quantised(second, 0.2)], x=(1, 32, 6, 6))


def run(proto: onnx.ModelProto, configuration: Configuration, kind: str = "sim"):
    graph = import_model(proto.SerializeToString())
    module = compile_module(graph, configuration)
    x = np.random.default_rng(1).normal(size=(1, 32, 6, 6)).astype(np.float32)
    with open_device(kind, configuration) as device:
        result = Session(module, device).run({"x": x})
    loads = [
        one
        for segment in module.segments
        for one in segment.program
        if isinstance(one, Load) and one.unpack
    ]
    assert result.profile.cycles is not None
    (output,) = result.outputs.values()
    return output, result.profile.cycles, result.profile.read_bytes, loads


def bound(machine: Configuration) -> int:
    graph = import_model(network().SerializeToString())
    return sum(work.bound(DEFAULT_MEMORY).cycles for work in network_work(graph, machine))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_narrow_weights_are_loaded_in_half_the_bytes(machine):
    plain, usual, bytes_before, none = run(network(), machine.replace(packed_weights="none"))
    packed, narrow, bytes_now, loads = run(network(), machine)
    np.testing.assert_array_equal(packed, plain)
    assert len(np.unique(plain)) > 20
    assert loads
    assert not none
    weights = 32 * 9 * 40 + 640 * 72
    assert bytes_before - bytes_now > 0.4 * weights
    assert bound(machine) <= narrow < usual


@pytest.mark.parametrize(
    ("wide", "machine"), [(True, PACKED), (False, PACKED.replace(bus_bits=128))], ids=str
)
def test_weights_that_do_not_fit_or_load_no_faster_stay_as_they_are(wide, machine):
    plain, *usual = run(network(wide), machine.replace(packed_weights="none"))
    same, *now = run(network(wide), machine)
    np.testing.assert_array_equal(same, plain)
    assert now == usual
    assert not now[-1]


def test_a_wider_port_does_not_lose_by_unpacking_no_more():
    """Programs for machines with other ports are searched too, and do not change each other."""
    graph, store = import_model(network().SerializeToString()), ProgramStore()
    found: dict[int, list[Linked]] = {}
    for bits in (32, 64, 128):
        request = CompileRequest(
            graph=graph, configuration=PACKED.replace(bus_bits=bits), lean=True
        )
        compilations = (
            compile_request(request, measure=ExactMeasure(), store=each) for each in (None, store)
        )
        found[bits] = [segment for one in compilations for segment in one.segments]
    for bits, (alone, shared) in found.items():
        assert alone.segment.program == shared.segment.program
        for narrower, (other, _) in found.items():
            if narrower < bits:
                machine = PACKED.replace(bus_bits=bits)
                assert alone.cycles <= time_program(other.segment.program, machine).cycles


@pytest.mark.slow
def test_the_hardware_unpacks_what_the_compiler_packs():
    expected, cycles, *_ = run(network(), PACKED)
    got, counted, *_ = run(network(), PACKED, "rtl")
    np.testing.assert_array_equal(got, expected)
    assert counted == cycles
