"""`tilewright report --pair`: two reports side by side, however they were made."""

import json
import re

import pytest

from tilewright.flows.cli.main import main
from tilewright.flows.reports.page import comparison, render_comparison

from ..browser import Text


@pytest.fixture
def reports(tilewright, model, tmp_path):
    """The data of two reports, of 8x8 and of 16x16 with a slower main memory; also their files."""
    found = {}
    for name, machine, latency in (("a", "8x8", 64), ("b", "16x16", 200)):
        page, values = tmp_path / f"{name}.html", tmp_path / f"{name}.json"
        words = ["--config", machine, "--latency", latency, "-o", page, "--json", values]
        tilewright("report", model, *words)
        found[name] = json.loads(values.read_text())
    return found


@pytest.fixture
def data(reports) -> dict:
    return comparison(reports["a"], reports["b"])


def undated(data: dict) -> dict:
    sides = [{**side, "date": ""} for side in data["sides"]]
    return {**data, "date": "", "sides": sides}


def test_rows_have_every_layer_of_both_sides_once(data, reports):
    for name, side in zip("ab", data["sides"], strict=True):
        layers = reports[name]["layers"]
        rows = [row[name] for row in data["rows"] if row[name]]
        assert [part for row in rows for part in row["name"].split(" + ")] == [
            part for layer in layers for part in layer["name"].split(" + ")
        ]
        assert sum(row["cycles"] for row in rows) == sum(each["added_cycles"] for each in layers)
        assert side["figures"]["cycles"] == reports[name]["summary"]["cycles"]
        assert side["figures"]["ms"] == pytest.approx(side["figures"]["cycles"] / 1e5)
        used = reports[name]["summary"]["efficiency"]["resources"]
        assert {figure: side["figures"][figure] for figure in used} == used


def test_layers_fused_on_one_side_share_a_row(reports):
    a, b = reports["a"], json.loads(json.dumps(reports["a"]))
    first, second, *others = b["layers"]
    merged = {
        **first,
        "name": f"{first['name']} + {second['name']}",
        "full_name": f"{first['full_name']} + {second['full_name']}",
        "added_cycles": 7,
        "causes": {"compute": 1, "memory": 0, "latency": 0, "dispatch": 0},
    }
    b["layers"] = [merged, *others]
    row, *rest = comparison(a, b)["rows"]
    assert row["name"] == merged["name"]
    assert row["a"]["cycles"] == first["added_cycles"] + second["added_cycles"]
    assert row["a"]["sentences"] == [
        f"{layer['name']}: {layer['sentence']}" for layer in (first, second)
    ]
    assert (row["b"]["cycles"], row["b"]["bound"]) == (7, "compute")
    assert all(each["a"] == each["b"] for each in rest)


def test_other_layers_have_no_partner(reports):
    b = json.loads(json.dumps(reports["b"]))
    for layer in b["layers"]:
        layer["full_name"] = " + ".join(f"{part}x" for part in layer["full_name"].split(" + "))
    rows = comparison(reports["a"], b)["rows"]
    assert all((row["a"] is None) != (row["b"] is None) for row in rows)


def test_what_differs_is_listed_and_nothing_else(data, reports):
    found = {each["name"]: (each["a"], each["b"]) for each in data["differences"]}
    assert found["configuration"] == ("8x8", "16x16")
    assert found["lanes_in"] == (8, 16)
    assert found["memory: latency_cycles"] == (64, 200)
    assert not {"network", "clock_mhz", "device", "tilewright", "bus_bits"} & set(found)
    assert comparison(reports["a"], reports["a"])["differences"] == []


