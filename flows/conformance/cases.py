"""ONNX's own operator tests, imported and evaluated on the host, with classified outcomes.

A case passes if every output has the expected element type and shape, and its values within the
case's own tolerance. Inputs that shapes depend on are fixed at the case's values, as in `tilewright
run`.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from ...compiler.frontend.import_with_inputs import import_with_inputs
from ...compiler.graph import evaluate
from ...compiler.importers import RefusedError
from ...errors import TilewrightError
from ...wording import counted
from .kernel_cases import KernelRunner

PASSED, REFUSED, DECIDED = "passed", "refused", "decided"
WRONG, CRASHED = "wrong", "crashed"
OUTCOMES = (PASSED, REFUSED, DECIDED, WRONG, CRASHED)
"""A decided case has another result than ONNX's reference, see `RUNTIMES`."""

RUNTIMES: Mapping[str, Sequence[str]] = {
    "Resize to a fractional extent": (
        "test_resize_downsample_scales_linear_align_corners",
        "test_resize_downsample_scales_cubic_align_corners",
    ),
    "MaxUnpool to a given shape": ("test_maxunpool_export_with_output_shape",),
}
"""Cases that expect what ONNX's reference evaluator alone computes, by the reason.

ONNX Runtime and PyTorch give another result, which is what a user of the model has seen. ONNX
Runtime leaves these cases out of its own tests.
"""

REASONS = {name: reason for reason, names in RUNTIMES.items() for name in names}

BFLOAT16_TOLERANCE = 2.0**-6
"""Relative tolerance: two units in the last place, as in ONNX's own runner."""

HEADING = re.compile(r"### (.+)")
LISTED = re.compile(r"\* `(\w+)`")


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of a case.

    Attributes
    ----------
    name : str
        Name of the case.
    outcome : str
        One of `OUTCOMES`.
    cause : str
        Cause of a refusal, in a few words; empty for a case that passed.
    message : str
        The error, or the difference of the outputs.
    kernels : int
        Number of CPU kernels that ran.
    """

    name: str
    outcome: str
    cause: str = ""
    message: str = ""
    kernels: int = 0


def load_cases(match: str = "") -> list[TestCase]:
    """Return ONNX's node tests whose names contain a text; case and underscores are ignored."""
    wanted = _squeezed(match)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # warnings of ONNX while it computes expected values
        return [case for case in load_model_tests(kind="node") if wanted in _squeezed(case.name)]


def _squeezed(name: str) -> str:
    """Return a name without underscores, in lower case, for comparison."""
    return name.replace("_", "").lower()


