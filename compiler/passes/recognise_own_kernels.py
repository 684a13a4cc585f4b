"""Recognise registered kernels between Dequantize and Quantize that have a form in integers."""

import numpy as np

from .. import te
from ..declare_own_kernel import declare_own_kernel
from ..graph import Quantisation
from ..graph import operators as ops
from ..register_operator import QUANTISATION, KernelQuantisation, RegisteredKernel
from ..registered import REGISTERED
from ..rewriting import Site, op, rule
from .patterns import is_per_tensor, known_data, quantisation_of, quantised, result_of


def registered(own: ops.OwnKernel) -> RegisteredKernel | None:
    """Return the registration of a kernel, if it has a form in integers."""
    domain, _, name = own.name.rpartition(".")
    found = REGISTERED.get((domain, name))
    return found if isinstance(found, RegisteredKernel) and found.quantised else None


def has_integer_form(own: ops.OwnKernel) -> bool:
    """Tell whether a kernel has a form in integers."""
    return registered(own) is not None


@rule(quantised(op(ops.OwnKernel, ..., capture="own", value="result")))
def recognise_own_kernels(site: Site, target: ops.Quantize, own: ops.OwnKernel) -> str | None:
    """Quantize(own(Dequantize(x), ...)) -> QKernel(x, ...).

    Replace registered kernels between quantised values by their forms in integers.
    """
    found = registered(own)
    if found is None or len(site.shape) != 4:
        return None
    names = site.node("own").inputs
    known: list[tuple[str, Quantisation]] = []
    for name in names[: len(names) - own.constants]:
        operand = _integers(site, name)
        if operand is None:
            return None
        known.append(operand)
    result, (low, high) = result_of(site)
    wanted = KernelQuantisation(tuple(kind for _, kind in known), result, low, high)
    tensors = [
        te.tensor(f"x{i}", "int8", site.shape_of(name), kind.zero_point)
        for i, (name, kind) in enumerate(known)
    ]
    assert found.quantised is not None
    constant = [site.view.is_constant(name) for name, _ in known]
    order = sorted(range(len(known)), key=lambda place: constant[place])  # constants come last
    arguments = {**dict(own.settings), QUANTISATION: wanted}
    text, constants = declare_own_kernel(own.name, found.quantised, tensors, arguments, order)
    label, operands = site.node("own").name, [known[place][0] for place in order]
    held = [site.constant(data, f"{label}.constant{i}") for i, data in enumerate(constants)]
    operator = ops.QKernel(own.name, text, constant.count(False))
    return site.emit(operator, *operands, *held, label=label, quantisation=result)


def _integers(site: Site, name: str) -> tuple[str, Quantisation] | None:
    """Return an operand in int8 with its quantisation; a constant in float is quantised here."""
    node = site.view.producer(name)
    if node is not None and isinstance(node.attributes, ops.Dequantize):
        (x,) = node.inputs
        kind = site.view.types[x]
        if is_per_tensor(node.attributes) and kind.dtype == "int8" and len(kind.shape) == 4:
            return x, quantisation_of(node.attributes)
    data = known_data(site.view, name)
    if data is None:
        return None
    largest = float(np.abs(data).max(initial=0.0)) or 1.0
    scale = float(np.float32(largest / 127))
    integers = np.clip(np.rint(data / np.float32(scale)), -127, 127).astype(np.int8)
    return site.constant(integers, f"{name}.integers"), Quantisation(scale, 0)
