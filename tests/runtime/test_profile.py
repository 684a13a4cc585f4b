"""Profiles: all multiplications count, whoever computes them; the array's use is its own."""

import math
from pathlib import Path

import numpy as np
import pytest

from tilewright import compile_graph
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Builder, Output, TensorType, Value
from tilewright.compiler.graph.operators import MatMul, Reshape
from tilewright.compiler.host import host_target, plan_host
from tilewright.compiler.module import Module
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import Placement
from tilewright.isa.configuration import PRESETS
from tilewright.isa.encoding import encode_program
from tilewright.runtime import Session, open_device
from tilewright.runtime.names import layer_names
from tilewright.runtime.profile import ACCELERATOR, HostRun, Profile, profile_of
from tilewright.runtime.session import data_window

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
SMALL = PRESETS["8x16"]


def profile(module: Module, host: HostRun) -> Profile:
    """Of a run whose inputs are zeros, as far as the accelerator has a part in it."""
    with open_device("sim", SMALL) as sim:
        results = [
            sim.run(encode_program(segment.program, SMALL), data_window(segment))
            for segment in module.segments
        ]
    return profile_of(module, results, layer_names(module), host)


def kernels_of(module: Module) -> HostRun:
    plan = plan_host(module.graph, module.steps, module.segments, host_target())
    return HostRun(plan.kernels)


@pytest.fixture(scope="module")
def products() -> Module:
    """Two products, each with a view behind it."""
    shapes = {"x": (4, 32, 48), "z": (2, 8)}
    kinds = (Value(name, TensorType("float32", shape)) for name, shape in shapes.items())
    builder = Builder("products", tuple(kinds))
    outputs = []
    for name, columns in (("x", 40), ("z", 4)):
        weights = builder.constant(np.ones((shapes[name][-1], columns), np.float32), "weights")
        product = builder.emit(MatMul(), [name, weights], f"by.{name}")
        elements = math.prod(shapes[name][:-1]) * columns
        flat = builder.emit(Reshape((elements,)), [product], f"flat.{name}")
        outputs.append(Output(f"y.{name}", flat))
    return compile_module(builder.graph(outputs), SMALL)


@pytest.fixture(scope="module")
def parted() -> Module:
    """A network with a convolution on the host, between two segments."""
    graph = import_model(DIGITS / "digits_int8_qdq.onnx")
    return compile_module(graph, SMALL, placement=Placement(forced=(("conv2", "host"),)))


@pytest.mark.cpu_kernels
def test_products_count_in_kernels_and_in_numpy(products):
    macs = {"by.x": 4 * 32 * 48 * 40, "by.z": 2 * 8 * 4, "flat.x": 0, "flat.z": 0}
    for host, target in ((kernels_of(products), "host"), (HostRun(), "numpy")):
        found = profile(products, host)
        targets = {layer.name: layer.target for layer in found.layers}
        assert targets["by.x"] == targets["by.z"] == target
        assert {layer.name: layer.macs for layer in found.layers} == macs
        assert found.all_macs == sum(macs.values())
        assert found.macs == 0, "of the accelerator"


def test_the_use_of_the_array_does_not_depend_on_the_host(parted):
    kernels, numpy = profile(parted, kernels_of(parted)), profile(parted, HostRun())
    assert {layer.target for layer in numpy.layers} == {"accelerator", "numpy"}
    assert (numpy.macs, numpy.utilisation) == (kernels.macs, kernels.utilisation)
    assert numpy.all_macs == kernels.all_macs == numpy.macs + 73_728
    assert numpy.to_json()["totals"]["macs"] == numpy.macs
    (conv2,) = (layer for layer in numpy.layers if layer.name == "conv2")
    assert (conv2.target, conv2.macs, conv2.utilisation) == ("numpy", 73_728, None)


def test_no_layer_uses_more_than_the_array_where_products_pass_stores():
    module = compile_graph(import_model(DIGITS / "digits_int8_qdq.onnx"), PRESETS["8x8"])
    with open_device("sim", PRESETS["8x8"]) as sim:
        run = Session(module, sim).run({"scan": np.zeros((1, 1, 8, 8), np.float32)})
    layers = [row for row in run.profile.layers if row.target == ACCELERATOR]
    assert sum(row.cycles or 0 for row in layers) == run.profile.cycles
    assert all((row.utilisation or 0) <= 1 for row in layers)