def run_cases(
    cases: Iterable[TestCase],
    progress: Callable[[str], None] = lambda name: None,
    kernels: KernelRunner | None = None,
) -> Iterator[CaseResult]:
    """Run cases, one result each; uses kernels of the CPU target if given."""
    for case in cases:
        progress(case.name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield run_case(case, kernels)


def arrays_of(case: TestCase) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Return a case's inputs by name, and its expected outputs; only tensors are kept."""
    assert case.model is not None, "node tests carry their models"
    assert case.data_sets is not None, "and their data"
    ((given, expected),) = case.data_sets
    names = [value.name for value in case.model.graph.input]
    inputs = {
        name: np.asarray(value)
        for name, value in zip(names, map(_as_array, given), strict=False)
        if isinstance(value, np.ndarray | np.generic)
    }
    return inputs, [_as_array(value) for value in expected]


def run_case(case: TestCase, kernels: KernelRunner | None = None) -> CaseResult:
    """Import a case's model, evaluate it on its inputs and compare.

    Parameters
    ----------
    kernels : KernelRunner or None
        Runs the graph with kernels; if None, the definition evaluates it.
    """
    arrays, expected = arrays_of(case)
    assert case.model is not None, "node tests carry their models"
    try:
        graph, _ = import_with_inputs(case.model.SerializeToString(), arrays)
        fed = {value.name: arrays[value.name] for value in graph.inputs}
        results, ran = (evaluate(graph, fed), 0) if kernels is None else kernels.run(graph, fed)
    except RefusedError as error:
        return CaseResult(case.name, REFUSED, error.cause, str(error))
    except TilewrightError as error:
        return CaseResult(case.name, REFUSED, "mistaken for a mistake of the model", str(error))
    except Exception as error:  # a crash is one of the outcomes
        return CaseResult(case.name, CRASHED, type(error).__name__, str(error))
    difference = compare(list(results.values()), expected, case.rtol, case.atol)
    outcome, cause = (WRONG, "wrong") if difference else (PASSED, "")
    if difference and case.name in REASONS:
        outcome, cause = DECIDED, REASONS[case.name]
    return CaseResult(case.name, outcome, cause, difference, ran)


def _as_array(value: Any) -> Any:
    """Return a tensor of the file format as an array; other values are unchanged."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def compare(got: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> str:
    """Describe the first difference between outputs; empty if there is none.

    Parameters
    ----------
    got, expected : sequence of ndarray
        One for each output.
    rtol, atol : float
        Relative and absolute tolerance of floats.
    """
    if len(got) != len(expected):
        return f"expected {counted(len(expected), 'output')}, got {len(got)}"
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        if not isinstance(other, np.ndarray | np.generic):
            return f"output {index}: expected {type(other).__name__}, got an array"
        other = np.asarray(other)
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return (
                f"output {index}: expected {other.dtype}{list(other.shape)}, got "
                f"{one.dtype}{list(one.shape)}"
            )
        tolerance = max(rtol, BFLOAT16_TOLERANCE) if other.dtype.name == "bfloat16" else rtol
        if other.dtype.kind not in "iub":
            one, other = one.astype(np.float64), other.astype(np.float64)
            near = np.isclose(one, other, rtol=tolerance, atol=atol, equal_nan=True)
        else:
            near = np.equal(one, other)
        if not near.all():
            place = tuple(int(i) for i in np.argwhere(~near)[0])
            return (
                f"output {index}: {np.count_nonzero(~near)} of {near.size} elements differ, the "
                f"first at {list(place)}: expected {other[place]}, got {one[place]}"
            )
    return ""


def by_cause(results: Iterable[CaseResult]) -> dict[str, list[CaseResult]]:
    """Return the results that did not pass by cause, the most frequent first."""
    causes: dict[str, list[CaseResult]] = {}
    for result in results:
        if result.outcome != PASSED:
            causes.setdefault(result.cause, []).append(result)
    return dict(sorted(causes.items(), key=lambda entry: (-len(entry[1]), entry[0])))


def count_outcomes(results: Iterable[CaseResult]) -> dict[str, int]:
    """Return the number of cases per outcome."""
    counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
    for result in results:
        counts[result.outcome] += 1
    return counts


APART = (
    "## Where ONNX's reference stands alone",
    "",
    "Users compare with ONNX Runtime and PyTorch. Where these agree and ONNX's reference evaluator "
    "does not, their result counts. All known cases, each with a test in "
    "`tests/compiler/test_runtimes.py`:",
    "",
    "| operator | here, as in ONNX Runtime | ONNX's reference evaluator |",
    "|---|---|---|",
    "| Resize, `align_corners` or `tf_crop_and_resize`, a scale or `keep_aspect_ratio_policy` that "
    "gives a fractional extent | divides by the extent of the result, so that corners map to "
    "corners | divides by the fractional extent |",
    "| Resize to the nearest, by scales | positions in binary32, so that ties round alike; those "
    "of `half_pixel_symmetric` are rounded to it from binary64 | in binary64 |",
    "| Resize, `tf_crop_and_resize` | decides in binary32 what lies beyond the edge | in binary64 "
    "|",
    "| Resize, `pytorch_half_pixel`, to one element | position 0, as specified | position -0.5, "
    "which differs if cubic or antialiased |",
    "| LpNormalization, `p` = 1 | divides by the sum of magnitudes | by the sum with signs |",
    "| LSTM, GRU, RNN, `clip` | limits the inputs of the gates | does not clip; by the "
    "specification's words, the cell state is limited before its function too |",
    "| LSTM, GRU, RNN, `sequence_lens` | ends each sequence there | ignores it |",
    "| GridSample, cubic, `border` | weights repeated elements beyond the border | moves the "
    "position to the border |",
    "| MaxUnpool, `output_shape` | the indices count the elements of that shape | the indices "
    "count those of the smallest shape, which is then padded |",
    "| AveragePool, LpPool, MaxPool, `ceil_mode` | the last windows are cut off at the end of the "
    "image or its padding | moves all windows, repeats elements, or gives another extent |",
    "| MaxPool, `auto_pad` | pads as specified | `SAME_LOWER` gives fewer windows |",
    "| LRN | sums over all channels within reach | counts as many channels as there are images |",
    "| Softmax, LogSoftmax, Hardmax before operator set 13, RoiAlign before 16 | as that set says "
    "| as the newest set says |",
    "",
    "Where only ONNX Runtime differs, we follow the specification and PyTorch:",
    "",
    "| operator | here | ONNX Runtime |",
    "|---|---|---|",
    "| Resize, linear, of integers | rounds to the nearest, as the reference does | truncates, so "
    "that an image of 255s may become one of 254s |",
    "| Resize to the nearest, by sizes | positions in binary64, as in the reference | in binary32 "
    "|",
    "| Resize by a scale that leaves all extents as they are | resamples, as PyTorch does | copies "
    "|",
    "| Resize, `tf_crop_and_resize`, an axis whose extent stays | crops it, as TensorFlow does | "
    "leaves it whole |",
    "| Resize, `keep_aspect_ratio_policy` with negative `axes` | resizes these axes | does not "
    "resize |",
    "| ConvTranspose, `SAME_UPPER` or `SAME_LOWER`, a stride beyond the kernel | the result has "
    "the input's extents times the stride | has fewer elements |",
    "| ReduceMean of nothing | NaN, as in PyTorch | 0 |",
    "",
    "AffineGrid with `align_corners` places a single element of an axis in the middle, as PyTorch "
    "does; ONNX Runtime and the reference place it at either end.",
)
"""The section of the page about results that differ from the reference evaluator's."""


def render(results: Sequence[CaseResult]) -> str:
    """Return the documentation page: counts, causes, and every refused case."""
    counts, causes = count_outcomes(results), by_cause(results)
    total = len(results)
    lines = [
        "# Conformance",
        "",
        f"Of ONNX's own {total:,} operator tests (`onnx.backend.test`, kind `node`, onnx "
        f"{onnx.__version__}), {counts[PASSED]:,} pass on the host "
        f"({counts[PASSED] / total:.1%}). {counts[DECIDED]} have the results of ONNX Runtime and "
        "PyTorch instead, see below; the others are refused with one sentence each:",
        "",
        "| Cause | Cases |",
        "|---|---:|",
        *(f"| {cause} | {len(found)} |" for cause, found in causes.items()),
        f"| **all** | **{total - counts[PASSED]}** |",
        "",
        "`tilewright conformance` runs them; `tilewright conformance --write` writes this page. A "
        "test fails if a case that is not listed here does not pass, or if a listed one does.",
        "",
        *APART,
        "",
        "## Cases that do not pass",
    ]
    for cause, found in causes.items():
        lines += ["", f"### {cause}", "", *(f"* `{result.name}`" for result in found)]
    return "\n".join([*lines, ""])


def read_listed(page: str) -> dict[str, str]:
    """Return the refused cases that a page of `render` lists, with their causes."""
    listed: dict[str, str] = {}
    cause = ""
    for line in page.splitlines():
        if heading := HEADING.fullmatch(line):
            cause = heading[1]
        elif entry := LISTED.fullmatch(line):
            listed[entry[1]] = cause
    return listed


def surprises(results: Iterable[CaseResult], listed: Mapping[str, str]) -> list[str]:
    """Describe where results and a list of refused cases disagree, one sentence per case."""
    found = []
    for result in results:
        cause = listed.get(result.name)
        if result.outcome == PASSED and cause is not None:
            found.append(f"`{result.name}` passes now: remove it from the list")
        elif result.outcome in (WRONG, CRASHED) or (result.outcome != PASSED and cause is None):
            found.append(f"`{result.name}` is {result.outcome}: {result.message}")
        elif result.outcome != PASSED and cause != result.cause:
            found.append(
                f"`{result.name}` is {result.outcome} for `{result.cause}`, not for `{cause}`"
            )
    return found
