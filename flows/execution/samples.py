"""Input files: an `.npz` or `.npy` of samples, with expected outputs if they are known.

An `.npz` holds `inputs`, one sample per row without the batch axis, and optionally `outputs` and
`labels`. For a network of several inputs it holds one array for each, by name. An `.npy` holds only
the inputs.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ArtifactError, InputError
from ...file_access import read_part, reason

if TYPE_CHECKING:
    from ...compiler.graph import Graph, Value

MAX_RANDOM_BYTES, DRAWN_BYTES = 1 << 30, 8
"""Random inputs are drawn together, each number in so many bytes."""

EXPECTED = ("outputs", "labels")


@dataclass(frozen=True, slots=True)
class Samples:
    """The inputs of one or more runs, with the expected results.

    Parameters
    ----------
    source : str
        Their origin, for the report.
    inputs : mapping
        By input of the network: [samples, *shape].
    outputs : ndarray or None
        The expected first output, [samples, ...], or None.
    labels : ndarray or None
        The expected class, int[samples], or None.
    """

    source: str
    inputs: Mapping[str, np.ndarray]
    outputs: np.ndarray | None = None
    labels: np.ndarray | None = None
    count: int = field(init=False)

    def __post_init__(self) -> None:
        count = min(len(array) for array in self.inputs.values()) if self.inputs else 1
        object.__setattr__(self, "count", count)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for index in range(self.count):
            yield {name: array[index] for name, array in self.inputs.items()}

    def first(self, count: int) -> "Samples":
        """The first samples, or all if there are fewer."""
        return Samples(
            self.source,
            {name: array[:count] for name, array in self.inputs.items()},
            None if self.outputs is None else self.outputs[:count],
            None if self.labels is None else self.labels[:count],
        )


def random_samples(graph: "Graph", count: int, seed: int, states: Collection[str] = ()) -> Samples:
    """Random inputs but for `states`: uniform over the range of integer types, normal for floats.

    Indices into a table, such as words, stay within the table.

    Raises
    ------
    InputError
        If they take more than `MAX_RANDOM_BYTES`.
    """
    from ...compiler.tensor import holds_reals

    row = sum(math.prod(value.type.shape) * DRAWN_BYTES for value in _without(graph, states))
    if count > 1 and count * row > MAX_RANDOM_BYTES:
        raise InputError(
            f"random inputs: expected at most {max(MAX_RANDOM_BYTES // row, 1):,} samples, got "
            f"{count:,}; give fewer"
        )
    generator = np.random.default_rng(seed)
    inputs = {}
    for value in _without(graph, states):
        shape, dtype = (count, *value.type.shape), np.dtype(value.type.dtype)
        if holds_reals(dtype):
            inputs[value.name] = generator.standard_normal(shape).astype(dtype)
        elif dtype.kind == "b":
            inputs[value.name] = generator.integers(0, 2, shape).astype(dtype)
        else:
            limits = np.iinfo(dtype if dtype.itemsize == 1 else np.int8)
            rows = _rows_to_pick(graph, value.name)
            low, high = (limits.min, limits.max) if rows is None else (0, max(rows, 1) - 1)
            inputs[value.name] = generator.integers(low, high, shape, dtype=dtype, endpoint=True)
    return Samples(f"random inputs (seed {seed})", inputs)


def _rows_to_pick(graph: "Graph", name: str) -> int | None:
    """Return the smallest extent that a value indexes; None if it indexes nothing."""
    from ...compiler.graph.operators import Cast, Gather, Reshape, Transpose

    found: list[int] = []
    waiting = [name]
    while waiting:
        name = waiting.pop()
        for user in graph.users(name):
            operator = user.attributes
            if isinstance(operator, Gather) and user.inputs[1] == name:
                found.append(graph.types[user.inputs[0]].shape[operator.axis])
            elif isinstance(operator, Cast | Reshape | Transpose):
                waiting.append(user.output.name)
    return min(found, default=None)


def _without(graph: "Graph", states: Collection[str]) -> "list[Value]":
    """Return the inputs that samples give: all but states."""
    return [value for value in graph.inputs if value.name not in states]


def follow_states(samples: Samples, graph: "Graph", states: Mapping[str, str]) -> Samples:
    """Return samples with the states that a network has before each one.

    Parameters
    ----------
    samples : Samples
        A sequence, in order.
    graph : Graph
        The network, for one sample.
    states : mapping
        Input -> the output that it takes from the previous sample; zero at first.

    Raises
    ------
    InputError
        If a state is not an input and an output of one type.
    """
    from ...compiler.graph import evaluate
    from ...runtime.session import first_states

    held = first_states(graph, states)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in states}
    for inputs in samples:
        for name in states:
            rows[name].append(held[name])
        outputs = evaluate(graph, {**inputs, **held})
        held = {name: outputs[output] for name, output in states.items()}
    return replace(
        samples, inputs={**samples.inputs, **{name: np.stack(each) for name, each in rows.items()}}
    )


def read_samples(path: Path, graph: "Graph", states: Collection[str] = ()) -> Samples:
    """Read an input file, which needs no arrays for `states`.

    Raises
    ------
    InputError
        When the file cannot be read or does not fit the network.
    """
    arrays, given = read_arrays(path), _without(graph, states)
    if len(given) == 1 and given[0].name not in arrays:
        value = given[0]
        if "inputs" not in arrays:
            listed = ", ".join(f"`{name}`" for name in sorted(arrays)) or "nothing"
            raise InputError(
                f"input file `{path}`: expected an array `inputs` or `{value.name}`, got {listed}; "
                "save it with `numpy.savez`"
            )
        inputs = {value.name: _rows(path, "inputs", arrays["inputs"], value)}
    else:
        missing = [value.name for value in given if value.name not in arrays]
        if missing:
            listed = ", ".join(f"`{name}`" for name in sorted(arrays)) or "nothing"
            raise InputError(
                f"input file `{path}`: expected an array `{missing[0]}` as the network has "
                f"{len(given)} inputs, got {listed}; save one array for each"
            )
        inputs = {v.name: _rows(path, v.name, arrays[v.name], v) for v in given}
    counts = {name: len(array) for name, array in inputs.items()}
    for name in EXPECTED:
        if name in arrays:
            counts[name] = len(arrays[name]) if arrays[name].ndim else 0
    if len(set(counts.values())) > 1 or 0 in counts.values():
        listed = ", ".join(f"{count} of `{name}`" for name, count in counts.items())
        raise InputError(
            f"input file `{path}`: expected as many rows in each array, at least one, got "
            f"{listed}; correct the file"
        )
    return Samples(str(path), inputs, arrays.get("outputs"), arrays.get("labels"))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an input file, by name.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    from ...runtime.archive import ZIP_MAGIC, unpack
    from ...runtime.arrays import from_npy

    try:
        data = read_part(path)
        if not data.startswith(ZIP_MAGIC):
            return {"inputs": from_npy(data)}
        return {name.removesuffix(".npy"): from_npy(one) for name, one in unpack(data).items()}
    except OSError as problem:
        raise InputError(
            f"input file `{path}`: expected a readable file, got "
            f"`{reason(problem)}`; check the path"
        ) from None
    except MemoryError:
        raise InputError(
            f"input file `{path}`: its arrays do not fit memory; give fewer samples"
        ) from None
    except (ValueError, ArtifactError):
        raise InputError(
            f"input file `{path}`: expected NumPy's `.npz` or `.npy` without objects, got another "
            "file or a damaged one; save it with `numpy.savez`"
        ) from None


def _rounded(path: Path, name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    """Convert floats to another width; refuse those that overflow."""
    with np.errstate(over="ignore"):
        rounded = array.astype(dtype, copy=False)
    if (np.isinf(rounded) != np.isinf(array)).any():
        raise InputError(
            f"input file `{path}`: `{name}`: expected values within {dtype}, got "
            f"{np.abs(array[np.isfinite(array)]).max():.3g}; scale them as the network expects"
        )
    return rounded


def _rows(path: Path, name: str, array: np.ndarray, value: "Value") -> np.ndarray:
    """Return an input as [samples, *shape of the network's input], floats converted to its type."""
    from ...compiler.tensor import holds_reals

    kind = value.type
    row = kind.shape[1:] if kind.shape[:1] == (1,) else kind.shape
    if holds_reals(array.dtype) and holds_reals(np.dtype(kind.dtype)):
        array = _rounded(path, name, array, kind.dtype)
    if str(array.dtype) == kind.dtype and array.ndim:
        if array.shape[1:] == kind.shape:
            return array
        if array.shape[1:] == row:
            return array.reshape(len(array), *kind.shape)
    wanted = ", ".join(map(str, ("samples", *row)))
    raise InputError(
        f"input file `{path}`: `{name}`: expected {kind.dtype}[{wanted}] for input `{value.name}`, "
        f"got {array.dtype}{list(array.shape)}; convert it"
    )
