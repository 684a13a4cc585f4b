"""Import of PyTorch modules: `torch.onnx.export` writes ONNX in memory, and the importer reads it.

PyTorch is not a dependency; `from_torch` imports it when called.
"""

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from ...argument_types import checked
from ...errors import ImportModelError, InputError, ToolError, install_command
from ..graph import Graph
from ..importers import import_onnx
from ..quantiser import QuantiserOptions, doubts, evaluate_quality, make_batches, quantise
from . import import_model

EVALUATED = 256
"""Samples, the first ones, with which a quantised network is compared with the float one."""


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


INSTALL = f"install it with `{install_command('torch')}`"


@checked("from_torch")
def from_torch(
    module: Any,
    example: Any,
    calibrate: Any = None,
    options: QuantiserOptions | None = None,
    *,
    say: Callable[[str], None] = _to_stderr,
) -> Graph:
    """Read a PyTorch module.

    Parameters
    ----------
    module : torch.nn.Module
        Module to export, in evaluation mode; afterwards all its parts return to their old modes.
    example : tensor or array, or tuple or mapping of them
        Arguments of a call, positional or by name. The graph takes their shapes.
    calibrate : array, mapping of arrays, or iterable of batches
        Samples for quantisation, [samples, ...] without the leading extent of 1 of the example; for
        several inputs, a mapping by name. A `DataLoader` or another iterable gives batches:
        samples, or pairs of samples and labels. Without samples, the graph is not quantised: it
        stays in float for the host, or in int8 if the module is already quantised.
    options : QuantiserOptions
        Options of the quantisation; None for the defaults.
    say : callable
        Called with each line about noise, accuracy and doubtful samples; stderr by default.

    Returns
    -------
    Graph
        Graph as from `import_model`, ready for `compile_graph` and `export_onnx`.

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
    data, name = export_torch(module, example), type(module).__name__
    if calibrate is None:
        return replace(import_model(data), name=name)
    graph = replace(import_onnx(data), name=name)
    given, labels = _gathered(calibrate)
    samples = _samples(graph, given)
    for line in doubts(samples):
        say(f"warning: {line}")
    quantised = quantise(graph, make_batches(graph, samples), options or QuantiserOptions())
    integer = quantised.integer_graph()
    first = make_batches(graph, {name: array[:EVALUATED] for name, array in samples.items()})
    found = evaluate_quality(
        quantised, integer, first, None if labels is None else labels[:EVALUATED]
    )
    line = f"{graph.name}: quantised, {found.sqnr_db:.1f} dB signal to noise"
    if found.same_class is not None:
        line += f", same class as in float {found.same_class:.1%}"
    if found.accuracy is not None:
        line += f", accuracy {found.float_accuracy:.1%} in float, {found.accuracy:.1%} in int8"
    if found.noisiest and found.noisiest.prevails:
        line += f" ({found.noisiest.others_db:.1f} dB without sample {found.noisiest.index})"
    say(f"{line}, on {found.samples} of the samples that calibrated it")
    return integer


def _gathered(given: Any) -> tuple[Any, np.ndarray | None]:
    """Return arrays, and labels if batches have them.

    Raises
    ------
    InputError
        If there is no batch.
    """
    if isinstance(given, Mapping) or hasattr(given, "__array__"):
        return given, None
    batches = list(given) if isinstance(given, Iterable) else [given]
    if not batches:
        raise InputError(
            "samples to calibrate with: expected at least one batch, got none; give some"
        )
    pairs: list[Sequence[Any]] = [
        batch if isinstance(batch, list | tuple) else (batch,) for batch in batches
    ]
    inputs = [pair[0] for pair in pairs]
    if isinstance(inputs[0], Mapping):
        gathered: Any = {
            name: np.concatenate([np.asarray(each[name]) for each in inputs]) for name in inputs[0]
        }
    else:
        gathered = np.concatenate([np.asarray(each) for each in inputs])
    if any(len(pair) < 2 for pair in pairs):
        return gathered, None
    labels = np.concatenate([np.asarray(pair[1]).reshape(-1) for pair in pairs])
    has_classes = np.issubdtype(labels.dtype, np.integer)
    return gathered, labels if has_classes else None


def export_torch(module: Any, example: Any) -> bytes:
    """Convert a PyTorch module to ONNX.

    Parameters
    ----------
    module : torch.nn.Module
        Module to export; see `from_torch`.
    example : tensor or array, or tuple or mapping of them
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
    positional, named = _arguments(example, torch)
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
    proto = program.model_proto
    proto.graph.name = name
    return proto.SerializeToString()


def _import_torch() -> ModuleType:
    try:
        return import_module("torch")
    except ImportError as error:
        raise ToolError(f"PyTorch: expected module `torch`, got `{error}`; {INSTALL}") from error


def _arguments(example: Any, torch: ModuleType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, positional and by name; the exporter takes no NumPy array."""

    def tensor(value: Any) -> Any:
        return torch.as_tensor(value) if isinstance(value, np.ndarray) else value

    if isinstance(example, Mapping):
        return (), {name: tensor(value) for name, value in example.items()}
    given = example if isinstance(example, list | tuple) else (example,)
    return tuple(map(tensor, given)), {}


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
            # The shape in the form that the user chose, with or without the example's first extent.
            row = shape[1:] if shape[:1] == (1,) and array.ndim <= len(shape) else shape
            raise InputError(
                f"samples to calibrate with: `{value.name}`: expected "
                f"[{', '.join(map(str, ('samples', *row)))}], got {list(array.shape)}; reshape it"
            )
        samples[value.name] = array.astype(value.type.dtype).reshape(len(array), *shape)
    return samples


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
