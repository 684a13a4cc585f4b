"""`tilewright evaluate`: judge schedules of a layer, for people and for programs alike."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....compiler.scheduling.given_schedules import machine_line
from ....errors import UsageError
from ....file_access import MAX_TEXT_BYTES, parse_json, read_part, reason
from ....wording import counted
from ...tuning.layer_bench import Evaluation, LayerBench, Verdict
from ..arguments import USUAL_OR_BOARDS, add_configuration, chosen_configuration, load_module
from ..calibration_options import add_calibration, chosen_calibration
from ..console import say
from ..input_options import add_fixes, chosen_overrides
from ..json_output import add_json, check_json, write_json
from ..memory_options import add_memory, memory_model
from ..operator_options import add_operators
from ..placement_options import add_placement, chosen_placing
from ..schedule_options import steps_of_layer, tell_of_other_machines


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file")
    add_configuration(parser, USUAL_OR_BOARDS)
    parser.add_argument(
        "--layer", required=True, metavar="NAME",
        help="name of the layer or of one of its nodes",
    )  # fmt: skip
    parser.add_argument(
        "--schedule", action="append", default=[], metavar="FILE", dest="given",
        help="file with the steps to judge, `-` for stdin; may be repeated (default: the "
        "compiler's own schedule, which is printed)",
    )  # fmt: skip
    parser.add_argument(
        "--stream", action="store_true",
        help='read requests from stdin, one a line as {"schedule": "STEPS"}, and answer each with '
        "a line of JSON, until stdin ends",
    )  # fmt: skip
    add_operators(parser)
    add_fixes(parser)
    add_placement(parser, table=False)
    add_calibration(parser)
    add_memory(parser, "main memory")
    add_json(parser, "the answers")
    parser.set_defaults(function=evaluate)


def evaluate(arguments: argparse.Namespace) -> None:
    """Judge each schedule; a refused one is an answer, not an error.

    Raises
    ------
    TilewrightError
        For a problem with the model, the layer's name or a file.
    """
    check_json(arguments.json)
    if arguments.stream and (arguments.given or arguments.json):
        option = "--schedule" if arguments.given else "--json"
        raise UsageError(f"`{option}`: expected no --stream, which has its own form; leave one out")
    read = {path: _read(path) for path in arguments.given}
    bench = LayerBench(
        load_module(
            arguments.source,
            chosen_configuration(arguments),
            calibration=chosen_calibration(arguments),
            overrides=chosen_overrides(arguments),
            placing=chosen_placing(arguments),
            memory=memory_model(arguments),
            expected=[arguments.layer],
        ),
        arguments.layer,
    )
    if arguments.stream:
        for line in sys.stdin:
            if line.strip():
                say(json.dumps(_answer(bench, line)))
        return
    texts = {path: steps_of_layer(text, bench.names, path) for path, text in read.items()}
    tell_of_other_machines(texts, bench.configuration)
    texts = texts or {"compiler's schedule": bench.default}
    answers = {name: bench.evaluate(text) for name, text in texts.items()}
    if arguments.json:
        values = [{"schedule": name, **answer.to_json()} for name, answer in answers.items()]
        write_json(arguments.json, {"layer": bench.name, "answers": values})
        return
    if not arguments.given:
        say(f"# layer {bench.names[-1]}")
        say(machine_line(bench.configuration))
        for answer in answers.values():
            for line in _sentences("compiler's schedule", answer):
                say(f"# {line}")
        say(bench.default)
        return
    for name, answer in answers.items():
        for line in _sentences(name, answer):
            say(line)


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else read_part(path, limit=MAX_TEXT_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"`--schedule {path}`: cannot be read ({reason(error)}); correct the path"
        ) from None


def _answer(bench: LayerBench, line: str) -> dict[str, Any]:
    """Return the answer to a request; a broken one is answered too, so that the stream goes on."""
    try:
        request = parse_json(line)
    except ValueError:
        request = None
    if not isinstance(request, dict) or not isinstance(request.get("schedule"), str):
        example = '{"schedule": "STEPS"}'
        return {"verdict": "no request", "message": f"expected a line such as {example}"}
    more = {"id": request["id"]} if "id" in request else {}
    return {**more, **bench.evaluate(request["schedule"]).to_json()}


def _sentences(name: str, answer: Evaluation) -> Iterator[str]:
    if (
        answer.verdict is not Verdict.OK
        or answer.cycles is None
        or answer.instructions is None
        or answer.limits is None
    ):
        where = f", line {answer.line}" if answer.line else ""
        yield f"{name}: {answer.verdict}{where}: {answer.message}"
        for stage, loops in (answer.loops or {}).items():
            yield f"  loops of {stage}: {', '.join(loops) or 'none'}"
        return
    yield (
        f"{name}: {answer.cycles:,} cycles in {counted(answer.instructions, 'instruction')} "
        f"(compiler's schedule {answer.default_cycles:,}, lower bound {answer.bound:,}, "
        f"{answer.bound_by}); the result equals the definition"
    )
    share = sorted(answer.limits.items(), key=lambda one: -one[1])
    yield f"  critical path: {', '.join(f'{what} {count:,}' for what, count in share)}"