def test_machines_pages_and_files_give_the_same_comparison(
    tilewright, model, tmp_path, data, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    said = tilewright("report", model, "--pair", "8x8", "16x16,latency=200", "--json", "c.json")
    (a, b) = (side["figures"]["cycles"] for side in data["sides"])
    assert said.splitlines() == [
        f"A  8x8: digits_int8_qdq on 8x8, {a:,} cycles, {a / 100 / 1e3:#.3g} ms at 100 MHz",
        f"B  16x16,latency=200: digits_int8_qdq on 16x16, {b:,} cycles, {b / 100 / 1e3:#.3g} ms at "
        "100 MHz",
        f"B takes {b / a:.3g} times as long as A",
        "compare.html: open the page in a browser",
    ]
    found = json.loads((tmp_path / "c.json").read_text())
    assert undated(found) == undated(data)
    assert (tmp_path / "compare.html").read_text() == render_comparison(found)
    printed = tilewright("report", "--pair", "a.html", "b.json", "--json")
    assert undated(json.loads(printed)) == undated(data)


def test_a_side_says_its_parameters_and_takes_the_others_from_the_command(
    tilewright, model, tmp_path
):
    words = ["--pair", "act_depth=1024,lanes=8x16", "8x8", "--latency", "80", "--json"]
    sides = json.loads(tilewright("report", model, "-o", tmp_path / "c.html", *words))["sides"]
    first, second = (side["configuration"] for side in sides)
    assert first["name"] == "16x16,act_depth=1024,lanes=8x16"
    parameters = first["parameters"]
    assert [parameters[name] for name in ("lanes_in", "lanes_out", "act_depth")] == [8, 16, 1024]
    assert second["name"] == "8x8"
    assert [side["memory"]["latency_cycles"] for side in sides] == [80, 80]


def test_a_report_of_an_earlier_version_may_lack_efficiency(reports):
    old = {**reports["a"], "summary": {**reports["a"]["summary"]}, "version": "0.0.9"}
    del old["summary"]["efficiency"]
    data = comparison(old, reports["b"])
    assert data["sides"][0]["figures"]["lut"] is None
    assert {"name": "tilewright", "a": "0.0.9", "b": reports["b"]["version"]} in data["differences"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "MODEL: expected an ONNX file or an artifact; name one, or two reports with "
         "`--pair A B`"),
        (["--pair", "8x8", "16x16"], "`--pair 8x8`: expected a report, a model or an "
         "artifact, found no such file; to compare machines, name the model too: `tilewright "
         "report MODEL --pair A B`"),
        (["--pair", "none.json", "b.json"], "`--pair none.json`: cannot be read, got `No "
         "such file or directory`; check the path"),
        (["--pair", "a.json", "a.json", "--config", "8x8"], "`--config`, `--set`: expected a "
         "model to time, got two reports after `--pair`; leave them out"),
        (["m.onnx", "--pair", "8x8", "8x8", "--table"], "`--table`: expected a report of one "
         "network, got `--pair`; leave one of them out"),
        (["m.onnx", "--pair", "8x8,latency", "8x8"], "`--pair 8x8,latency`: expected "
         "NAME=VALUE such as `act_depth=4096`, got `latency`; correct it"),
        (["m.onnx", "--pair", "act_dept=8", "8x8"], "`--pair act_dept=8`: unknown parameter "
         "`act_dept`; expected lanes, or a parameter of the configuration (`tilewright config "
         "show`), or a property of main memory (latency, bandwidth, outstanding, shared_bus); did "
         "you mean `act_depth`?"),
        (["m.onnx", "--pair", "act_depth=512..1024", "8x8"], "`--pair act_depth=512..1024`: "
         "expected one value of `act_depth`, got `512..1024`; choose one"),
    ],
)  # fmt: skip
def test_usage(capsys, words, message):
    assert main(["report", *words]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"summary": 3}', "\xff"])
@pytest.mark.parametrize("suffix", [".json", ".html"])
def test_other_files_are_rejected(capsys, tmp_path, text, suffix):
    path = tmp_path / f"other{suffix}"
    path.write_bytes(text.encode("latin-1"))
    assert main(["report", "--pair", str(path), str(path)]) == 2
    assert capsys.readouterr().err == (
        f"error: `--pair {path}`: expected a page of `tilewright report` or its `--json` file, "
        "got another file; make one with `tilewright report MODEL --json FILE.json`\n"
    )


def test_a_report_with_a_number_that_is_none_is_rejected(capsys, tmp_path, reports):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({**reports["a"], "clock_mhz": float("nan")}))
    assert main(["report", "--pair", str(path), str(path), "-o", str(tmp_path / "c.html")]) == 2
    assert "expected a page of `tilewright report`" in capsys.readouterr().err


def test_names_in_a_model_are_never_markup(data):
    hostile = "</script><script>document.title='caught'</script><b>"
    data["rows"][0]["name"] = data["sides"][0]["network"] = hostile
    page = render_comparison(data)
    assert page.count("</script>") == 2
    assert "<b>" not in page


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_draws_all_of_it_and_requests_nothing(browse, data, tmp_path, width):
    page = tmp_path / "compare.html"
    page.write_text(render_comparison(data))
    document, requested = browse(page, width)
    assert 'data-ready="true"' in document, "no script failed"
    assert requested == []
    assert document.count('class="row pair"') == len(data["rows"])
    text = Text(document).text
    assert text["title"] == "digits_int8_qdq: 8x8 and 16x16"
    a, b = (side["figures"] for side in data["sides"])
    assert f"{a['cycles']:,} cycles" in text["cards"]
    assert f"{b['cycles']:,} cycles" in text["cards"]
    for row in data["rows"]:
        assert row["name"] in text["layers"]
        assert f"{row['a']['cycles']:,}" in text["layers"]
    assert f"{b['lut']:,}" in text["figures"]
    shown = [each["name"].replace("_", " ") for each in data["differences"]]
    assert all(name in text["differences"] for name in shown)
    faster = "B" if b["ms"] < a["ms"] else "A"
    assert re.search(rf"{faster} is [\d.]+. as fast", text["cards"])
