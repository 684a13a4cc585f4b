"""Short PTX kernels for tests, written by hand."""

import numpy as np

from tilewright.sim.ptx import PtxKernel, parse_ptx, run

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
PREFIXES = {"pred": "p", "16": "h", "32": "r", "64": "d"}


def kernel(body: str, parameters: str = "", rules: str = "", outside: str = "") -> PtxKernel:
    """A kernel `k` with 40 registers of each kind: %p, %h (16), %r (32), %d (64 bits)."""
    declarations = ", ".join(
        f".param {parameter}" for parameter in parameters.split(",") if parameter
    )
    text = f"""{HEADER}{outside}
.visible .entry k({declarations}) {rules}
{{
    .reg .pred %p<40>; .reg .b16 %h<40>; .reg .b32 %r<40>; .reg .b64 %d<40>;
{body}
}}
"""
    return parse_ptx(text)["k"]


def elementwise(code: str, inputs: list[np.ndarray], result: np.dtype) -> np.ndarray:
    """Run `code` in one thread for each element.

    It finds its inputs in the registers 1, 2, ... of their width, and leaves its result in
    register 0 of the width of `result`.
    """
    count = len(inputs[0])
    lines = ["mov.u32 %r30, %ctaid.x; mov.u32 %r31, %ntid.x; mov.u32 %r32, %tid.x;"]
    lines.append("mad.lo.u32 %r30, %r30, %r31, %r32;")
    lines.append(f"setp.ge.u32 %p30, %r30, {count}; @%p30 exit;")
    for index, array in enumerate([*inputs, np.empty(0, result)]):
        lines.append(f"ld.param.u64 %d{20 + index}, [a{index}];")
        lines.append(f"mad.wide.u32 %d{20 + index}, %r30, {array.itemsize}, %d{20 + index};")
    for index, array in enumerate(inputs):
        bits = max(8 * array.itemsize, 16)
        register = f"%{PREFIXES[str(bits)]}{index + 1}"
        kind = f"{'s' if array.dtype.kind == 'i' else 'u'}{8 * array.itemsize}"
        lines.append(f"ld.global.{kind} {register}, [%d{20 + index}];")
    lines.append(code)
    bits = 8 * result.itemsize
    source = f"%{PREFIXES[str(max(bits, 16))]}0"
    lines.append(f"st.global.b{bits} [%d{20 + len(inputs)}], {source};")
    lines.append("exit;")
    parameters = ",".join(f".u64 a{index}" for index in range(len(inputs) + 1))
    out = np.zeros(count, result)
    run(kernel("\n".join(lines), parameters), -(-count // 96), 96, [*inputs, out])
    return out
