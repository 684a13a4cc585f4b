"""ONNX's operator tests, which are written for the newest operator set, in the older sets too.

A case is taken where the operator had the same inputs, outputs and attributes then.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx.backend.test.case.test_case import TestCase

from tilewright.compiler.importers.onnx_model import OLDEST_OPSET
from tilewright.flows.conformance.cases import (
    DECIDED,
    PASSED,
    REFUSED,
    load_cases,
    read_listed,
    run_case,
)

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "conformance.md"

CHANGED = {
    "GroupNormalization": "a scale for each group, not for each channel",
    "Hardmax": "over all axes from the given one on",
    "LogSoftmax": "over all axes from the given one on",
    "Loop": "its body is of the newest set",
    "Scan": "lengths as first operand, and a batch",
    "Softmax": "over all axes from the given one on",
    "Unique": "no bfloat16",
}
"""Operators that meant something else -> what."""


def in_older_sets(case: TestCase) -> Iterator[tuple[int, TestCase]]:
    """Yield a case of one operator in each older set that defined it anew."""
    assert case.model is not None, "node tests carry their models"
    nodes = case.model.graph.node
    newest = max(entry.version for entry in case.model.opset_import)
    if len(nodes) != 1 or nodes[0].domain:
        return
    (node,) = nodes
    for version in sorted({max(v, OLDEST_OPSET) for v in VERSIONS[node.op_type]}):
        if version >= newest:
            continue
        schema = onnx.defs.get_schema(node.op_type, version, "")
        known = all(attribute.name in schema.attributes for attribute in node.attribute)
        few = len(node.input) <= schema.max_input and len(node.output) <= schema.max_output
        if known and few and not schema.deprecated:
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            for entry in model.opset_import:
                entry.version = version
            yield version, replace(case, model=model)


VERSIONS: dict[str, set[int]] = defaultdict(set)
for each in onnx.defs.get_all_schemas_with_history():
    if not each.domain:
        VERSIONS[each.name].add(each.since_version)


@pytest.fixture(scope="module")
def cases() -> list[TestCase]:
    return load_cases()


def surprises(cases: list[TestCase], kinds: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """How many cases ran, and those that do not pass, for no reason that the page lists."""
    causes, count, found = {*read_listed(PAGE.read_text()).values()}, 0, []
    for case in cases:
        assert case.model is not None, "node tests carry their models"
        kind = case.model.graph.node[0].op_type
        if kind in CHANGED or (kinds and kind not in kinds):
            continue
        for version, older in in_older_sets(case):
            result, count = run_case(older), count + 1
            listed = result.outcome in (REFUSED, DECIDED) and result.cause in causes
            if result.outcome != PASSED and not listed:
                found.append(f"`{case.name}` in set {version}: {result.message}")
    return count, found


@pytest.mark.slow
def test_blocks_of_pixels_are_moved_in_all_sets(cases):
    """Only the newest set defines these by other operators."""
    count, found = surprises(cases, ("DepthToSpace", "SpaceToDepth"))
    assert count >= 4
    assert not found


def test_sampling_has_the_names_of_its_time(cases):
    """`bilinear` was renamed `linear` in set 20."""
    found = []
    for case in cases:
        assert case.model is not None, "node tests carry their models"
        if case.name not in ("test_gridsample_bilinear", "test_gridsample_bicubic"):
            continue
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        model.opset_import[0].version = 16
        for attribute in model.graph.node[0].attribute:
            if attribute.name == "mode":
                attribute.s = b"bi" + attribute.s
        found.append(run_case(replace(case, model=model)).message)
    assert found == ["", ""]


def test_every_case_passes_in_the_sets_that_have_its_operator(cases):
    count, found = surprises(cases)
    assert count > 2500
    assert not found
