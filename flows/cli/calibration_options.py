"""`--calibrate` and the options beside it: how a float model is to be quantised.

`quantise_model` does it: a command that finds its network compiled does not wait for that.
"""

import argparse
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import InputError, UsageError

METHODS = ("minmax", "percentile", "entropy", "mse", "auto")
"""Names that the quantiser has for ways to choose ranges; `auto` tries all."""

DEFAULT_METHOD = "mse"

MOST_SAMPLES = 100
"""Samples that calibrate where nothing else is said; more change ranges little."""

FEW_SAMPLES = 40
"""Of fewer than these none are left out of calibration: ranges would be chance."""


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """How a float model is to be quantised.

    Parameters
    ----------
    path
        Samples, as `samples.read_samples` reads them.
    method
        One of `METHODS`.
    keep_float
        Layers that stay in float.
    samples
        How many rows of the file calibrate; None for `MOST_SAMPLES` and at most half of the file,
        or all of fewer than `FEW_SAMPLES`.
    """

    path: Path
    method: str = DEFAULT_METHOD
    keep_float: tuple[str, ...] = ()
    samples: int | None = None

    def key(self) -> tuple[object, ...]:
        """What a compiled module follows from, the file's bytes included.

        Raises
        ------
        InputError
            When the file cannot be read.
        """
        try:
            digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        except OSError as problem:
            raise InputError(
                f"input file `{self.path}`: expected a readable file, got `{problem.strerror}`; "
                "check the path"
            ) from None
        rows = self.samples or (MOST_SAMPLES, FEW_SAMPLES)
        return (digest, self.method, self.keep_float, rows)


def add_calibration(
    parser: argparse.ArgumentParser, *, required: bool = False, aliases: tuple[str, ...] = ()
) -> None:
    """Add the options of quantisation.

    Parameters
    ----------
    required
        Whether there has to be a file.
    aliases
        Other names of `--calibration-samples`.
    """
    group = parser.add_argument_group("quantisation of float models")
    group.add_argument(
        "--calibrate", type=Path, metavar="FILE", required=required,
        help=".npz or .npy of typical samples, from which ranges are chosen",
    )  # fmt: skip
    group.add_argument(
        "--method", choices=METHODS,
        help=f"how ranges are chosen; auto tries all (default: {DEFAULT_METHOD})",
    )  # fmt: skip
    group.add_argument(
        "--calibration-samples", *aliases, type=int, metavar="N", dest="calibration_samples",
        help=f"calibrate with N samples (default: up to {MOST_SAMPLES} and half of the file, or "
        f"all of fewer than {FEW_SAMPLES})",
    )  # fmt: skip
    group.add_argument(
        "--keep-float", action="append", default=[], metavar="NAME",
        help="a layer that stays in float, or the end of its name; may be repeated",
    )  # fmt: skip


def chosen_calibration(arguments: argparse.Namespace) -> CalibrationOptions | None:
    """The calibration asked for; None where none was.

    Raises
    ------
    UsageError
        For less than one sample, or options of a quantisation without samples.
    """
    count = arguments.calibration_samples
    if count is not None and count < 1:
        raise UsageError(f"calibration with {count} samples: expected 1 or more; correct it")
    if arguments.calibrate is None:
        if arguments.keep_float or arguments.method or count is not None:
            raise UsageError(
                "`--method`, `--keep-float` and `--calibration-samples` say how to quantise: "
                "expected `--calibrate FILE` too, got none; give samples of the float model"
            )
        return None
    method = arguments.method or DEFAULT_METHOD
    return CalibrationOptions(arguments.calibrate, method, tuple(arguments.keep_float), count)


def refuse_calibration(source: Path, calibration: CalibrationOptions | None) -> None:
    """Refuse to quantise an artifact.

    Raises
    ------
    UsageError
        Where it was asked for.
    """
    if calibration is not None:
        raise UsageError(
            f"`--calibrate`: expected a float ONNX model, got the artifact `{source}`, which is "
            "compiled already; give the model"
        )


def calibration_rows(count: int, asked: int | None) -> np.ndarray:
    """Which samples of a file calibrate: evenly spread, since files are often in order of classes.

    Parameters
    ----------
    count
        Samples in the file.
    asked
        How many, or None for the default.

    Returns
    -------
    int64[rows]
    """
    if asked is None:
        asked = count if count < FEW_SAMPLES else min(MOST_SAMPLES, count // 2)
    asked = min(asked, count)
    return np.arange(asked) * count // max(asked, 1)
