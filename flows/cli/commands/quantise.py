"""`tilewright quantise`: quantise a float model to int8, and report the loss of accuracy."""

import argparse
from pathlib import Path
from typing import Any

from ....atomic_write import check_output, write_output
from ....compiler.exporters import check_exportable, export_onnx
from ....compiler.graph.short_names import short_names
from ....compiler.quantiser import NetworkQuality, accelerated_share, evaluate_quality
from ....wording import counted
from ...execution.quantise_model import QuantisedModel, quantise_model
from ...reports import terminal as report
from ..calibration_options import add_calibration, chosen_calibration
from ..input_options import add_fixes, add_states, chosen_overrides
from ..json_output import add_json, check_json, write_json
from ..operator_options import add_operators
from ..progress import progress_bar

SUFFIX = "_int8.onnx"
NAME_COLUMNS = 40
"""Widest column of layer names."""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="MODEL", help="float ONNX file")
    add_calibration(parser, required=True)
    add_operators(parser)
    add_fixes(parser)
    add_states(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=f"ONNX file (default: MODEL{SUFFIX} here)"
    )
    add_json(parser, "the report")
    parser.set_defaults(function=quantise)


def quantise(arguments: argparse.Namespace) -> None:
    """Quantise a model, write it, evaluate it and report.

    Raises
    ------
    TilewrightError
        For a problem with the model, the samples or a path.
    """
    check_json(arguments.json)
    target = arguments.output or Path(arguments.source.stem + SUFFIX)
    check_output(target, f"`--output {target}`", [arguments.source, arguments.calibrate])
    calibration, overrides = chosen_calibration(arguments), chosen_overrides(arguments)
    assert calibration is not None, "the option is required"
    with progress_bar() as advance:
        made = quantise_model(
            arguments.source,
            calibration,
            lambda text: advance(text, 0, None),
            overrides,
            check_exportable,
        )
    data = export_onnx(made.result.graph).SerializeToString()
    write_output(target, data, f"`--output {target}`")
    integer = made.result.integer_graph()
    rows, labels = made.compared, made.samples.labels
    known = labels is not None and labels.ndim == 1
    chosen = labels[rows] if labels is not None and known else None
    with progress_bar() as advance:
        advance(f"evaluating {counted(len(rows), 'sample')}", 0, None)
        agreement = evaluate_quality(made.result, integer, made.batches(rows), chosen)
    share = accelerated_share(integer)
    if arguments.json:
        write_json(arguments.json, to_json(made, agreement, share, target))
    if arguments.json != "-":
        show(made, agreement, share, target)


def show(made: QuantisedModel, agreement: NetworkQuality, share: float, target: Path) -> None:
    """Print the table and sentences."""
    result, say = made.result, report.say
    say(
        f"network        {result.graph.name}: {counted(len(result.layers), 'layer')} in "
        f"int8, {share:.1%} of the MACs on the accelerator"
    )
    say(
        f"calibration    {len(made.rows)} of {counted(made.samples.count, 'sample')} of "
        f"{made.samples.source}, ranges by {result.method}"
    )
    say(f"steps          {steps_sentence(made)}")
    if result.masks:
        names = ", ".join(f"`{name}`" for name in result.masks)
        say(f"masks          {names}: only a mask's values in all samples; others are rounded")
    say("")
    headings = ["layer", "kind", "low", "high", "alone", "through", "clipped"]
    names = short_names([quality.layer.name for quality in result.layers])
    rows = [
        [
            report.shorten(name, NAME_COLUMNS),
            quality.layer.kind,
            f"{quality.low:.4g}",
            f"{quality.high:.4g}",
            f"{quality.alone_db:.1f} dB",
            f"{quality.through_db:.1f} dB",
            f"{quality.clipped_share:.3%}",
        ]
        for quality, name in zip(result.layers, names, strict=True)
    ]
    report.stdout().print(report.table(headings, rows, left=2))
    say("")
    say("alone: signal to noise of the layer on float inputs; through: behind all before it")
    for sentence in agreement_sentences(made, agreement):
        say(sentence)
    say(f"{target}: {target.stat().st_size:,} bytes")


