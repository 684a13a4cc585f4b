"""Fourier transforms have the bits of ONNX's reference, at any axis, length and version."""

import itertools

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate

from .onnx_models import model, node, scalars, value

WAYS = [way for way in itertools.product((1, 2), (0, 1), (0, 1)) if way != (2, 0, 1)]
"""Parts of a number, `inverse` and `onesided`; complex numbers have no one-sided transform."""


@pytest.mark.parametrize(("parts", "inverse", "onesided"), WAYS)
@pytest.mark.parametrize(("opset", "axis"), [(17, 1), (17, 2), (20, None), (20, 1), (20, -2)])
def test_a_transform_has_the_bits_of_the_reference(opset, axis, parts, inverse, onesided) -> None:
    x = np.random.default_rng(5).standard_normal((2, 10, 7, parts)).astype(np.float32)
    for length in (None, 12, 5):
        attributes, operands, held = {"inverse": inverse, "onesided": onesided}, ["x"], {}
        if length is not None:
            operands, held = ["x", "n"], scalars(n=length)
        if opset == 17:
            attributes["axis"] = axis
        elif axis is not None:
            operands = [*operands, "", "axis"][-3:] if length is None else [*operands, "axis"]
            held |= scalars(axis=axis)
        transform = node("DFT", operands, ["y"], **attributes)
        inputs = [value("x", np.float32, x.shape)]
        proto = model([transform], inputs, ["y"], held, opset)
        (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
        np.testing.assert_array_equal(
            evaluate(import_model(proto.SerializeToString()), {"x": x})["y"], expected
        )
