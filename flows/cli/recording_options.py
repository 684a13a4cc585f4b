"""`--waveform` and `--trace`: files in which a run can be looked at, cycle by cycle."""

import argparse
from pathlib import Path

from ...atomic_write import check_output
from ...errors import UsageError

WAVEFORM_SUFFIXES = (".fst",)
"""Suffix by which viewers recognise the format."""


def add_recordings(parser: argparse.ArgumentParser, run: str) -> None:
    """Add both options; `run` is what the trace shows."""
    parser.add_argument(
        "--waveform", type=Path, metavar="FILE.fst",
        help="write an FST waveform, for GTKWave or Surfer (rtl)",
    )  # fmt: skip
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help=f"write {run}'s timeline for ui.perfetto.dev (sim, rtl, gate)",
    )


def check_recordings(arguments: argparse.Namespace) -> None:
    """Reject recordings that the device cannot make.

    Raises
    ------
    UsageError
        With the devices that can.
    """
    from ...runtime.devices import has_accelerator, kind_of

    kind = kind_of(arguments.device)
    if arguments.waveform and kind != "rtl":
        raise UsageError(
            f"`--waveform`: expected `--device rtl`, got `{arguments.device}`; only the RTL has "
            "waveforms"
        )
    if arguments.trace and kind == "reference":
        raise UsageError(
            "`--trace`: expected `--device sim`, `rtl` or `gate`, got `reference`; the definition "
            "of the instructions knows no time"
        )
    if arguments.trace and not has_accelerator(arguments.device):
        raise UsageError(
            f"`--trace`: expected `--device sim`, `rtl` or `gate`, got `{kind}`; there are no "
            "cycles without an accelerator"
        )


def check_recording_files(arguments: argparse.Namespace, inputs: list[Path | None]) -> None:
    """Check before a long run that both files can be written and are none of its inputs.

    Raises
    ------
    UsageError
        With the option.
    """
    for option, suffixes in (("trace", ()), ("waveform", WAVEFORM_SUFFIXES)):
        path = getattr(arguments, option)
        check_output(path, f"`--{option} {path}`", inputs, suffixes)


def waveform_options(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return what `open_device` takes for a waveform."""
    return {"trace": arguments.waveform} if arguments.waveform else {}


def waveform_sentence(path: Path) -> str:
    """Return a sentence about the contents of a waveform, and the command that opens it."""
    return (
        f"waveform: `{path}`, {path.stat().st_size / 1e6:,.1f} MB, all signals of the run; open it "
        f"with `gtkwave {path}` or `surfer {path}`"
    )
