"""The ONNX importer: from a file to a graph of host operators with static shapes.

The importer trusts nothing. It uses the shapes that the file declares for the inputs only, and
infers all others. Each mistake in a file is reported in one sentence. Passes later recognise what
the accelerator can run.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import onnx
from google.protobuf.message import DecodeError, Message

from ...errors import CompileError, ImportModelError
from ...quoting import MAX_NAME, printable, shell_word
from ...wording import counted
from ..graph import Builder, Graph, Output, drop_unused, verify
from ..model_file import read_model
from .onnx_cut import cut, order_nodes, proposed_cut
from .onnx_dispatch import import_nodes, unsupported
from .onnx_functions import function_sizes
from .onnx_inputs import Fixed, ImportSettings, check_overrides, import_input, with_extents
from .onnx_scope import ImportScope, Named, key_of, schema_of
from .onnx_tensors import read_sparse, read_tensor
from .refusals import NeedsInputError, RefusedError

OLDEST_OPSET = 7
"""Oldest supported version of ONNX's operator set: the first with NumPy's broadcasting."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""No overrides."""


def import_onnx(
    source: str | os.PathLike[str] | bytes,
    batch: int = 1,
    fixed: Fixed = NOTHING,
    dims: Mapping[str, int] = NOTHING,
    outputs: Sequence[str] = (),
    masks: Collection[str] = (),
) -> Graph:
    """Read an ONNX model.

    Parameters
    ----------
    source : path or bytes
        The file, or its contents.
    batch : int
        Extent of the leading dimension, if the model leaves it open, and of dimensions of the same
        name.
    fixed : mapping
        Inputs that determine shapes or other constants -> their values; they are no longer inputs.
    dims : mapping
        Name of each other dimension that the model leaves open -> its extent.
    outputs : sequence of str
        Values at which to cut the model; none for its own outputs.
    masks : collection of str
        Float inputs that hold 0 and large negative numbers, which are added to scores of attention;
        other numbers are rounded to these.

    Returns
    -------
    Graph
        A verified graph of host operators; names and types of inputs and outputs are the model's.

    Raises
    ------
    ImportModelError
        If the file cannot be read, is not an ONNX model, is damaged, has an open dimension, or
        uses an operator or type that is not supported; one message names all such operators. The
        subclass `NeedsInputError` names the inputs to fix.
    """
    if isinstance(source, bytes):
        data, name, folder = source, "model", None
    else:
        path = Path(source)
        _refuse_other_formats(path)
        name, folder = printable(path.stem)[:MAX_NAME], path.parent
        data = read_model(path)
    if batch < 1:
        raise ImportModelError(f"model `{name}`: expected a batch of 1 or more, got `{batch}`")
    model = _parse(data, name)
    order_nodes(model.graph)
    opsets = _opsets(model, name)
    settings = ImportSettings(batch, fixed, dims, folder, masks)
    try:
        if outputs:
            cut(model, outputs, name)
        return _import_graph(model, name, opsets, settings)
    except RefusedNodeError as refused:
        error = refused.reason
        remedy = ""
        if not isinstance(error, NeedsInputError) or error.data:
            error.cut = proposed_cut(
                model, refused.position, refused.is_constant,
                lambda part: _refused_position(part, name, opsets, settings),
            )  # fmt: skip
        if error.cut:
            remedy = f"; `--outputs {','.join(error.cut)}` cuts the model there"
        error.args = (printable(f"{error}{remedy}"),)
        raise error from refused
    except ImportModelError as error:
        error.args = (printable(str(error)),)
        raise
    except CompileError as error:
        raise ImportModelError(printable(f"model `{name}`: {error}")) from error


PYTORCH = "export it with `torch.onnx.export`, or call `tilewright.from_torch(module, example)`"
TENSORFLOW = (
    "convert it with tf2onnx (`pip install tf2onnx tensorflow`): "
    "`python -m tf2onnx.convert --{option} {model} {more}--output {output}`"
)
GRAPH_ENDS = "--inputs NAME:0 --outputs NAME:0 "
SAMPLES = "it has samples, which `--input` and `--calibrate` take; name the network"
SAVED_MODEL = "saved_model.pb"
"""The file that makes a folder a model of TensorFlow."""

