"""Take every ONNX network of a folder through the commands and tabulate the results.

A network is quantised if it is float, compiled, run on `sim` with every layer compared, and run on
the CPU beside onnxruntime. Each network has a process of its own, so a crash or a hang ends only
its record. Beside `NAME.onnx`, the folder may hold `NAME.npz` with samples, and `NAME.json` with
the network's `kind`, `source`, `licence`, and `states`, the inputs that take an output of the
previous sample.
"""

import argparse
import hashlib
import io
import json
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from ...atomic_write import write_atomically
from ...errors import InputError, UsageError, did_you_mean
from ..cli.json_output import check_json, write_json
from ..cli.main import guarded
from ..cli.main import main as command_line
from . import cpu_networks
from .networks_page import summary, write_page

SAMPLES = 2
"""Samples that run on `sim`."""

LIMIT_S = 600
"""Seconds that a network may take."""

TURNS = 5
"""Turns of each contender on the CPU."""

DIFFERENCE = 1e-3
"""Largest difference of float outputs from onnxruntime's, relative to their largest magnitude."""

QUANTISED = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "Quant")
"""Operators of a network that is quantised already."""

Record = dict[str, Any]


class StepFailed(Exception):
    """A step ended without its figures; the text says why."""


def main(arguments: list[str] | None = None) -> int:
    """Run what has no record yet, keep a record of each network, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.flows.bench.networks")
    parser.description = (__doc__ or "").splitlines()[0]
    parser.add_argument("folders", nargs="+", type=Path, help="folders of ONNX files")
    parser.add_argument("--records", required=True, metavar="FILE", help="JSON file of the records")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="run these networks")
    parser.add_argument("--again", action="store_true", help="run networks that have a record too")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of a network")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the table here")
    options = parser.parse_args(arguments)
    return guarded(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """Measure the networks, the smallest file first.

    Raises
    ------
    TilewrightError
        For a folder without networks, an unknown name, or a file that cannot be read or written.
    """
    check_json(options.records)
    if options.limit <= 0:
        raise UsageError(f"`--limit {options.limit:g}`: expected seconds above 0; correct it")
    models = chosen_models(options.folders, options.only)
    records = read_records(Path(options.records))
    for position, model in enumerate(models, 1):
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        if not options.again and records.get(model.stem, {}).get("digest") == digest:
            continue
        print(f"{model.stem}, {position} of {len(models)}", file=sys.stderr)
        record = measure(model, options.limit)
        records[model.stem] = {"digest": digest, **record}
        write_json(options.records, dict(sorted(records.items())))
        print(f"{model.stem}: {outcome(record)}", file=sys.stderr)
    if options.output:
        write_page(options.output, records)
    print(summary(records.values()))


def chosen_models(folders: Iterable[Path], only: Iterable[str]) -> list[Path]:
    """Return the ONNX files of folders, the smallest first.

    Raises
    ------
    UsageError
        For a folder that has none, or a name that is not there.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        models = sorted(folder.glob("*.onnx"))
        if not models:
            raise UsageError(f"folder `{folder}`: expected ONNX files, got none; check the path")
        found |= {model.stem: model for model in models}
    for name in only:
        if name not in found:
            raise UsageError(f"unknown network `{name}`" + did_you_mean(name, found))
    names = set(only) or set(found)
    chosen = [model for name, model in found.items() if name in names]
    return sorted(chosen, key=lambda model: (model.stat().st_size, model.stem))


def read_records(path: Path) -> dict[str, Record]:
    """Return the records of earlier runs.

    Raises
    ------
    InputError
        If the file holds something else.
    """
    if not path.exists():
        return {}
    try:
        records = json.loads(path.read_bytes())
        if all(isinstance(each["digest"], str) for each in records.values()):
            return records
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        pass
    raise InputError(f"records `{path}`: expected a file of this bench; choose another name")


def measure(model: Path, limit_s: float = LIMIT_S) -> Record:
    """Take a network through the commands, in a process of its own.

    Parameters
    ----------
    model : Path
        An ONNX file; samples and description lie beside it.
    limit_s : float
        Most seconds for all steps together.

    Returns
    -------
    dict
        Figures by name. `failed` names the first step that failed, and `reason` says why.
    """
    with TemporaryDirectory() as folder:
        target = Path(folder) / "record.json"
        child = get_context("spawn").Process(target=take_steps, args=(model, Path(folder), target))
        child.start()
        try:
            child.join(limit_s)
            record = json.loads(target.read_text("utf-8")) if target.exists() else {}
            if child.exitcode != 0:
                late = child.exitcode is None
                ended = f"no result in {limit_s:g} s" if late else f"ended by {child.exitcode}"
                record = {**described(model), "failed": "start", "reason": ended, **record}
        finally:
            child.kill()
            child.join()
    return record


def described(model: Path) -> Record:
    """Return what the file beside a network says about it."""
    about = model.with_suffix(".json")
    more = json.loads(about.read_text("utf-8")) if about.is_file() else {}
    return {"kind": "", "source": "", "licence": "", "int8": is_quantised(model), **more}


