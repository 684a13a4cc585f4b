"""Import a model whose shapes depend on inputs, all of whose values are at hand in Python."""

import os
from collections.abc import Mapping

import numpy as np

from .graph import Graph
from .importers import NeedsInputError, import_onnx


def import_with_inputs(
    source: str | os.PathLike[str] | bytes,
    inputs: Mapping[str, np.ndarray],
    batch: int = 1,
    dims: Mapping[str, int] | None = None,
) -> tuple[Graph, dict[str, np.ndarray]]:
    """Read an ONNX model, fixing what has to be known at import at the values of `inputs`.

    Parameters
    ----------
    source : path or bytes
        The file, or its contents.
    inputs : mapping
        Values of inputs by name.
    batch : int
        Extent of a leading dimension that the model leaves open.
    dims : mapping
        Extents of other open dimensions by their names.

    Returns
    -------
    Graph
        As `import_onnx` gives it.
    dict
        The inputs that were fixed; the graph has them no longer.

    Raises
    ------
    ImportModelError
        As `import_onnx`; `NeedsInputError` for an input that must be known and is not in `inputs`.
    """
    fixed: dict[str, np.ndarray] = {}
    while True:
        try:
            return import_onnx(source, batch, fixed, dims or {}), fixed
        except NeedsInputError as error:
            more = {name: inputs[name] for name in error.inputs if name in inputs}
            if not more or set(error.inputs) - set(inputs):
                raise
            fixed |= more