OTHER_FORMATS: Mapping[str, str] = {
    ".pt": PYTORCH,
    ".pth": PYTORCH,
    ".pt2": PYTORCH,
    ".safetensors": PYTORCH,
    ".tflite": "tflite",
    ".h5": "keras",
    ".keras": "keras",
    ".pb": "graphdef",
    ".npz": SAMPLES,
    ".npy": SAMPLES,
}
"""Suffixes of models that are not ONNX, with the way to ONNX, or tf2onnx's option for it."""


def _refuse_other_formats(path: Path) -> None:
    remedy = OTHER_FORMATS.get(path.suffix.lower()) if os.path.isfile(path) else None
    model = path
    if path.name == SAVED_MODEL and os.path.isfile(path):
        model = path.parent
    if os.path.isfile(model / SAVED_MODEL):
        remedy = "saved-model"
    if remedy is None:
        return
    if remedy not in (PYTORCH, SAMPLES):
        output = f"{model.resolve().stem}.onnx"
        more = GRAPH_ENDS if remedy == "graphdef" else ""
        remedy = TENSORFLOW.format(
            option=remedy, model=shell_word(str(model)), more=more, output=shell_word(output)
        )
    raise ImportModelError(f"model `{path}`: expected an ONNX file, got another format; {remedy}")


class RefusedNodeError(Exception):
    """The refusal of a node of the model itself.

    Attributes
    ----------
    reason : RefusedError
        The error for the user.
    position : int
        Position of the node.
    is_constant : callable
        Tells whether a value of the model is known at import.
    """

    def __init__(
        self, reason: RefusedError, position: int, is_constant: Callable[[str], bool]
    ) -> None:
        super().__init__(str(reason))
        self.reason, self.position, self.is_constant = reason, position, is_constant


def _refused_position(
    model: onnx.ModelProto, name: str, opsets: dict[str, int], settings: ImportSettings
) -> int | None:
    """Import a model and return the position of the node that is refused; None if none is."""
    try:
        _import_graph(model, name, opsets, settings)
    except RefusedNodeError as refused:
        return refused.position
    except CompileError as error:
        raise ImportModelError(str(error)) from error
    return None


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    if data.startswith(b"PK\x03\x04"):
        raise ImportModelError(
            f"model `{name}`: expected an ONNX file, got an archive, such as `tilewright compile` "
            "makes; name the model itself"
        )
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ImportModelError(
            f"model `{name}`: expected an ONNX file, got {len(data)} bytes that are not one or are "
            "cut off; export or copy it again"
        ) from error
    damaged = next(_undecodable(model), None)
    if damaged is not None:
        raise ImportModelError(
            f"model `{name}`: expected texts in UTF-8, got `{damaged!r}` ({len(damaged)} bytes of "
            "another kind); export or copy it again"
        )
    if not model.graph.node or not model.graph.output:
        raise ImportModelError(
            f"model `{name}`: expected an ONNX model with nodes and outputs, got "
            f"{counted(len(model.graph.node), 'node')} and "
            f"{counted(len(model.graph.output), 'output')} in {len(data)} bytes; export or copy "
            "it again"
        )
    return model


def _undecodable(message: Message) -> Iterator[bytes]:
    """Yield the text fields that are not UTF-8; protobuf returns them as bytes."""
    for field, content in message.ListFields():
        parts = content if isinstance(content, Sequence) else [content]
        if field.type == field.TYPE_MESSAGE:
            for part in parts:
                yield from _undecodable(part)
        elif field.type == field.TYPE_STRING:
            yield from (part for part in [content, *parts] if isinstance(part, bytes))


def _opsets(model: onnx.ModelProto, name: str) -> dict[str, int]:
    """Return the version of each operator set by domain."""
    opsets = {
        "" if entry.domain == "ai.onnx" else entry.domain: entry.version
        for entry in model.opset_import
    }
    version = opsets.get("")
    if version is None and opsets:
        opsets[""] = onnx.defs.onnx_opset_version()
    elif version is None or (version < OLDEST_OPSET and _has_changed(model, version)):
        got = "none" if version is None else f"version {version}"
        raise ImportModelError(
            f"model `{name}`: expected ONNX operator set {OLDEST_OPSET} or newer, got {got}; "
            "convert it with `onnx.version_converter`"
        )
    else:
        opsets[""] = max(version, OLDEST_OPSET)
    return opsets


