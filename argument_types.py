"""Check the arguments of public functions against the functions' annotations.

Without this, `Options(fuse="no")` would fuse, `QuantiserOptions(keep_float="head")` would look for
layers `h`, `e`, `a` and `d`, and other mistakes would end in an error from somewhere inside.
"""

import inspect
import os
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np

from .errors import CompileError, TilewrightError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

Check = Callable[[Any], bool]

MAKERS = {
    "Configuration": "load_configuration",
    "DeclaredTensor": "te.compute",
    "Device": "open_device",
    "Graph": "import_model",
    "Index": "te.axes",
    "Kernel": "te.kernel",
    "MemoryModel": "MemoryModel",
    "Module": "compile_graph",
    "Operation": "Configuration.operation",
    "Options": "Options",
    "Placement": "Placement",
    "QuantiserOptions": "QuantiserOptions",
    "Run": "Session.run",
    "Schedule": "schedule_kernel",
    "Target": "Accelerator(configuration)",
}
"""A public class -> what makes its objects, as a user writes it after `tilewright.`."""

# Wider than the annotations: NumPy has numbers of its own, and a path may be a text.
_WIDER: dict[Any, tuple[type, ...]] = {
    int: (Integral,), float: (Real,), Path: (str, os.PathLike)
}  # fmt: skip


def checked(
    caller: str, error: type[TilewrightError] = CompileError
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the arguments of a function before it runs.

    Parameters
    ----------
    caller : str
        The function as users write it, for messages.
    error : type
        The exception to raise; the message names the argument, the type, and what makes one.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        names, checks = _checks_of(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, value in (*zip(names, args, strict=False), *kwargs.items()):
                check = checks.get(name)
                if check is not None and not check(value):
                    annotation = inspect.signature(function).parameters[name].annotation
                    raise error(_message(caller, name, annotation, value))
            return function(*args, **kwargs)

        return call

    return decorate


def checked_class(caller: str, error: type[TilewrightError] = CompileError) -> Callable[[C], C]:
    """Check the arguments of a class as `checked` does."""

    def decorate(cls: C) -> C:
        cls.__init__ = checked(caller, error)(cls.__init__)
        return cls

    return decorate


def _checks_of(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Check]]:
    parameters = inspect.signature(function).parameters.values()
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [one for one in parameters if one.kind in (*places, inspect.Parameter.KEYWORD_ONLY)]
    found = {one.name: _check_of(one.annotation) for one in named}
    return (
        tuple(one.name for one in parameters if one.kind in places),
        {name: check for name, check in found.items() if check is not None},
    )


@cache
def _check_of(annotation: Any) -> Check | None:
    """The check of an annotation; None where every value is accepted."""
    kind, parts = get_origin(annotation) or annotation, get_args(annotation)
    if kind in (Union, types.UnionType):
        checks = [_check_of(one) for one in parts]
        known = [check for check in checks if check is not None]
        return (lambda value: any(check(value) for check in known)) if known == checks else None
    if kind is Literal:
        return lambda value: value in parts
    if kind is None:
        kind = type(None)
    if not isinstance(kind, type) or kind in (inspect.Parameter.empty, object, Any, np.ndarray):
        return None  # a variable, or a name that is imported for type checkers only
    if kind is Callable:
        return callable
    if getattr(kind, "_is_protocol", False):
        members = [one for one in (*vars(kind), *kind.__annotations__) if one[0] != "_"]
        return lambda value: all(hasattr(value, one) for one in members)
    if parts and issubclass(kind, Collection) and not issubclass(kind, Mapping):
        return _check_of_collection(kind, parts)
    kinds = _WIDER.get(kind, (kind,))
    return lambda value: isinstance(value, kinds)


def _check_of_collection(kind: type, parts: Sequence[Any]) -> Check:
    checks = [_check_of(one) for one in parts if one is not ...]
    if kind is tuple and parts[-1] is not ...:
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(checks)
            and all(check is None or check(one) for check, one in zip(checks, value, strict=True))
        )
    # A text is a sequence of texts, but nobody means its letters.
    check = checks[0]
    return lambda value: (
        isinstance(value, kind)
        and not isinstance(value, str)
        and (check is None or all(map(check, value)))
    )


def _message(caller: str, name: str, annotation: Any, value: Any) -> str:
    words = _words(annotation)
    makers = [maker for kind, maker in MAKERS.items() if kind in words]
    remedy = f"`tilewright.{makers[0]}` makes one" if makers else "give one"
    if makers[:1] == ["load_configuration"] and isinstance(value, str):
        remedy = f"`tilewright.load_configuration({value!r})` makes one"
    expected, got = " or ".join(f"`{word}`" for word in words), " ".join(repr(value).split())
    return f"`{caller}`: expected {expected} as `{name}`, got {got:.100}; {remedy}"


def _words(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(word for one in get_args(annotation) for word in _words(one))
    if annotation in (None, type(None)):
        return ("None",)
    if get_origin(annotation) is not None:
        return (re.sub(r"\w+\.(?=\w)", "", str(annotation)),)
    return (getattr(annotation, "__name__", str(annotation)),)
