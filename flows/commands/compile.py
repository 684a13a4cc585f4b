"""`tilewright compile`: a model into an artifact."""

import argparse
from pathlib import Path

from ...isa.configuration import DEFAULT
from ...runtime.artifact import SUFFIX, save
from .. import report
from ..arguments import add_configuration, chosen_configuration, compile_model


def add(commands, common: argparse.ArgumentParser) -> None:
    """Add the parser."""
    parser = commands.add_parser("compile", parents=[common], help="compile a model into one file")
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file")
    add_configuration(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=f"artifact (default: MODEL{SUFFIX} here)"
    )
    parser.add_argument(
        "--keep-all", action="store_true",
        help="no layer's output is overwritten, so that `run --compare` sees all",
    )  # fmt: skip
    parser.set_defaults(function=compile_)


def compile_(arguments: argparse.Namespace) -> None:
    """Compile and write.

    Raises
    ------
    TilewrightError
        When the model, the configuration or the path is not as it should be.
    """
    configuration = chosen_configuration(arguments) or DEFAULT
    module = compile_model(arguments.source, configuration, keep_all=arguments.keep_all)
    target = arguments.output or Path(arguments.source.stem + SUFFIX)
    save(module, target)
    layers = sum(len(segment.layers) for segment in module.segments)
    instructions = sum(len(segment.program) for segment in module.segments)
    report.say(
        f"{target}: {layers} accelerator layers in {instructions} instructions for "
        f"{report.configuration_sentence(configuration)}, {target.stat().st_size:,} bytes"
    )
