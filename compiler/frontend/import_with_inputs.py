"""Import a model whose shapes depend on inputs, given the values of its inputs."""

import os
from collections.abc import Mapping

import numpy as np

from ..graph import Graph
from ..importers import NeedsInputError, import_onnx


def import_with_inputs(
    source: str | os.PathLike[str] | bytes,
    inputs: Mapping[str, np.ndarray],
) -> tuple[Graph, dict[str, np.ndarray]]:
    """Read an ONNX model; inputs that import needs are fixed at their values in `inputs`.

    Parameters
    ----------
    source : path or bytes
        The file, or its contents.
    inputs : mapping
        Values of inputs by name.

    Returns
    -------
    Graph
        A result of `import_onnx`.
    dict
        The fixed inputs, which the graph no longer has.

    Raises
    ------
    ImportModelError
        As for `import_onnx`; `NeedsInputError` if import needs an input that `inputs` lacks.
    """
    fixed: dict[str, np.ndarray] = {}
    while True:
        try:
            return import_onnx(source, fixed=fixed), fixed
        except NeedsInputError as error:
            more = {name: inputs[name] for name in error.inputs if name in inputs}
            if not more or set(error.inputs) - set(inputs):
                raise
            fixed |= more
