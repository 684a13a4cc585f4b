"""Calls of the functions with which users declare kernels, and checks of what these return."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import CompileError, TilewrightError
from . import te
from .kernel_text import write_kernel
from .tensor import Kernel


def declare_own_kernel(
    name: str,
    make: Callable[..., Kernel],
    operands: Sequence[te.DeclaredTensor],
    arguments: Mapping[str, Any],
    order: Sequence[int] | None = None,
) -> tuple[str, tuple[np.ndarray, ...]]:
    """Call a user's function, and return its kernel as text, and the kernel's constants in order.

    `order` has the places of the operands in the text; by default they stand as they are given.

    Raises
    ------
    CompileError
        If the function fails, or does not return a kernel that reads all operands.
    """
    try:
        kernel = make(*operands, **arguments)
    except TilewrightError as error:
        raise CompileError(f"kernel of `{name}`: {error}") from error
    except Exception as error:  # the function is the user's
        raise CompileError(
            f"kernel of `{name}`: expected `{make.__name__}` to return a kernel, got "
            f"`{type(error).__name__}: {error}`; correct it"
        ) from error
    if not isinstance(kernel, Kernel):
        raise CompileError(
            f"kernel of `{name}`: expected `{make.__name__}` to return a `te.kernel`, got "
            f"{type(kernel).__name__}; correct it"
        )
    names = [operand.tensor.name for operand in operands]
    if set(kernel.inputs) != set(names):
        raise CompileError(
            f"kernel of `{name}`: expected it to read {', '.join(names)}, got "
            f"{', '.join(kernel.inputs) or 'none'}; read every operand, and give constants to "
            "`te.kernel`"
        )
    given = names if order is None else [names[place] for place in order]
    every = dict.fromkeys((*given, *kernel.constants, *kernel.tensors))
    ordered = replace(kernel, tensors={one: kernel.tensors[one] for one in every})
    return write_kernel(ordered), tuple(kernel.constants.values())