def take_steps(model: Path, folder: Path, target: Path) -> None:
    """Take a network through the commands, and keep the record so far in `target`.

    The CPU runs the network even if it cannot be compiled; the other steps need the one before.
    """
    record = described(model)
    states = [
        word for pair in record.get("states", {}).items() for word in ("--state", "=".join(pair))
    ]
    samples = model.with_suffix(".npz")
    quantised = model if record["int8"] else folder / f"{model.stem}_int8.onnx"

    def step(title: str, *words: object) -> Any:
        keep(target, {**record, "failed": record.get("failed", title)})
        began = time.perf_counter()
        try:
            return figures(title, words, folder / f"{title}.json")
        except StepFailed as problem:
            record.setdefault("failed", title)
            reason = str(problem)
            for place in sorted((str(folder), str(model.parent)), key=len, reverse=True):
                reason = reason.replace(f"{place}/", "")
            record.setdefault("reason", reason)
            raise
        finally:
            record[f"{title}_s"] = round(time.perf_counter() - began, 1)

    with suppress(StepFailed):
        if not record["int8"]:
            asked = ("--calibrate", samples, "--effort", "quick", *states)
            record |= quality(step("quantise", model, *asked, "-o", quantised))
        compiled = step("compile", quantised, *states, "-o", folder / "module.tw")
        products = compiled["host_products"]
        record |= {"cycles": compiled["cycles"], "bound": compiled["bound"]}
        record["host"] = [row["sentence"] for row in products]
        explained = sum(row["macs"] for row in products)
        given = ("--input", samples) if samples.is_file() else ()
        asked = ("--samples", SAMPLES, "--compare", *states)
        # That program stores every result, so its cycles are not those of the record.
        ran = step("run", quantised, *given, *asked)
        record |= exactness(ran, explained, compiled["cycles"])
    with suppress(StepFailed):
        models = dict.fromkeys(each for each in (model, quantised) if each.is_file())
        rows = step("cpu", *models, "--threads", 1, "--turns", TURNS, "--steps", 0)
        names = ("ours_s", "peer_s", "ratio", "largest_difference")
        record["cpu"] = [{name: row[name] for name in names} for row in rows]
        if not record["int8"] and not rows[0]["largest_difference"] <= DIFFERENCE:
            apart = f"outputs {rows[0]['largest_difference']:.1e} of the largest from onnxruntime's"
            record = {"failed": "cpu", "reason": apart, **record}
    keep(target, record)


def keep(target: Path, record: Record) -> None:
    """Write a record whole, since the process may end at any time."""
    write_atomically(target, json.dumps(record).encode())


def is_quantised(model: Path) -> bool:
    """Whether an ONNX file is in int8 already; a damaged one is left to the commands."""
    try:
        nodes = onnx.load(model, load_external_data=False).graph.node
    except Exception:  # protobuf raises its own types
        return False
    return any(node.op_type in QUANTISED for node in nodes)


def figures(title: str, words: Iterable[object], target: Path) -> Any:
    """Call a command, or the bench of networks for `cpu`, and return its JSON.

    Raises
    ------
    StepFailed
        With the command's message.
    """
    arguments = [*map(str, words), "--json", str(target)]
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        cpu = title == "cpu"
        code = cpu_networks.main(arguments) if cpu else command_line([title, *arguments])
    if code:
        raise StepFailed((said.getvalue().strip().splitlines() or ["no message"])[-1])
    return json.loads(target.read_text("utf-8"))


def quality(report: Mapping[str, Any]) -> Record:
    """Return what the quantiser says about a network."""
    evaluated = report["evaluation"]
    names = ("sqnr_db", "same_class", "accuracy", "float_accuracy")
    return {name: evaluated[name] for name in names} | {
        "in_float": len(report["calibration"]["rescued"])
    }


def exactness(report: Mapping[str, Any], explained: int, cycles: int) -> Record:
    """Return what a run on `sim` says about a network.

    Parameters
    ----------
    explained : int
        Multiplications on the host for which `compile` gives the reason. A run with others has
        failed.
    cycles : int
        Of the program whose utilisation is asked for.
    """
    totals, comparison = report["totals"], report["comparison"]
    unexplained = totals["all_macs"] - totals["macs"] - explained
    reason = f"{unexplained:,} multiplications on the host without a reason"
    failed = {"failed": "run", "reason": reason} if unexplained else {}
    return failed | {
        "share": totals["macs"] / max(totals["all_macs"], 1),
        "macs": totals["all_macs"],
        "utilisation": totals["utilisation"] * totals["cycles"] / cycles if cycles else None,
        "equal": comparison["equal"],
        "layers": len(comparison["tallies"]),
    }


def outcome(record: Record) -> str:
    """Return a record in a few words."""
    if "failed" in record:
        return f"{record['failed']}: {record['reason']}"
    return f"{record['share']:.1%} accelerated, {record['cycles'] or 0:,} cycles"


if __name__ == "__main__":
    sys.exit(main())
