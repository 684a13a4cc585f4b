"""ONNX's own operator tests as models, one operator each."""

import warnings

from onnx.backend.test.loader import load_model_tests

MAX_BYTES = 100_000
"""Larger models are left out."""


def operator_models() -> list[tuple[str, bytes]]:
    """Name and file of each."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        cases = load_model_tests(kind="node")
    models = [(case.name, case.model.SerializeToString()) for case in cases if case.model]
    return [(name, model) for name, model in models if len(model) < MAX_BYTES]
