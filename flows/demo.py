"""`make demo`: handwritten digits, from ONNX to the RTL, every byte compared on the way.

The network in `examples/digits` is compiled for the default configuration and runs on three
devices: the meaning of the instructions, the fast simulator and the Verilated hardware. Every value
of every layer is compared with the integer reference, and whole data windows with one another.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ..compiler.frontend import import_model
from ..errors import DeviceError
from ..isa.configuration import DEFAULT, Configuration
from ..runtime import open_device
from .cli.arguments import require_tools
from .cli.main import guarded
from .execution.compile_graph import compile_graph
from .execution.run_samples import RunOutcome, run_samples
from .execution.samples import Samples, read_samples
from .reports import terminal as report

FOLDER = Path(__file__).parents[1] / "examples" / "digits"
MODEL = FOLDER / "digits_int8_qdq.onnx"
SCANS = FOLDER / "test_digits.npz"

DEVICE_SAMPLES: Mapping[str, int] = {"sim": 360, "reference": 40, "rtl": 100}
"""Samples for each device, in this order."""

SHOWN = 6
SHADES, ASCII_SHADES = " ░▒▓█", " .:+#"
BRIGHTEST = 16
"""A pixel counts the dark dots of a 4x4 block of the scan."""


def demo(
    configuration: Configuration = DEFAULT, device_samples: Mapping[str, int] = DEVICE_SAMPLES
) -> None:
    """Compile, run on all devices, compare, show.

    Parameters
    ----------
    configuration : Configuration
        The machine.
    device_samples : mapping
        Samples for each device, `sim` first; the last one's profile is shown.

    Raises
    ------
    TilewrightError
        When a tool is missing or anything differs.
    """
    began = time.perf_counter()
    for name in device_samples:
        require_tools(name)
    report.say(f"model          {MODEL.name}")
    report.say(f"configuration  {report.configuration_sentence(configuration)}")
    module = compile_graph(import_model(MODEL), configuration, keep_all=True)
    samples = read_samples(SCANS, module.graph)
    outcomes: dict[str, RunOutcome] = {}
    for name, count in device_samples.items():
        compare_with = 0 if name == "sim" else count
        with open_device(name, configuration) as device:
            outcomes[name] = run_samples(
                module, device, samples.first(count), compare=True, compare_with=compare_with
            )
        report.say(device_sentence(name, outcomes[name]))
    report.say("")
    last = outcomes[name]
    for line in pictures(samples.first(min(SHOWN, last.samples.count)), last.outputs):
        report.say(line)
    report.stdout().print(report.layer_table(last.profile))
    report.say("")
    sim = outcomes["sim"]
    found = report.agreement(sim.outputs, sim.samples)
    for line in report.agreement_sentences(found, sim.samples.count):
        report.say(line)
    for name, outcome in outcomes.items():
        refuse_differences(name, outcome)
    report.say(
        f"demo: passed in {time.perf_counter() - began:.0f} s; {', '.join(outcomes)} agree in "
        f"every byte of every layer; accuracy {found['accuracy']:.1%}, "
        f"{report.grouped(last.profile.cycles)} cycles a digit, "
        f"{report.percent(last.profile.utilisation)} of peak"
    )


def device_sentence(name: str, outcome: RunOutcome) -> str:
    """Return one line about a device."""
    tallies = outcome.comparison.tallies if outcome.comparison else []
    values = sum(tally.values for tally in tallies)
    differing = sum(tally.differing for tally in tallies)
    return (
        f"{name:14} {outcome.samples.count} digits, {values:,} values compared, {differing} "
        f"differ ({outcome.seconds:.1f} s)"
    )


def refuse_differences(name: str, outcome: RunOutcome) -> None:
    """Fail if a device differs from the reference or from `sim`, or was not compared.

    Raises
    ------
    DeviceError
        When it does; the message names the device and the first difference.
    """
    comparison = outcome.comparison
    if comparison is None or comparison.not_kept or not comparison.equal:
        difference = comparison.first_difference() if comparison else None
        raise DeviceError(f"demo: failed; device `{name}`: {difference or 'not all was compared'}")


def pictures(samples: Samples, outputs: np.ndarray) -> Iterator[str]:
    """Return scans side by side as block characters, each with the network's answer."""
    scans = next(iter(samples.inputs.values())).reshape(samples.count, 8, 8)
    shades = SHADES if "utf" in (sys.stdout.encoding or "").lower() else ASCII_SHADES
    levels = np.rint(scans / BRIGHTEST * (len(shades) - 1)).astype(int)
    for row in range(scans.shape[1]):
        yield "   ".join("".join(shades[level] * 2 for level in scan[row]) for scan in levels)
    answers = outputs[: samples.count].reshape(samples.count, -1).argmax(axis=1)
    labels = samples.labels if samples.labels is not None else answers
    captions = [
        f"{answer}, right" if answer == label else f"{answer}, but is {label}"
        for answer, label in zip(answers, labels, strict=True)
    ]
    yield "   ".join(f"{caption:^16}" for caption in captions).rstrip()
    yield ""


def main() -> int:
    """Run the demo and return its exit code."""
    return guarded(demo, verbose="-v" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
