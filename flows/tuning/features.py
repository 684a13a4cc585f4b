"""Numbers that describe a candidate to a model: its workload, its machine, and its choices.

They are known before it is built, so a model can rank a whole space in milliseconds.
"""

import math

import numpy as np

from ...compiler.cpu import Convolution, CpuTarget, HeadProduct, MatrixProduct
from ...compiler.cpu.kernels.choices import Choice
from ...compiler.cpu.kernels.description import TunableDescription

Features = dict[str, float]
"""Numbers by name; those that do not apply are missing."""


def features_of(
    product: TunableDescription, target: CpuTarget, threads: int, choice: Choice
) -> Features:
    """Return the features of a candidate."""
    rows, columns, inner = _extents(product)
    itemsize = np.dtype(next(iter(product.operands.values())).dtype).itemsize
    answers = {name: value for name, value in choice if isinstance(value, int)}
    is_winograd = dict(choice).get("method") == "winograd"
    found: Features = {f"choice {name}": float(value) for name, value in answers.items()}
    found |= {
        "winograd": float(is_winograd),
        "lanes": float(target.lanes),
        "registers": float(target.registers),
        "matrix unit": float(answers.get("matrix", 0)),
        "threads": float(threads),
        "bytes": float(itemsize == 1),
        "log macs": math.log2(work_of(product)),
        "log rows": math.log2(rows),
        "log columns": math.log2(columns),
        "log inner": math.log2(inner),
    }
    if isinstance(product, Convolution):
        found |= {
            "taps": float(product.taps),
            "stride": float(product.strides[1]),
            "depthwise": float(product.is_depthwise),
        }
    high = answers.get("rows", answers.get("tiles", 0)) * answers.get("pixels", 1)
    vectors = answers.get("vectors", 0 if "pixels" not in answers else 1)
    if high and vectors:
        panel = vectors * target.lanes
        found |= {
            # Registers that hold sums, and loads of each multiplication.
            "sums": float(high * vectors),
            "sums of registers": high * vectors / target.registers,
            "loads": 1 / high + 1 / vectors,
            # Work at the border: a tile that is cut off takes the time of a whole one.
            "columns wasted": math.ceil(columns / panel) * panel / columns,
            "rows wasted": math.ceil(_line(product) / high) * high / _line(product),
        }
    if "parts" in answers:
        found |= {
            "rows of a part": rows / answers["parts"],
            "log weights": math.log2(inner * columns * itemsize),
            "log image of a part": math.log2(max(1.0, rows / answers["parts"] * inner * itemsize)),
        }
    return found


def work_of(product: TunableDescription) -> int:
    """Multiplications of a kernel, or elements of its output where only those count."""
    return product.macs or math.prod(product.output.shape)


def _extents(product: TunableDescription) -> tuple[int, int, int]:
    """Rows, columns and reduction as a matrix product; other kernels have no reduction."""
    if isinstance(product, MatrixProduct | HeadProduct):
        return product.rows, product.columns, product.inner
    if not isinstance(product, Convolution):
        *rows, columns = product.output.shape
        return math.prod(rows), columns, 1
    rows = product.batch * math.prod(product.size_out)
    return rows, product.channels_out, product.taps * product.channels_in // product.groups


def _line(product: TunableDescription) -> int:
    """Rows that tiles cover without a break."""
    return product.size_out[1] if isinstance(product, Convolution) else _extents(product)[0]
