"""Comparisons on the values that reach a network's softmax and norms."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ....compiler.cpu import LayerNormalisation, RowSoftmax
from ....compiler.frontend import import_model
from ....compiler.graph import evaluate
from ....compiler.host import HostKernel, host_target
from ....compiler.host.select import select_kernels
from ....errors import ToolError
from ...execution.samples import read_samples
from .cases import UNIT, Agreement, compare_norm, compare_softmax


def compare_network(model: Path, samples: Path, count: int) -> Iterator[Agreement]:
    """Compare all softmax and all norms of a float network, on the first samples.

    The matchers of the host's kernels find them, in whatever form the model has them.
    """
    graph = import_model(model)
    target = host_target()
    if target is None:
        raise ToolError(f"meanings: no kernels for this processor, so none to find in `{model}`")
    found = [
        kernel
        for kernel in select_kernels(graph, graph.nodes, target, least_work=0)
        if isinstance(kernel.description, RowSoftmax | LayerNormalisation)
    ]
    rows: dict[str, list[np.ndarray]] = {kernel.inputs["x"]: [] for kernel in found}
    for sample in read_samples(samples, graph).first(count):
        kept = evaluate(graph, sample, keep=rows)
        for name, list_of in rows.items():
            list_of.append(kept[name])
    for kind, title in ((RowSoftmax, "softmax"), (LayerNormalisation, "norm")):
        each = [kernel for kernel in found if isinstance(kernel.description, kind)]
        results = [_compare(kernel, np.concatenate(rows[kernel.inputs["x"]])) for kernel in each]
        if results:
            yield Agreement.over(f"{model.name}: {len(each)} {title}", results)


def _compare(kernel: HostKernel, x: np.ndarray) -> Agreement:
    shape = kernel.description
    assert isinstance(shape, RowSoftmax | LayerNormalisation)
    x = x.reshape(-1, shape.columns)
    if isinstance(shape, RowSoftmax):
        # A mask of -1e9 would take all of the range.
        masked = x < -1e4
        return compare_softmax("", np.where(masked, x[~masked].min(), x), UNIT)
    scale, bias = kernel.constants["scale"], kernel.constants["bias"]
    return compare_norm("", x, scale, bias, shape.epsilon, shape.centred)
