"""`tilewright compile`: compile a model to an artifact, and rate its schedules."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....atomic_write import check_output, write_output
from ....isa.configuration import DEFAULT
from ....wording import counted
from ...execution.compile_cache import SUFFIX
from ...reports.placement_table import placement_of, show_placement, unfit_sentence
from ..arguments import (
    USUAL_OR_BOARDS,
    add_configuration,
    chosen_configuration,
    compile_anew,
    compile_model,
    kept_module,
)
from ..calibration_options import add_calibration, chosen_calibration
from ..clock_options import cycles_text
from ..console import configuration_sentence, idle_line, say, search_sentence
from ..input_options import add_fixes, add_states, chosen_overrides
from ..json_output import add_json, check_json, write_json
from ..memory_options import add_memory, memory_model
from ..operator_options import add_operators
from ..placement_options import add_placement, chosen_placing
from ..record_options import add_records, choose_records, records_sentence
from ..schedule_options import add_schedules, change_sentences, chosen_schedules


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file")
    add_configuration(parser, USUAL_OR_BOARDS)
    add_operators(parser)
    add_fixes(parser)
    add_states(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=f"artifact (default: MODEL{SUFFIX} here)"
    )
    parser.add_argument(
        "--keep-all", action="store_true",
        help="store the output of every layer, also of those that could stay on chip, so that "
        "`run --compare` sees all of them",
    )  # fmt: skip
    add_placement(parser)
    add_calibration(parser)
    add_schedules(parser)
    add_records(parser)
    add_memory(parser, "main memory")
    add_json(parser, "cycles and lower bound of each layer")
    parser.set_defaults(function=compile_)


def compile_(arguments: argparse.Namespace) -> None:
    """Compile a model and write the artifact.

    Raises
    ------
    TilewrightError
        For a problem with the model, the configuration or the path.
    """
    check_json(arguments.json)
    choose_records(arguments)
    configuration = chosen_configuration(arguments) or DEFAULT
    target = arguments.output or Path(arguments.source.stem + SUFFIX)
    check_output(target, f"artifact `{target}`", [arguments.source])
    asked = {
        "keep_all": arguments.keep_all,
        "calibration": chosen_calibration(arguments),
        "overrides": chosen_overrides(arguments),
        "placing": chosen_placing(arguments, places=bool(arguments.json)),
        "memory": memory_model(arguments),
    }
    schedules = chosen_schedules(arguments)
    kept = None if schedules else kept_module(arguments.source, configuration, **asked)
    found = kept.read() if kept is not None else None
    module = None
    if found is not None:
        report = found[1]
        write_output(target, found[0], f"artifact `{target}`")
    else:
        from ....runtime.artifact import save

        if schedules:
            module = compile_model(arguments.source, configuration, schedules=schedules, **asked)
        else:
            module = compile_anew(arguments.source, configuration, **asked)
        report = module.report
        save(module, target)
        if kept is not None and target.is_file():
            kept.keep(target, report)
        elif kept is not None:  # a device or a pipe cannot be read back
            kept.save(module)
            found = kept.read()
    if arguments.table or arguments.json or arguments.schedules:
        if module is None:
            from ....runtime.artifact import load

            path = target if kept is None or target.is_file() else kept.path
            module = replace(load(path, configuration, trusted=True), report=report)
        report = {**report, "placement": placement_of(module, asked["placing"], asked["memory"])}
    values = {
        "artifact": str(target),
        "bytes": target.stat().st_size if found is None else len(found[0]),
        "configuration": configuration.name,
        "clock_mhz": asked["placing"].clock,
        **{name: value for name, value in report.items() if name != "compile_s"},
    }
    if arguments.json:
        write_json(arguments.json, values)
    if arguments.schedules:
        from ....compiler.scheduling.given_schedules import schedules_text

        assert module is not None
        say(schedules_text(module))
    elif arguments.json != "-":
        unfit = unfit_sentence(values["placement"])
        layers = len(values["layers"])
        say(
            f"{target}: {counted(layers, 'accelerator layer')} in "
            f"{counted(values['instructions'], 'instruction')}, {values['bytes']:,} bytes"
        )
        say(f"configuration: {configuration_sentence(configuration)}")
        if values["layers"]:
            say(bound_sentence(values, asked["placing"].clock))
            for line in change_sentences(values):
                say(line)
            say(search_sentence(values["search"]))
        elif asked["placing"].policy == "accelerator" and not unfit:
            say(idle_line(report))
        if unfit:
            say(unfit)
        if values["layers"]:
            for row in report.get("host_products", ()):
                say(row["sentence"])
        say(memory_sentence(values))
        if recorded := records_sentence(values["host"]["recorded"]):
            say(recorded)
        if arguments.table:
            show_placement(values["placement"])


def bound_sentence(report: Mapping[str, Any], clock_mhz: float) -> str:
    """Return a sentence about a network's distance from its lower bound."""
    bound = f"lower bound {report['bound']:,} cycles"
    if report["cycles"] is None:
        return bound
    return (
        f"{cycles_text(report['cycles'], clock_mhz)}; {bound}: no schedule can save more than "
        f"{1 - report['bound'] / report['cycles']:.1%}"
    )


def memory_sentence(report: Mapping[str, Any]) -> str:
    """Return a sentence about the network's memory and its lower bound."""
    windows, host = report["windows"], report["host"]
    parts = []
    if windows:
        used, least, constants = (
            sum(window[key] for window in windows)
            for key in ("activation_bytes", "least_bytes", "constant_bytes")
        )
        parts.append(
            f"accelerator: {used:,} bytes of activations (lower bound {least:,}), "
            f"{constants:,} of constants"
        )
    if host["peak_bytes"]:
        parts.append(
            f"host: {host['peak_bytes']:,} bytes (lower bound {host['least_bytes']:,}) for "
            f"{counted(host['kernels'], 'kernel')} and "
            f"{counted(host['numpy'], 'NumPy step')}"
        )
    return "memory: " + ("; ".join(parts) or "none")
