"""onnxruntime's session for each kernel of the benchmark, in its best layouts.

A single operator in NCHW pays for a change of layout that a whole network pays only once. This file
therefore also offers onnxruntime's own blocked and channels-last operators, and the caller takes
the fastest. Only this file, tests and examples import onnxruntime.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...compiler.cpu import (
    Convolution,
    Description,
    Elementwise,
    HeadProduct,
    LayerNormalisation,
    MatrixProduct,
    RowSoftmax,
    real_epilogue,
)
from ...errors import ToolError

BLOCK = 16
"""Channels of a block of onnxruntime's blocked layout, with AVX-512."""

BLOCKED = "com.microsoft.nchwc"
CONTRIBUTED = "com.microsoft"
GENERATOR = np.random.default_rng(0)
TYPES = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8}

Run = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Peer:
    """A model of one kernel: operators by name with their attributes, one after the other.

    `others` are further inputs that are not constants.
    """

    x: np.ndarray
    weights: dict[str, np.ndarray]
    operators: tuple[tuple[str, dict], ...]
    inputs: tuple[str, ...]
    domain: str = ""
    others: dict[str, np.ndarray] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        """The ONNX model, input `x`, output `y`."""
        nodes, names = [], list(self.inputs)
        for position, (operator, attributes) in enumerate(self.operators):
            out = "y" if position == len(self.operators) - 1 else f"t{position}"
            domain = self.domain if position == 0 else ""
            nodes.append(helper.make_node(operator, names, [out], domain=domain, **attributes))
            names = [out]
        kind = TYPES[self.x.dtype.name]
        graph = helper.make_graph(
            nodes,
            "peer",
            [
                helper.make_tensor_value_info(name, kind, array.shape)
                for name, array in self.given.items()
            ],
            [helper.make_tensor_value_info("y", kind, None)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        imports = [helper.make_opsetid("", 20)]
        imports += [helper.make_opsetid(self.domain, 1)] if self.domain else []
        return helper.make_model(graph, opset_imports=imports, ir_version=9)

    @property
    def given(self) -> dict[str, np.ndarray]:
        """Arrays that are not constants."""
        return {"x": self.x, **self.others}


def peer_session(model: str | bytes, threads: int, exact: bool = False, *, optimised: bool = True):
    """onnxruntime's session for a model, a path or its bytes.

    Parameters
    ----------
    exact
        Whether products of int8 must be exact on processors without VNNI. By default,
        onnxruntime uses an instruction there whose sums saturate.
    optimised
        Whether it may fuse operators, which changes some last bits.

    Raises
    ------
    ToolError
        When onnxruntime is missing, or cannot run the model.
    """
    try:
        import onnxruntime
    except ImportError:
        raise ToolError(
            "bench: the Python package `onnxruntime`, the reference, is not installed; "
            "run `pip install onnxruntime`"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Spinning threads would take a processor from the other contender.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises types of its own
        reason = " ".join(str(error).split())
        raise ToolError(
            "bench: onnxruntime cannot run the model, so there is nothing to compare with: "
            f"{reason[:300]}"
        ) from error


def peer_runs(description: Description, threads: int, exact: bool = False) -> list[Run]:
    """Sessions with which onnxruntime computes a kernel, each ready to run; see `peer_session`.

    Raises
    ------
    ToolError
        When onnxruntime is missing.
    """
    runs = []
    for peer in _peers(description):
        session = peer_session(peer.model().SerializeToString(), threads, exact)
        from onnxruntime import OrtValue

        binding = session.io_binding()
        for name, array in peer.given.items():
            binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(array))
        runs.append(_bound(session, binding))
    return runs


def _bound(session, binding) -> Run:
    """A session that does not copy inputs or outputs."""
    binding.bind_output("y", "cpu")
    return lambda: session.run_with_iobinding(binding)


def _peers(description: Description) -> Iterator[Peer]:
    if isinstance(description, Convolution):
        integer = description.dtype != "float32"
        yield from (_quantised if integer else _convolutions)(description)
        return
    if isinstance(description, MatrixProduct):
        yield _product(description)
        return
    if isinstance(description, HeadProduct):
        yield from _products(description)
        return
    x = _normal(description.output.shape)
    if isinstance(description, RowSoftmax):
        yield Peer(x, {}, (("Softmax", {"axis": -1}),), ("x",))
    elif isinstance(description, LayerNormalisation):
        row = _normal((description.columns,))
        attributes = {"axis": -1, "epsilon": description.epsilon}
        weights = {"scale": row, "bias": row}
        yield Peer(x, weights, (("LayerNormalization", attributes),), ("x", "scale", "bias"))
    elif isinstance(description, Elementwise) and isinstance(description.formula, tuple):
        operator = str(description.formula[0]).capitalize()
        yield Peer(x, {}, ((operator, {}),), ("x",))


def _product(layer: MatrixProduct) -> Peer:
    """A product; one of bytes has its own operator, without bias."""
    if layer.dtype != "float32":
        weights = _byte_weights(layer, (layer.inner, layer.columns), zero_point=3)
        x = GENERATOR.integers(0, 100, (layer.rows, layer.inner)).astype(layer.dtype)
        return Peer(x, weights, (("QLinearMatMul", {}),), ("x", *weights))
    weights = {"w": _normal((layer.inner, layer.columns)), "bias": _normal((layer.columns,))}
    x = _normal((layer.rows, layer.inner))
    return Peer(x, weights, (("Gemm", {}), *_following(layer)), ("x", "w", "bias"))


def _products(product: HeadProduct) -> Iterator[Peer]:
    """Products of two operands, as onnxruntime fuses them, and without the factor."""
    a, b = (_normal(array.shape) for array in product.operands.values())
    formula = product.epilogue.formula
    factor = float(formula[2]) if isinstance(formula, tuple) else 1.0
    attributes = {"transB": int(product.transposed), "alpha": factor}
    yield Peer(a, {}, (("FusedMatMul", attributes),), ("x", "b"), CONTRIBUTED, {"b": b})
    b = np.ascontiguousarray(b.swapaxes(-1, -2)) if product.transposed else b
    yield Peer(a, {}, (("MatMul", {}),), ("x", "b"), others={"b": b})


def _following(layer: Convolution | MatrixProduct) -> tuple[tuple[str, dict], ...]:
    known = {"": (), "relu": (("Relu", {}),), "gelu": (("Gelu", {}),)}
    return next(nodes for name, nodes in known.items() if layer.epilogue == real_epilogue(name))


def _convolutions(layer: Convolution) -> Iterator[Peer]:
    """Convolutions in NCHW, as in a model, and in blocks of channels."""
    channels, out, groups = layer.channels_in, layer.channels_out, layer.groups
    x = _normal((layer.batch, channels, layer.height, layer.width))
    weights = {"w": _normal((out, channels // groups, *layer.kernel)), "bias": _normal((out,))}
    attributes = _window(layer)
    yield Peer(x, weights, (("Conv", attributes), *_following(layer)), ("x", "w", "bias"))
    if channels % BLOCK == out % BLOCK == 0:
        blocked = attributes | ({"activation": "Relu"} if _following(layer) else {})
        yield Peer(x, weights, (("Conv", blocked),), ("x", "w", "bias"), BLOCKED)


def _byte_weights(
    layer: Convolution | MatrixProduct, extents: tuple[int, ...], zero_point: int
) -> dict[str, np.ndarray]:
    """The constants of onnxruntime's operators of bytes, in their order."""
    columns = layer.extents[-1]
    return {
        "x_scale": np.array(0.02, np.float32),
        "x_zero": np.array(zero_point, layer.dtype),
        "w": GENERATOR.integers(-127, 128, extents, np.int8),
        "w_scale": np.full(columns, 0.01, np.float32),
        "w_zero": np.zeros(columns, np.int8),
        "y_scale": np.array(0.5, np.float32),
        "y_zero": np.array(4, layer.epilogue.dtype),
    }


def _quantised(layer: Convolution) -> Iterator[Peer]:
    """Layers of bytes in NHWC or NCHW."""
    out = layer.channels_out
    extents = out, layer.channels_in // layer.groups, *layer.kernel
    weights = _byte_weights(layer, extents, layer.zero_point)
    weights["bias"] = np.zeros(out, np.int32)
    attributes = _window(layer)
    x = GENERATOR.integers(0, 100, layer.operands["x"].shape).astype(layer.dtype)
    last = attributes | {"channels_last": 1}
    yield Peer(x, weights, (("QLinearConv", last),), ("x", *weights), CONTRIBUTED)
    x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    yield Peer(x, weights, (("QLinearConv", attributes),), ("x", *weights))


def _window(layer: Convolution) -> dict:
    window = {name: list(getattr(layer, name)) for name in ("strides", "pads", "dilations")}
    return {**window, "kernel_shape": list(layer.kernel), "group": layer.groups}


def _normal(shape: tuple[int, ...]) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)
