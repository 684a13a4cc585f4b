"""Registration of operators that ONNX does not have: `register_operator`.

A registered operator is read from ONNX files like any other. Its nodes carry the law with them, so
a compiled network needs no registration to run.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import CompileError
from .formulas import names_in, read_formula

ONNX_DOMAINS = ("", "ai.onnx")
"""Domains of ONNX's own operators."""

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


REGISTERED: dict[tuple[str, str], RegisteredFunction] = {}
"""(domain, name) -> the operator."""


def register_operator(
    name: str,
    *,
    domain: str,
    law: str,
    operands: Sequence[str] = (),
    parameters: Mapping[str, float] | None = None,
) -> None:
    """Register an elementwise operator, so that models may use it.

    From then on a node of that name and domain is imported, quantised as part of its neighbours,
    run on the accelerator as a table or on the CPU in machine code, and compared with its law. A
    second registration of a name replaces the first.

    Parameters
    ----------
    name : str
        Type of the node in ONNX, such as `Snake`.
    domain : str
        Domain of the node in ONNX, such as `com.example`; not ONNX's own.
    law : str
        The function in Python's syntax, such as `x + sin(a * x) ** 2 / a`.
    operands : sequence of str
        Names of the operands in the law, in the order of the node's inputs; by default the names
        that are no parameters, in the order in which the law reads them.
    parameters : mapping
        Names of numbers in the law that the node's attributes may change, with their defaults.

    Raises
    ------
    CompileError
        If a name is malformed, or the law is.
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


def registered_key() -> tuple[object, ...]:
    """Return what a model's meaning depends on beside its file; () if nothing is registered."""
    return tuple(sorted((key, repr(one)) for key, one in REGISTERED.items()))