def _has_changed(model: onnx.ModelProto, version: int) -> bool:
    """Tell whether an operator of the model has another meaning in the oldest supported set."""
    for node in model.graph.node:
        key = key_of(node)
        old, new = (schema_of(key, {"": at}) for at in (version, OLDEST_OPSET))
        if old is None or new is None or old.since_version != new.since_version:
            return True
    return False


def _refuse_unsupported(model: onnx.ModelProto, scope: ImportScope) -> None:
    """Reject a model with unsupported operators, and list all of them in one error."""
    offenders: dict[str, list[str]] = {}
    causes: dict[str, str] = {}
    positions: list[int] = []
    for position, node in enumerate(model.graph.node):
        for kind, label, cause in unsupported([node], scope):
            offenders.setdefault(kind, []).append(f"`{label}`")
            causes.setdefault(kind, cause)
            positions.append(position)
    if offenders:
        listed = "; ".join(
            f"`{kind}` (node{'s' if len(nodes) > 1 else ''} {', '.join(nodes)})"
            for kind, nodes in offenders.items()
        )
        foreign = any("." in kind for kind in offenders)
        own = (
            ", or register them with `tilewright.register_operator`, for commands in a file that "
            "`--operators` names"
        )
        reason = RefusedError(
            f"{scope.where}: expected supported operators, got {listed}; replace them before "
            f"export{own * foreign}",
            next(iter(causes.values())),
        )
        raise RefusedNodeError(reason, positions[0], lambda name: False)


def _import_graph(
    model: onnx.ModelProto, name: str, opsets: dict[str, int], settings: ImportSettings
) -> Graph:
    builder, proto = Builder(name), model.graph
    functions = {("" if f.domain == "ai.onnx" else f.domain, f.name): f for f in model.functions}
    names: dict[str, Named] = {}
    scope = ImportScope(
        builder, f"model `{name}`", opsets, functions, import_nodes, names, settings.folder,
        sizes=function_sizes(functions),
    )  # fmt: skip
    _refuse_unsupported(model, scope)
    check_overrides(proto.input, name, settings)
    for tensor in proto.initializer:
        if tensor.name in settings.fixed:
            continue  # this is the default of an input that is now fixed
        if tensor.name in names:
            raise ImportModelError(
                f"model `{name}`: initialiser `{tensor.name}`: expected once, got a second one; "
                "rename one of them"
            )
        array = read_tensor(tensor, f"{scope.where}: initialiser `{tensor.name}`", settings.folder)
        names[tensor.name] = builder.constant(array, tensor.name, exact=True)
    for tensor in proto.sparse_initializer:
        where = f"{scope.where}: initialiser `{tensor.values.name}`"
        array = read_sparse(tensor, where, settings.folder)
        names[tensor.values.name] = builder.constant(array, tensor.values.name)
    inputs = [value for value in proto.input if value.name not in names]
    settings = with_extents(inputs, name, settings)
    for value in inputs:
        names[value.name] = import_input(builder, value, name, settings)
    waiting = iter(proto.node)
    try:
        scope.import_nodes(scope, waiting)
    except RefusedError as reason:
        position = len(proto.node) - 1 - sum(1 for _ in waiting)
        raise RefusedNodeError(
            reason,
            position,
            lambda one: isinstance(named := names.get(one), str) and builder.is_constant(named),
        ) from reason
    for value in proto.output:
        if value.name not in names:
            raise ImportModelError(
                f"model `{name}`: output `{value.name}`: expected a node to produce it, got none; "
                "export the model again"
            )
    outputs = [Output(value.name, _tensor(value.name, names, scope)) for value in proto.output]
    return verify(drop_unused(builder.graph(outputs)), "import")


def _tensor(name: str, names: Mapping[str, Named], scope: ImportScope) -> str:
    value = names[name]
    if not isinstance(value, str):
        raise RefusedError(
            f"{scope.where}: output `{name}`: expected a tensor, got sequences; show the elements",
            "sequences",
        )
    return value
