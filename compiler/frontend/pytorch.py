"""Import of PyTorch modules: `torch.onnx.export` writes ONNX in memory, and the importer reads it.

PyTorch is not a dependency; `from_torch` imports it when called.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from ...errors import ImportModelError, InputError, ToolError, install_command
from ..graph import Graph
from ..importers import import_onnx
from ..quantiser import QuantiserOptions, make_batches, quantise
from . import import_model

INSTALL = f"install it with `{install_command('torch')}`"


def from_torch(
    module: Any,
    example: Any,
    calibrate: np.ndarray | Mapping[str, np.ndarray] | None = None,
    options: QuantiserOptions | None = None,
) -> Graph:
    """Read a PyTorch module.

    Parameters
    ----------
    module : torch.nn.Module
        Module to export, in evaluation mode; afterwards all its parts return to their old modes.
    example : tensor, or tuple or mapping of tensors
        Arguments of a call, positional or by name. The graph takes their shapes.
    calibrate : array or mapping of arrays
        Samples for quantisation, [samples, ...] without the leading extent of 1 of the example; for
        several inputs, a mapping by name. Without samples, the graph is not quantised: it stays in
        float for the host, or in int8 if the module is already quantised.
    options : QuantiserOptions
        Options of the quantisation; None for the defaults.

    Returns
    -------
    Graph
        Graph as from `import_model`, ready for `compile_graph`.

    Raises
    ------
    ToolError
        If PyTorch, or a package that its exporter needs, is not installed.
    ImportModelError
        If PyTorch cannot export the module, or the module uses an unsupported feature.
    CompileError
        If samples are given but there is nothing to quantise.
    InputError
        If the samples do not fit the inputs.
    """
    data = export_torch(module, example)
    if calibrate is None:
        return import_model(data)
    graph = import_onnx(data)
    samples = _samples(graph, calibrate)
    batches = make_batches(graph, samples)
    return quantise(graph, batches, options or QuantiserOptions()).integer_graph()


def export_torch(module: Any, example: Any) -> bytes:
    """Convert a PyTorch module to ONNX.

    Parameters
    ----------
    module : torch.nn.Module
        Module to export; see `from_torch`.
    example : tensor, or tuple or mapping of tensors
        Arguments of a call; see `from_torch`.

    Returns
    -------
    bytes
        Contents of an ONNX file; its inputs have the names of the module's arguments.

    Raises
    ------
    ToolError, ImportModelError
        As for `from_torch`.
    """
    torch = _import_torch()
    name = type(module).__name__
    positional, named = _arguments(example)
    parts = list(module.modules()) if hasattr(module, "modules") else []
    modes = [part.training for part in parts]
    with _quiet():
        try:
            if any(modes):
                module.eval()
            program = torch.onnx.export(
                module, positional, kwargs=named, dynamo=True, verbose=False
            )
        except ImportError as error:  # onnxscript, which PyTorch needs for the export
            raise ToolError(
                f"PyTorch: expected what it exports ONNX with, got `{error}`; {INSTALL}"
            ) from error
        except Exception as error:  # PyTorch raises many types for modules that it cannot trace
            raise ImportModelError(
                f"module `{name}`: expected PyTorch to export it with these arguments, got "
                f"`{_reason(error)}`; see that the module can be called with them, and that "
                "`torch.export.export` takes it"
            ) from error
        finally:
            for part, training in zip(parts, modes, strict=True):  # frozen parts stay frozen
                part.training = training
    return program.model_proto.SerializeToString()


def _import_torch() -> ModuleType:
    try:
        return import_module("torch")
    except ImportError as error:
        raise ToolError(f"PyTorch: expected module `torch`, got `{error}`; {INSTALL}") from error


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, positional and by name."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example) if isinstance(example, list | tuple) else (example,)), {}


def _reason(error: BaseException) -> str:
    """Return the first line of an error's original cause; PyTorch adds advice around it."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return " ".join((lines or [type(error).__name__])[0].split())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the exporter's warnings and log messages about its internals."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _samples(graph: Graph, given: np.ndarray | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the samples of each input as [samples, *shape of the input]."""
    names = [value.name for value in graph.inputs]
    arrays = dict(given) if isinstance(given, Mapping) else dict.fromkeys(names[:1], given)
    if set(arrays) != set(names):
        raise InputError(
            f"samples to calibrate with: expected {_listed(names)}, got {_listed(list(arrays))}; "
            "give an array for each input, by its name"
        )
    samples = {}
    for value in graph.inputs:
        array, shape = np.asarray(arrays[value.name]), value.type.shape
        if array.shape[1:] not in (shape, shape[1:] if shape[:1] == (1,) else shape):
            raise InputError(
                f"samples to calibrate with: `{value.name}`: expected "
                f"[samples, {', '.join(map(str, shape))}], got {list(array.shape)}; reshape it"
            )
        samples[value.name] = array.astype(value.type.dtype).reshape(len(array), *shape)
    return samples


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
