"""Two reports side by side: figures, causes, what differs, and layers that compute the same nodes.

Each side is the data of `report_data`, made now or by an earlier version; what an earlier version
did not know is None.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from .... import __version__
from ....compiler.graph.short_names import JOINT
from ....errors import UsageError
from ....file_access import parse_json, read_part, reason
from ..layer_groups import group_layers
from .causes import CAUSE_TEXT
from .render import build_report

PAGES = (".html", ".htm")
SUFFIXES = (*PAGES, ".json")
"""Suffixes of reports: pages, and the files of `--json`."""

SCRIPTS = "common", "causes", "compare"

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def read_report(path: Path, source: str) -> dict[str, Any]:
    """Return the data of a report from its page or its `--json` file.

    Parameters
    ----------
    source
        The option to name in messages.

    Raises
    ------
    UsageError
        If the file cannot be read, or is not a report.
    """
    try:
        text = read_part(path).decode()
        if path.suffix in PAGES:
            text = found[1] if (found := _DATA.search(text)) else ""
        data = parse_json(text)
        side_of(data)
    except OSError as problem:
        raise UsageError(
            f"{source}: cannot be read, got `{reason(problem)}`; check the path"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UsageError(
            f"{source}: expected a page of `tilewright report` or its `--json` file, got another "
            "file; make one with `tilewright report MODEL --json FILE.json`"
        ) from None
    return data


def side_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a comparison shows of a report.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the data are not those of a report.
    """
    summary, clock_mhz = data["summary"], data["clock_mhz"]
    efficiency = summary.get("efficiency") or {}
    energy = efficiency.get("energy_j")
    cycles = summary["cycles"]
    return {
        **{name: data[name] for name in ("network", "version", "date", "device", "memory")},
        "clock_mhz": clock_mhz,
        "program_for": data.get("program_for"),
        "configuration": {
            name: data["configuration"][name] for name in ("name", "hash", "parameters")
        },
        "figures": {
            "cycles": cycles,
            "ms": cycles / clock_mhz / 1e3,
            "of_peak": summary["of_peak"],
            "gops": efficiency.get("gops"),
            "energy_uj": energy and 5e5 * (energy["least"] + energy["greatest"]),
            **{
                name: efficiency.get("resources", {}).get(name)
                for name in ("multipliers", "ram", "lut", "ff")
            },
            **{
                name: summary[name]
                for name in (
                    "macs", "read_bytes", "written_bytes", "program_bytes", "instructions",
                )
            },
        },
        "chip": efficiency.get("chip"),
        "causes": {cause: data["path"]["causes"][cause] for cause in map(str, CAUSE_TEXT)},
        "layers": [
            {
                "name": layer["name"],
                "nodes": layer.get("full_name", layer["name"]).split(JOINT),
                "cycles": layer["added_cycles"],
                "causes": layer["causes"],
                "sentence": layer["sentence"],
            }
            for layer in data["layers"]
        ],
    }  # fmt: skip


def comparison(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Return two reports side by side as JSON values.

    Returns
    -------
    dict
        `sides` are A and B; `differences` have the settings that are not equal; each of `rows` has
        the layers of A and of B that compute the same nodes, or None where a side has none.
    """
    sides = [side_of(a), side_of(b)]
    groups = group_layers([[layer["nodes"] for layer in side["layers"]] for side in sides])
    rows = []
    for group in groups:
        pair = [
            _row([side["layers"][index] for index in members])
            for side, members in zip(sides, group.members, strict=True)
        ]
        names = [row["name"] for row in pair if row]
        rows.append({"name": max(names, key=len), "a": pair[0], "b": pair[1]})
    return {
        "version": __version__,
        "date": datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
        "causes": {str(cause): text for cause, text in CAUSE_TEXT.items()},
        "sides": [{name: side[name] for name in side if name != "layers"} for side in sides],
        "differences": _differences(*map(_settings, sides)),
        "rows": rows,
    }


def _row(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the sum of the layers of a side; None without layers."""
    if not layers:
        return None
    causes = Counter[str]()
    for layer in layers:
        causes.update(layer["causes"])
    return {
        "name": JOINT.join(layer["name"] for layer in layers),
        "cycles": sum(layer["cycles"] for layer in layers),
        "causes": dict(causes),
        "bound": max(causes, key=causes.__getitem__) if causes.total() else None,
        "sentences": [
            layer["sentence"] if len(layers) == 1 else f"{layer['name']}: {layer['sentence']}"
            for layer in layers
        ],
    }


def _settings(side: Mapping[str, Any]) -> dict[str, Any]:
    """Return what determines the cycles of a side, by name."""
    return {
        "network": side["network"],
        "configuration": side["configuration"]["name"],
        **side["configuration"]["parameters"],
        **{f"memory: {name}": value for name, value in side["memory"].items()},
        "program for": side["program_for"],
        "clock_mhz": side["clock_mhz"],
        "device": side["device"],
        "tilewright": side["version"],
    }


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = dict.fromkeys((*a, *b))
    return [
        {"name": name, "a": a.get(name), "b": b.get(name)}
        for name in names
        if a.get(name) != b.get(name)
    ]


def render_comparison(data: Mapping[str, Any]) -> str:
    """Return the page for the data of `comparison`."""
    a, b = (f"{side['network']} on {side['configuration']['name']}" for side in data["sides"])
    return build_report(f"{a} and {b}", "compare", SCRIPTS, data)