def steps_sentence(made: QuantisedModel) -> str:
    """Say which steps were kept."""
    result = made.result
    steps = ["biases corrected"] if result.corrected else []
    if result.equalised:
        steps.insert(0, "channels equalised")
    if result.rescued:
        steps.append(f"in float to save accuracy: {', '.join(result.rescued)}")
    if result.four_bits:
        steps.append(
            f"weights of 4 bits in {len(result.four_bits)} of "
            f"{sum(each.layer.weighted for each in result.layers)} layers"
        )
    return "; ".join(steps) or "none beside the ranges lowered the noise"


def agreement_sentences(made: QuantisedModel, agreement: NetworkQuality) -> list[str]:
    """Say how the quantised network compares with the float one."""
    seen = "that calibration did not see" if len(made.others) else "that calibrated: no others here"
    lines = [f"evaluated on {counted(agreement.samples, 'sample')} {seen}"]
    if agreement.accuracy is not None:
        lines.append(
            f"accuracy: {agreement.float_accuracy:.2%} in float, {agreement.accuracy:.2%} in int8"
        )
    if agreement.same_class is not None:
        lines.append(f"same class as in float: {agreement.same_class:.2%}")
    several = len(agreement.outputs) > 1
    for each in agreement.outputs:
        lines.append(
            f"output{f' `{each.name}`' if several else ''}: {each.sqnr_db:.1f} dB signal to "
            f"noise, mean squared error {each.mean_squared_error:.3g}"
        )
    if agreement.noisiest and agreement.noisiest.prevails:
        lines.append(
            f"sample {made.compared[agreement.noisiest.index]} has "
            f"{agreement.noisiest.noise_share:.0%} of the noise; without it: "
            f"{agreement.noisiest.others_db:.1f} dB"
        )
    return lines


def to_json(
    made: QuantisedModel, agreement: NetworkQuality, share: float, target: Path
) -> dict[str, Any]:
    """Return the report as JSON values."""
    result = made.result
    return {
        "network": result.graph.name,
        "file": str(target),
        "calibration": {
            "samples": len(made.rows),
            "inputs": made.samples.source,
            "method": result.method,
            "equalised": result.equalised,
            "corrected": result.corrected,
            "rescued": list(result.rescued),
            "four_bits": [layer.name for layer in result.four_bits],
            "masks": list(result.masks),
            "end_db": result.end_db,
        },
        "accelerated_macs": share,
        "evaluation": {
            "samples": agreement.samples,
            "unseen": bool(len(made.others)),
            "same_class": agreement.same_class,
            "float_accuracy": agreement.float_accuracy,
            "accuracy": agreement.accuracy,
            "sqnr_db": agreement.sqnr_db,
            "mean_squared_error": agreement.mean_squared_error,
            "noisiest_sample": agreement.noisiest
            and {
                "sample": int(made.compared[agreement.noisiest.index]),
                "noise_share": agreement.noisiest.noise_share,
                "others_db": agreement.noisiest.others_db,
            },
            "outputs": [
                {
                    "name": each.name,
                    "sqnr_db": each.sqnr_db,
                    "mean_squared_error": each.mean_squared_error,
                }
                for each in agreement.outputs
            ],
        },
        "layers": [
            {
                "name": quality.layer.name,
                "kind": quality.layer.kind,
                "output": quality.layer.output,
                "scale": quality.quantisation.scale,
                "zero_point": quality.quantisation.zero_point,
                "low": quality.low,
                "high": quality.high,
                "alone_db": quality.alone_db,
                "through_db": quality.through_db,
                "clipped_share": quality.clipped_share,
            }
            for quality in result.layers
        ],
    }
