"""PyTorch modules -> graphs: `torch.onnx.export` writes ONNX in memory, and the importer reads it.

PyTorch is no dependency: it is imported here, when the function is called.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import ImportModelError, InputError, ToolError, install_command
from .frontend import import_model
from .graph import Graph
from .importers import import_onnx
from .quantiser import QuantiserOptions, make_batches, quantise

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
        Exported as it is in evaluation mode; afterwards, all its parts are in the mode they had.
    example : tensor, or tuple or mapping of tensors
        Arguments of a call, positional or by name. Their shapes are the graph's.
    calibrate : array or mapping of arrays
        Samples to quantise the network with, [samples, ...] without the leading extent of 1 that
        the example may have; for several inputs, by their names. None leaves it as it is: in float
        for the host, or in int8 where the module is quantised already.
    options : QuantiserOptions
        How to quantise; the default ones if not given.

    Returns
    -------
    Graph
        As `import_model` gives it, ready for `compile_graph`.

    Raises
    ------
    ToolError
        If PyTorch, or what it exports with, is not installed.
    ImportModelError
        If PyTorch cannot export the module, or it uses what is not supported.
    CompileError
        If there is nothing to quantise with the samples.
    InputError
        If they do not fit.
    """
    data = export_torch(module, example)
    if calibrate is None:
        return import_model(data)
    graph = import_onnx(data)
    samples = _samples(graph, calibrate)
    batches = make_batches(graph, samples)
    return quantise(graph, batches, options or QuantiserOptions()).integer_graph()


def export_torch(module: Any, example: Any) -> bytes:
    """Write a PyTorch module as ONNX.

    Parameters
    ----------
    module, example
        As `from_torch` takes them.

    Returns
    -------
    bytes
        An ONNX file; its inputs have the names of the module's arguments.

    Raises
    ------
    ToolError, ImportModelError
        As `from_torch`.
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
        except ImportError as error:  # onnxscript, which PyTorch asks for when it exports
            raise ToolError(
                f"PyTorch: expected what it exports ONNX with, got `{error}`; {INSTALL}"
            ) from error
        except Exception as error:  # PyTorch raises many kinds over modules that it cannot trace
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
    """Return the first line of what an error came from; PyTorch wraps it in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return " ".join((lines or [type(error).__name__])[0].split())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's warnings and log lines about its own parts from the caller."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _samples(graph: Graph, given: np.ndarray | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return samples as [samples, *shape of the input], by input."""
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
