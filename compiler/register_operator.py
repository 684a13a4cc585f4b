"""Registration of operators that ONNX does not have: `register_operator`.

A registered operator is read from ONNX files like any other. Its nodes carry its law or its kernel,
so a compiled network needs no registration to run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..argument_types import checked
from ..errors import CompileError
from .formulas import names_in, read_formula
from .graph.types import Quantisation
from .registered import REGISTERED
from .tensor import Kernel

ONNX_DOMAINS = ("", "ai.onnx")
"""Domains of ONNX's own operators."""

QUANTISATION = "quantisation"
"""Name of the argument of a kernel's form in integers that tells scales and zero points."""

_WORD = r"[A-Za-z_]\w*"


@dataclass(frozen=True, slots=True)
class RegisteredFunction:
    """An elementwise function.

    Parameters
    ----------
    law : str
        See `read_formula`.
    operands : tuple of str
        Names of its operands, in the order of the node's inputs.
    parameters : tuple of (str, float)
        Names of its attributes, with their defaults.
    """

    law: str
    operands: tuple[str, ...]
    parameters: tuple[tuple[str, float], ...]

    @property
    def key(self) -> str:
        """All that its meaning depends on."""
        return repr(self)


@dataclass(frozen=True, slots=True)
class RegisteredKernel:
    """A kernel of `te`.

    Parameters
    ----------
    declare : callable
        Makes the kernel in floats from tensors and attributes.
    quantised : callable or None
        Makes the kernel in integers.
    parameters : tuple of (str, number or str)
        Names of its attributes, with their defaults.
    """

    declare: Callable[..., Kernel]
    quantised: Callable[..., Kernel] | None
    parameters: tuple[tuple[str, int | float | str], ...]

    @property
    def key(self) -> None:
        """None: what the functions declare is known when a model is imported."""


@dataclass(frozen=True, slots=True)
class KernelQuantisation:
    """Scales, zero points and limits for which a kernel in integers is made.

    Parameters
    ----------
    inputs : tuple of Quantisation
        Scale and zero point of each operand.
    output : Quantisation
        Scale and zero point of the result.
    low, high : int
        Limits of the result; narrower than int8 where a clamp follows the operator.
    """

    inputs: tuple[Quantisation, ...]
    output: Quantisation
    low: int = -128
    high: int = 127


@checked("register_operator")
def register_operator(
    name: str,
    *,
    domain: str,
    law: str = "",
    operands: Sequence[str] = (),
    kernel: Callable[..., Kernel] | None = None,
    quantised: Callable[..., Kernel] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> None:
    """Register an operator by a law or a kernel, so that models may use it.

    From then on a node of that name and domain is imported, quantised, run on the accelerator or on
    the CPU in machine code, compared with its definition, and shown in reports. A second
    registration of a name replaces the first.

    Parameters
    ----------
    name : str
        Type of the node in ONNX, such as `Snake`.
    domain : str
        Domain of the node in ONNX, such as `com.example`; not ONNX's own.
    law : str
        An elementwise function in Python's syntax, such as `x + sin(a * x) ** 2 / a`.
    operands : sequence of str
        Names of the operands in the law, in the order of the node's inputs; by default the names
        that are no parameters, in the order in which the law reads them.
    kernel : callable
        Instead of a law: a function that takes a float32 tensor of `te` for each operand, and the
        node's attributes by name, and returns a `te.kernel`. Operands and a result of four
        dimensions are [N, H, W, C], where the file has [N, C, H, W].
    quantised : callable
        The kernel in integers: it takes int8 tensors, the attributes, and `quantisation`, a
        `KernelQuantisation`, and returns a kernel whose result is int8. Without it, the operator
        stays in float.
    parameters : mapping
        Names of the node's attributes, with their defaults: numbers, for a kernel also texts.

    Raises
    ------
    CompileError
        If a name is malformed, or the law is, or there are both law and kernel, or neither.
    """
    where = f"operator `{domain}.{name}`"
    if domain in ONNX_DOMAINS or not re.fullmatch(rf"{_WORD}(\.{_WORD})*", domain):
        raise CompileError(
            f"{where}: expected a domain of your own, such as `com.example`, got `{domain}`; "
            "ONNX's operators keep their meaning"
        )
    if not re.fullmatch(_WORD, name):
        raise CompileError(
            f"{where}: expected a name of letters, digits and `_`, got `{name}`; rename it"
        )
    if bool(law) == (kernel is not None) or (quantised is not None and kernel is None):
        raise CompileError(
            f"{where}: expected a `law`, or a `kernel` and perhaps its form `quantised`; give one"
        )
    if kernel is not None:
        if QUANTISATION in (parameters or {}):
            raise CompileError(
                f"{where}: expected other parameters than `{QUANTISATION}`, which the form in "
                "integers gets; rename it"
            )
        given = tuple((parameters or {}).items())
        REGISTERED[domain, name] = RegisteredKernel(kernel, quantised, given)
        return
    settings = {key: float(value) for key, value in (parameters or {}).items()}
    try:
        read = dict.fromkeys(names_in(read_formula(law)))
    except CompileError as error:
        raise CompileError(f"{where}: {error}") from None
    given = tuple(operands) or tuple(one for one in read if one not in settings)
    for one in read:
        if one not in given and one not in settings:
            raise CompileError(
                f"{where}: law `{law}`: expected operands {', '.join(given)} and parameters "
                f"{', '.join(settings) or 'none'}, got `{one}`; name it in `operands` or "
                "`parameters`"
            )
    if not given or len(set(given)) < len(given) or settings.keys() & set(given):
        raise CompileError(
            f"{where}: expected one operand or more, each named once and none also a parameter, "
            f"got {', '.join(given) or 'none'}; correct `operands`"
        )
    REGISTERED[domain, name] = RegisteredFunction(law, given, tuple(settings.items()))
