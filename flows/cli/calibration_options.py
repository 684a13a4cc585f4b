"""`--calibrate` and related options: how to quantise a float model.

`quantise_model` does the work; a command with a cached network does not import it.
"""

import argparse
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import InputError, UsageError, did_you_mean
from ...file_access import read_part, reason

METHODS = ("minmax", "percentile", "entropy", "mse", "auto")
"""Methods that choose ranges; `auto` tries all."""

DEFAULT_METHOD = "mse"

EFFORTS = ("quick", "normal", "thorough")
"""Efforts of the search for the least noise."""

DEFAULT_EFFORT = "normal"

DEFAULT_WEIGHT_DB = 20.0

MAX_SAMPLES = 100
"""Default number of samples for calibration; more samples hardly change the ranges."""

FEW_SAMPLES = 40
"""Smallest number of samples of which only half calibrate."""


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """The user's choices for the quantisation of a float model.

    Parameters
    ----------
    path : Path
        Samples, as `samples.read_samples` reads them.
    method : str
        One of `METHODS`.
    keep_float : tuple of str
        Layers that stay in float.
    samples : int or None
        Number of rows of the file that calibrate. None for `MAX_SAMPLES` but at most half of the
        file, or for all rows of a file with fewer than `FEW_SAMPLES`.
    effort : str or float
        One of `EFFORTS`, or seconds.
    weight_bits : int
        4 or 8.
    weight_db : float
        Signal-to-noise ratio at the network's end that weights of 4 bits must leave.
    """

    path: Path
    method: str = DEFAULT_METHOD
    keep_float: tuple[str, ...] = ()
    samples: int | None = None
    effort: str | float = DEFAULT_EFFORT
    weight_bits: int = 8
    weight_db: float = DEFAULT_WEIGHT_DB

    def key(self) -> tuple[object, ...]:
        """Return the part of the cache key, including the file's bytes.

        Raises
        ------
        InputError
            If the file cannot be read.
        """
        try:
            digest = hashlib.sha256(read_part(self.path)).hexdigest()
        except OSError as problem:
            raise InputError(
                f"input file `{self.path}`: expected a readable file, got `{reason(problem)}`; "
                "check the path"
            ) from None
        rows = self.samples or (MAX_SAMPLES, FEW_SAMPLES)
        weights = self.weight_bits, self.weight_db
        return (digest, self.method, self.keep_float, rows, self.effort, *weights)


def add_calibration(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the options of quantisation.

    Parameters
    ----------
    required : bool
        Whether `--calibrate` is required.
    """
    group = parser.add_argument_group("quantisation of float models")
    group.add_argument(
        "--calibrate", type=Path, metavar="FILE", required=required,
        help="file of typical samples, .npz or .npy, to choose ranges from",
    )  # fmt: skip
    group.add_argument(
        "--method", choices=METHODS,
        help=f"how to choose ranges; auto tries all (default: {DEFAULT_METHOD})",
    )  # fmt: skip
    group.add_argument(
        "--effort", type=_effort, metavar="EFFORT",
        help=f"work of the search for the least noise: {', '.join(EFFORTS)}, whose results do not "
        f"depend on the machine's speed, or seconds (default: {DEFAULT_EFFORT})",
    )  # fmt: skip
    group.add_argument(
        "--calibration-samples", type=int, metavar="N", dest="calibration_samples",
        help=f"calibrate with N samples (default: up to {MAX_SAMPLES} and half of the file, or "
        f"all of fewer than {FEW_SAMPLES})",
    )  # fmt: skip
    group.add_argument(
        "--weights", type=int, choices=(8, 4), metavar="BITS",
        help="4: weights of 4 bits, with a factor for each 16 inputs, in the layers that can bear "
        "them, which are tried one by one whatever --effort says; a machine with "
        "packed_weights=int4 loads them in half the time (default: 8)",
    )  # fmt: skip
    group.add_argument(
        "--weights-db", type=float, metavar="DB",
        help="signal to noise at the network's end that weights of 4 bits must leave "
        f"(default: {DEFAULT_WEIGHT_DB:g})",
    )  # fmt: skip
    group.add_argument(
        "--keep-float", action="append", default=[], metavar="NAME",
        help="keep a layer in float, by its name or the end of it; may be repeated",
    )  # fmt: skip


def _effort(text: str) -> str | float:
    """Return an effort by its name, or seconds above 0."""
    if text in EFFORTS:
        return text
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(
            f"expected {', '.join(EFFORTS)} or seconds above 0, got `{text}`; choose one"
            + did_you_mean(text, EFFORTS)
        )
    return seconds


def chosen_calibration(arguments: argparse.Namespace) -> CalibrationOptions | None:
    """Return the requested calibration, or None.

    Raises
    ------
    UsageError
        For less than one sample, or options of quantisation without `--calibrate`.
    """
    count = arguments.calibration_samples
    if count is not None and count < 1:
        raise UsageError(f"calibration with {count} samples: expected 1 or more; correct it")
    if arguments.calibrate is None:
        given = arguments.keep_float, arguments.method, arguments.effort, arguments.weights
        if any(given) or count is not None or arguments.weights_db is not None:
            raise UsageError(
                "`--method`, `--effort`, `--weights`, `--weights-db`, `--keep-float` and "
                "`--calibration-samples` say how to quantise: expected `--calibrate FILE` too, got "
                "none; give samples of the float model"
            )
        return None
    method = arguments.method or DEFAULT_METHOD
    return CalibrationOptions(
        arguments.calibrate,
        method,
        tuple(arguments.keep_float),
        count,
        arguments.effort or DEFAULT_EFFORT,
        arguments.weights or 8,
        _weight_db(arguments),
    )


def _weight_db(arguments: argparse.Namespace) -> float:
    """Return the signal-to-noise ratio that weights of 4 bits must leave."""
    least = arguments.weights_db
    if least is None:
        return DEFAULT_WEIGHT_DB
    if arguments.weights != 4:
        raise UsageError("`--weights-db`: expected `--weights 4` too; add it or leave both out")
    if not 0 <= least < math.inf:
        raise UsageError(f"`--weights-db {least:g}`: expected 0 dB or more; correct it")
    return least


def refuse_calibration(source: Path, calibration: CalibrationOptions | None) -> None:
    """Refuse to quantise an artifact.

    Raises
    ------
    UsageError
        If quantisation was requested.
    """
    if calibration is not None:
        raise UsageError(
            f"`--calibrate`: expected a float ONNX model, got the artifact `{source}`, which is "
            "compiled already; give the model"
        )


def calibration_rows(count: int, asked: int | None) -> np.ndarray:
    """Return the rows that calibrate, evenly spread because files are often sorted by class.

    Parameters
    ----------
    count : int
        Samples in the file.
    asked : int or None
        Number of samples, or None for the default.

    Returns
    -------
    int64[rows]
    """
    if asked is None:
        asked = count if count < FEW_SAMPLES else min(MAX_SAMPLES, count // 2)
    asked = min(asked, count)
    return np.arange(asked) * count // max(asked, 1)
