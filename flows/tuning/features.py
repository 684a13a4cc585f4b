"""Numbers that describe a candidate to a model: its workload, its machine, and its choices.

They are known before it is built, so a model can rank a whole space in milliseconds.
"""

import math

from ...compiler.cpu import Convolution, CpuTarget, MatrixProduct
from ...compiler.cpu.kernels.choices import Choice

Features = dict[str, float]
"""Numbers by name; those that do not apply are missing."""


def features_of(
    product: Convolution | MatrixProduct, target: CpuTarget, threads: int, choice: Choice
) -> Features:
    """Return the features of a candidate."""
    rows, columns, inner = _extents(product)
    answers = {name: value for name, value in choice if isinstance(value, int)}
    is_winograd = dict(choice).get("method") == "winograd"
    found: Features = {f"choice {name}": float(value) for name, value in answers.items()}
    found |= {
        "winograd": float(is_winograd),
        "lanes": float(target.lanes),
        "registers": float(target.registers),
        "matrix unit": float(answers.get("matrix", 0)),
        "threads": float(threads),
        "bytes": float(product.dtype != "float32"),
        "log macs": math.log2(product.macs),
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
        itemsize = 4 if product.dtype == "float32" else 1
        found |= {
            "rows of a part": rows / answers["parts"],
            "log weights": math.log2(inner * columns * itemsize),
            "log image of a part": math.log2(max(1.0, rows / answers["parts"] * inner * itemsize)),
        }
    return found


def _extents(product: Convolution | MatrixProduct) -> tuple[int, int, int]:
    """Rows, columns and reduction of a product as a matrix product."""
    if isinstance(product, MatrixProduct):
        return product.rows, product.columns, product.inner
    rows = product.batch * math.prod(product.size_out)
    return rows, product.channels_out, product.taps * product.channels_in // product.groups


def _line(product: Convolution | MatrixProduct) -> int:
    """Rows that tiles cover without a break."""
    return product.rows if isinstance(product, MatrixProduct) else product.size_out[1]
