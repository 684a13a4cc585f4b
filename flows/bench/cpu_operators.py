"""Single operators on the host's kernels compared with onnxruntime, as networks of one operator.

The operators are those that were once slower than onnxruntime. Each runs as `cpu_networks` runs a
network: in turns with onnxruntime, in one process, so that only ratios of processor time count.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from ...errors import UsageError
from ..cli.json_output import check_json, write_json
from ..cli.main import guarded
from .cpu_networks import measure, table

Shape = tuple[int, ...]

OPSET = 20


def cases() -> Iterator[onnx.ModelProto]:
    """Yield the networks; a name begins with its operator."""
    for shape, kernel, pad in (
        ((1, 64, 112, 112), 2, 0),
        ((1, 256, 28, 28), 2, 0),
        ((4, 64, 57, 57), 3, 1),
    ):
        window: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [2, 2]}
        pool = helper.make_node("MaxPool", ["x"], ["p", "i"], pads=[pad] * 4, **window)
        yield _network("MaxPool indices", (shape,), pool, outputs=("p", "i"))
        if not pad:
            last = helper.make_node("MaxUnpool", ["p", "i"], ["y"], **window)
            yield _network("MaxUnpool", (shape,), pool, last)
    for x, w, groups in (
        ((1, 64, 56, 56), (64, 64, 3, 3), 1),  # of a hypernetwork
        ((1, 256, 22, 22), (1, 256, 6, 6), 1),  # SiamFC: Bertinetto et al., 2016
        ((1, 256, 29, 29), (256, 1, 5, 5), 256),  # SiamRPN++: Li et al., 2019
        ((8, 128, 28, 28), (128, 128, 1, 1), 1),
    ):
        layer = helper.make_node("Conv", ["x", "w"], ["y"], group=groups)
        yield _network("Conv computed weights", (x, w), layer, names=("x", "w"))
    for size in (1, 3):
        shapes, given = ((1, 64, 56, 56), (64, 64, size, size), (64,)), ("x", "w", "b")
        layer = helper.make_node("Conv", given, ["y"], pads=[size // 2] * 4)
        yield _network("Conv computed bias", shapes, layer, names=given)
    for source, target in (("FLOAT", "FLOAT16"), ("FLOAT16", "FLOAT")):
        for shape in ((1, 128, 768), (1, 64, 112, 113)):
            node = helper.make_node("Cast", ["x"], ["y"], to=getattr(TensorProto, target))
            kind = getattr(TensorProto, source)
            yield _network(f"Cast {source.lower()}-{target.lower()}", (shape,), node, dtype=kind)
    for mode, shape, places in (
        ("linear", (1, 32, 64, 64), (64, 64)),
        ("linear", (1, 3, 224, 224), (224, 224)),
        ("nearest", (2, 64, 33, 35), (40, 41)),
        ("cubic", (1, 16, 48, 48), (48, 48)),
    ):
        random = np.random.default_rng(1)
        grid = random.uniform(-1.1, 1.1, (shape[0], *places, 2)).astype(np.float32)
        node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode)
        scaled = helper.make_node("Tanh", ["t"], ["g"])
        inputs = (shape, grid.shape)
        yield _network(f"GridSample {mode}", inputs, scaled, node, names=("x", "t"))
    for shape in ((1, 64, 128, 128), (8, 256, 14, 14), (1, 32, 63, 65)):
        ones = {name: np.ones(shape[1], np.float32) for name in ("s", "b")}
        node = helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"])
        yield _network("InstanceNormalization", (shape,), node, constants=ones)
    for shape, sides in (((16, 400, 1), 1), ((4, 1024, 1), 0), ((8, 256, 2), 0)):
        axis = {"axis": np.array(1, np.int64)}
        node = helper.make_node("DFT", ["x", "", "axis"], ["y"], onesided=sides)
        yield _network("DFT", (shape,), node, constants=axis)
    for a, b in (
        ((32, 1, 64, 64), (1, 8, 64, 64)),
        ((4, 12, 128, 64), (1, 12, 64, 128)),
        ((128, 64), (16, 64, 33)),
        ((1, 8, 100, 96), (3, 1, 96, 50)),
    ):
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        yield _network("MatMul broadcast", (a, b), node, names=("x", "w"))
    yield from _gathers()
    for name in ("Sin", "Cos"):
        for shape in ((1, 128, 768), (3, 511), (8, 255, 129)):
            yield _network(name, (shape,), helper.make_node(name, ["x"], ["y"]))


def _gathers() -> Iterator[onnx.ModelProto]:
    """Yield gathers and scatters, at random indices."""
    random = np.random.default_rng(1)
    for operator, axis, x, places in (
        ("Gather", 0, (30522, 384), (1, 128)),  # token embeddings
        ("Gather", 0, (100000, 16), (64, 26)),  # of a recommender
        ("Gather", 1, (8, 512, 64), (300,)),
        ("Gather", 2, (64, 256, 196), (49,)),
        ("GatherElements", 1, (64, 1000), (64, 300)),
        ("GatherElements", 0, (512, 128), (512, 128)),
        ("GatherND", None, (64, 80, 80), (4096, 2)),
        ("GatherND", None, (3200, 64), (800, 1)),
        ("ScatterElements", 1, (64, 1000), (64, 300)),
        ("ScatterND", None, (4096, 64), (512, 1)),
    ):
        extents = x[: places[-1]] if axis is None else x[axis]
        indices = random.integers(-np.broadcast_to(extents, places), extents)
        given: list[str] = ["x", "places"]
        shapes: list[Shape] = [x]
        if operator.startswith("Scatter"):
            given.append("updates")
            shapes.append(places if axis is not None else (*places[:-1], *x[places[-1] :]))
        node = helper.make_node(operator, given, ["y"])
        if axis is not None:
            node.attribute.append(helper.make_attribute("axis", axis))
        name = f"{operator} {'x'.join(map(str, places))} of"
        names = [one for one in given if one != "places"]
        yield _network(name, shapes, node, names=names, constants={"places": indices})


def _network(
    name: str,
    shapes: Sequence[Shape],
    *nodes: onnx.NodeProto,
    names: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
    constants: dict[str, np.ndarray] | None = None,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """Return a network of nodes with inputs of the same type."""
    given = zip(names, shapes, strict=True)
    graph = helper.make_graph(
        list(nodes),
        f"{name} {' '.join('x'.join(map(str, shape)) for shape in shapes)}",
        [helper.make_tensor_value_info(one, dtype, shape) for one, shape in given],
        [onnx.ValueInfoProto(name=one) for one in outputs],
        [numpy_helper.from_array(array, one) for one, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if requested."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.cpu_operators", description=__doc__
    )
    parser.add_argument("--threads", type=int, nargs="*", default=[1])
    parser.add_argument("--turns", type=int, default=5, help="turns (default 5)")
    parser.add_argument("--only", default="", help="operators whose names contain this")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="stdout without FILE")
    options = parser.parse_args(arguments)

    def call() -> None:
        check_json(options.json)
        models = [model for model in cases() if options.only in model.graph.name]
        if not models:
            raise UsageError(
                f"`--only {options.only}`: expected a part of an operator's name, got none of "
                f"{', '.join(dict.fromkeys(each.graph.name.split()[0] for each in cases()))}"
            )
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for model in models:
                path = Path(folder) / f"{model.graph.name}.onnx"
                onnx.save(model, path)
                for threads in options.threads:
                    rows.append(measure(path, threads, options.turns))
                    print(f"{path.stem}, {threads}: {rows[-1]['ratio']:.2f}", file=sys.stderr)
        if options.json:
            write_json(options.json, {"rows": rows})
        if options.json != "-":
            Console(width=112).print(table(rows))

    return guarded(call)


if __name__ == "__main__":
    sys.exit(main())
