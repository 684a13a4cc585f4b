"""`--fix`, `--dim`, `--outputs` and `--mask`: inputs, open dimensions, and cuts of a model.

Values also come from the file of samples. Callers in Python use
`compiler.frontend.import_with_inputs`.
"""

import argparse
import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError, UsageError
from ...quoting import is_count
from ..execution.samples import read_arrays

if TYPE_CHECKING:
    from ...compiler.importers import NeedsInputError


def add_fixes(parser: argparse.ArgumentParser) -> None:
    """Add `--fix`, `--dim`, `--outputs` and `--mask`."""
    parser.add_argument(
        "--fix", action="append", default=[], metavar="NAME=VALUE", dest="fixes",
        help="value of an input that shapes depend on, such as `shape=[2,3]`; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=EXTENT", dest="dims",
        help="extent of a dimension that the model leaves open; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--outputs", action="append", default=[], metavar="NAME,...",
        help="cut the model: let it end at these values or nodes; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--mask", action="append", default=[], metavar="INPUT", dest="masks",
        help="float input that is added to scores of attention and holds 0 and large negative "
        "numbers, to which others are rounded; may be repeated",
    )  # fmt: skip


def add_states(parser: argparse.ArgumentParser) -> None:
    """Add `--state`."""
    parser.add_argument(
        "--state", action="append", default=[], metavar="INPUT=OUTPUT", dest="states",
        help="input that takes an output of the previous sample, zero at first; the samples are "
        "then one sequence and need no array for it; may be repeated",
    )  # fmt: skip


@dataclass(frozen=True)
class InputOverrides:
    """Values and extents given for a model's inputs before it is imported, and its states.

    Parameters
    ----------
    fixed : mapping
        Constant values of inputs, by name.
    dims : mapping
        Extents of open dimensions by name.
    states : mapping
        Input -> the output that it takes from the previous sample.
    outputs : tuple of str
        Values at which to cut the model; none for its own outputs.
    masks : tuple of str
        Float inputs that are masks of attention.
    """

    fixed: Mapping[str, np.ndarray]
    dims: Mapping[str, int]
    states: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()

    @property
    def of_import(self) -> dict[str, Any]:
        """Arguments of `import_model` and `import_onnx`."""
        given = {"fixed": self.fixed, "dims": self.dims}
        return {**given, "outputs": self.outputs, "masks": self.masks}

    def key(self) -> tuple[object, ...]:
        """Return the part of the cache key; empty if there are no overrides."""
        fixed = [(name, str(a.dtype), a.tolist()) for name, a in sorted(self.fixed.items())]
        return (
            *fixed, *sorted(self.dims.items()), *sorted(self.states.items()), *self.outputs,
            *(("mask", name) for name in sorted({*self.masks})),
        )  # fmt: skip


NO_OVERRIDES = InputOverrides({}, {})


def chosen_overrides(arguments: argparse.Namespace) -> InputOverrides:
    """Return the values of `--fix`, `--dim`, `--state`, `--outputs` and `--mask`.

    Raises
    ------
    UsageError
        For text that is not a name and numbers, two names, or names between commas.
    """
    fixed = dict(_parse(text) for text in arguments.fixes)
    outputs: dict[str, None] = {}
    for text in arguments.outputs:
        names = text.split(",")
        if "" in names:
            raise UsageError(
                f"`--outputs {text}`: expected names with single commas between them; correct it"
            )
        outputs |= dict.fromkeys(names)
    states, masks = chosen_states(arguments), tuple(arguments.masks)
    return InputOverrides(fixed, chosen_dims(arguments), states, tuple(outputs), masks)


def chosen_states(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the states of `--state`: input -> output.

    Raises
    ------
    UsageError
        For text that is not two names.
    """
    found: dict[str, str] = {}
    for text in getattr(arguments, "states", ()):
        name, _, output = text.partition("=")
        if not (name and output):
            raise UsageError(
                f"`--state {text}`: expected INPUT=OUTPUT, for example `--state h=h_out`"
            )
        found[name] = output
    return found


def _parse(text: str) -> tuple[str, np.ndarray]:
    name, sign, value = text.partition("=")
    try:
        array = np.asarray(ast.literal_eval(value))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        array = np.asarray(None)
    if not (sign and name) or array.dtype.kind not in "biuf":
        raise UsageError(
            f"`--fix {text}`: expected NAME=VALUE with a number or a list of numbers, for example "
            "`--fix shape=[2,3]`"
        )
    return name, array


def refuse_overrides(artifact: Path, overrides: InputOverrides) -> None:
    """Reject overrides for an artifact, because its shapes are fixed.

    Raises
    ------
    UsageError
        If there are any.
    """
    if overrides.fixed or overrides.dims or overrides.outputs or overrides.masks:
        raise UsageError(
            f"`--fix`, `--dim`, `--outputs` and `--mask`: expected an ONNX model, got the artifact "
            f"`{artifact}`, which is compiled already; give the model"
        )


def chosen_dims(arguments: argparse.Namespace) -> dict[str, int]:
    """Return the extents that `--dim` gives.

    Raises
    ------
    UsageError
        For text that is not a name and a whole number; 0 is the extent of an empty past.
    """
    found = {}
    for text in arguments.dims:
        name, _, value = text.partition("=")
        if not (name and is_count(value)):
            raise UsageError(
                f"`--dim {text}`: expected NAME=EXTENT with a whole number, for example `--dim "
                "height=224`"
            )
        found[name] = int(value)
    return found


def fixes_of_samples(need: "NeedsInputError", path: Path | None) -> dict[str, np.ndarray]:
    """Return the values in an input file for the inputs that determine shapes.

    Parameters
    ----------
    need : NeedsInputError
        The error that names these inputs.
    path : Path or None
        A file with an array for each name: one row per sample, all rows equal.

    Raises
    ------
    NeedsInputError
        If there is no file, or it lacks such an array, or one of the inputs holds data.
    InputError
        If samples differ, so that one network cannot be made for all of them.
    """
    arrays: Mapping[str, np.ndarray] = {} if path is None else read_arrays(path)
    if need.data or not need.inputs or any(name not in arrays for name in need.inputs):
        raise need
    return {name: _same(name, arrays[name], path) for name in need.inputs}


def _same(name: str, rows: np.ndarray, path: Path | None) -> np.ndarray:
    if rows.ndim < 1 or not len(rows) or not (rows == rows[:1]).all():
        raise InputError(
            f"input file `{path}`: `{name}`: expected the same value for all samples, as shapes "
            f"depend on it, got {len(rows) if rows.ndim else 0} that differ; run them one by one"
        )
    return rows[0]


def fixed_sentence(fixed: Iterable[str]) -> str:
    """Say which inputs were fixed."""
    listed = ", ".join(f"`{name}`" for name in fixed)
    return f"fixed          {listed}: shapes depend on it; the network is compiled for this value"
