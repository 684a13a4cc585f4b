"""The exporter is as wide as the importer: every operator comes back from a file, quantised or not.

ONNX's own operator tests are the models, and models of the operators that these lack. To be
quantised, each gets a dense layer beside it.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
import pytest

from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.exporters.onnx_operators import has_export
from tilewright.compiler.frontend.import_with_inputs import import_with_inputs
from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.graph.operator import OPERATORS
from tilewright.compiler.graph.operators import FromBytes, Shift
from tilewright.compiler.graph.operators.integer import Accelerated
from tilewright.compiler.importers import RefusedError, import_onnx
from tilewright.compiler.importers.onnx_functions import has_function
from tilewright.compiler.importers.onnx_library import LIBRARY
from tilewright.compiler.importers.onnx_operators import HANDLERS
from tilewright.compiler.importers.refusals import CAUSES
from tilewright.compiler.quantiser import QuantiserOptions, make_batches, quantise
from tilewright.flows.conformance.cases import arrays_of, load_cases

from .more_models import CLASSICAL, Arrays, more_models

CONSTANT = {
    *("BlackmanWindow", "EyeLike", "HammingWindow", "HannWindow", "MelWeightMatrix"),
    *("NonMaxSuppression", "NonZero", "Unique"),  # their operands must be known at import
}
"""Operators that fold to constants on import."""


def with_dense_layer(given: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a layer of its own input beside it."""
    proto = onnx.ModelProto.FromString(given.SerializeToString())
    weights = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "dense.w"))
    proto.graph.node.append(onnx.helper.make_node("MatMul", ["dense.x", "dense.w"], ["dense.y"]))
    for values, name in ((proto.graph.input, "dense.x"), (proto.graph.output, "dense.y")):
        values.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 8]))
    if not any(one.domain in ("", "ai.onnx") for one in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid("", 20))
    return proto


def networks(*, every: bool) -> Iterator[tuple[str, Graph, Arrays]]:
    """Name, graph and inputs of the cases that compute: all, or one for each operator."""
    seen = set()
    for name, model, given in named_models():
        operators = tuple(node.op_type for node in model.graph.node)
        if not every and operators in seen:
            continue
        arrays = given | {"dense.x": np.ones((1, 8), np.float32)}
        try:
            graph, _ = import_with_inputs(with_dense_layer(model).SerializeToString(), arrays)
        except RefusedError:
            continue
        if sum(graph.producer(output.value) is not None for output in graph.outputs) > 1:
            seen.add(operators)
            yield name, graph, {value.name: arrays[value.name] for value in graph.inputs}


def named_models() -> Iterator[tuple[str, onnx.ModelProto, Arrays]]:
    """Name, model and inputs of ONNX's tests and of the models that fill their gaps."""
    for case in load_cases():
        assert case.model is not None, "node tests carry their models"
        yield case.name, case.model, arrays_of(case)[0]
    for model, arrays in more_models():
        yield " and ".join(node.op_type for node in model.graph.node), model, arrays


def operators_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, str]]:
    """Domain and name of the operators of nodes, and of those in their branches."""
    for node in nodes:
        yield node.domain, node.op_type
        for attribute in node.attribute:
            yield from operators_of(attribute.g.node)


def comes_back(graph: Graph, inputs: Arrays) -> bool:
    """Whether a graph computes the same after it went through a file."""
    before = evaluate(graph, inputs)
    after = evaluate(import_onnx(export_onnx(graph).SerializeToString()), inputs)
    return before.keys() == after.keys() and all(
        array.dtype == after[name].dtype
        and array.shape == after[name].shape
        and np.allclose(
            array.astype(np.float64), after[name].astype(np.float64), 1e-5, 1e-6, equal_nan=True
        )
        for name, array in before.items()
    )


def test_every_operator_of_the_host_has_a_writer():
    host = {kind for kind in OPERATORS.values() if not issubclass(kind, Accelerated)}
    written = {kind for kind in host if has_export(kind)}
    assert host - written == {FromBytes, Shift}  # which passes of the front end make


def test_every_operator_that_the_importer_takes_is_walked():
    """A new version of onnx, or a new importer, fails here until a model of it is walked."""
    models = {name: model for name, model, _ in named_models()}
    walked = {
        operator
        for name, _, _ in networks(every=False)
        for operator in operators_of(models[name].graph.node)
    }
    schemas = {(one.domain, one.name): one for one in onnx.defs.get_all_schemas()}
    taken = {
        key
        for key, schema in schemas.items()
        if key[0] in ("", CLASSICAL) and key not in CAUSES
        if key in HANDLERS or key in LIBRARY or has_function(schema)
    }
    assert {name for _, name in taken - walked} == CONSTANT


def test_every_operator_comes_back_from_a_file():
    lost = [name for name, graph, inputs in networks(every=False) if not comes_back(graph, inputs)]
    assert lost == []


@pytest.mark.slow
def test_every_case_comes_back_from_a_file():
    lost = [name for name, graph, inputs in networks(every=True) if not comes_back(graph, inputs)]
    assert lost == []


@pytest.mark.slow
def test_every_operator_comes_back_beside_a_quantised_layer():
    count = 0
    for name, graph, inputs in networks(every=False):
        samples = {key: np.stack([array] * 3) for key, array in inputs.items()}
        batches = make_batches(graph, samples)
        made = quantise(graph, batches, QuantiserOptions(effort="quick"), lambda text: None).graph
        assert comes_back(made, inputs), name
        count += 1
    assert count > 230
