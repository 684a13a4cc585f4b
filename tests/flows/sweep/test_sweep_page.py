"""The page of a sweep: one file, no requests, and every point in its places."""

import json
import re
import sys

import pytest

from tilewright.errors import ToolError
from tilewright.flows.cli.main import main
from tilewright.flows.sweep import Database, Search
from tilewright.flows.sweep.page import page_data, plotly_source, render
from tilewright.flows.synthesis.devices import find_device

from ..browser import Text

CLICKS = """
<script>
(async () => {
  const heading = [...document.querySelectorAll("th")]
    .find((th) => th.textContent === "block RAMs");
  const sort = () => document.querySelectorAll("th")[heading.cellIndex].firstChild.click();
  sort();
  const cells = () => [...document.querySelectorAll("tr.point")].map((row) =>
    [...row.children].map((cell) => cell.textContent));
  const told = { rising: cells() };
  sort();
  told.falling = cells();
  document.getElementById("search").value = "LANES=4X4 128";
  document.getElementById("search").dispatchEvent(new Event("input"));
  told.found = cells();
  document.getElementById("search").value = "";
  await Plotly.restyle("parallel", { "dimensions[0].constraintrange": [[[-0.1, 0.1]]] });
  told.brushed = cells();
  document.getElementById("across").value = "ram";
  document.getElementById("across").dispatchEvent(new Event("change"));
  told.across = document.getElementById("scatter").layout.xaxis.title.text;
  const heat = document.getElementById("heat");
  const choose = (id, value) => {
    document.getElementById(id).value = value;
    document.getElementById(id).dispatchEvent(new Event("change"));
  };
  choose("heat-machines", "all compiled");
  told.heat = { rows: heat.layout.yaxis.ticktext, columns: heat.layout.xaxis.ticktext,
    cycles: heat.data[0].hovertext, ratios: heat.data[0].z.map((row) => row.map((z) => 2 ** z)) };
  choose("heat-colour", "limit");
  told.limits = heat.data[0].text;
  const click = (row) => document.querySelectorAll("tr.point")[row].click();
  const pair = () => [...document.querySelectorAll("#pair tr")].map((row) =>
    [...row.children].map((cell) => cell.textContent));
  told.order = cells();
  click(0);
  told.one = pair();
  click(1);
  told.chosen = document.querySelectorAll("tr.chosen").length;
  told.two = pair();
  click(0);
  told.left = document.querySelectorAll("tr.chosen").length;
  const note = document.createElement("div");
  note.id = "told";
  note.textContent = JSON.stringify(told);
  document.body.append(note);
})();
</script></body>"""
"""Actions of a user: sort both ways, search, brush an axis, choose an axis, click two rows."""

RAM = 9
"""Column of block RAMs, after two varied names, state, limit, four figures and multipliers."""


@pytest.fixture
def data(swept, kept) -> dict:
    with Database(kept) as database:
        return page_data(swept(database=database))


def own(page: str) -> str:
    """The page without the library."""
    head, library, tail = page.partition(plotly_source())
    assert library
    return head + tail


def test_the_page_is_one_file_that_may_not_request_anything(data):
    page = own(render(data))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy"\s+content="([^"]*)"', page)
    assert policy == (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; "
        "img-src data: blob:"
    )
    assert set(re.findall(r"\w+://[^\s\"'<>]*", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe|script[^>]* src)", page)
    assert len(page) < 200_000


def test_names_of_networks_are_never_markup(data):
    hostile = "</script><script>document.title='caught'</script>[[script]]<b>"
    data["networks"][0]["name"] = hostile
    page = own(render(data))
    assert page.count("</script>") == 3
    assert "<b>" not in page.partition('id="data"')[2].partition("</script>")[0]


@pytest.mark.slow
@pytest.mark.browser
def test_times_are_those_at_each_machines_own_clock(browse, swept, kept, tmp_path):
    chip = find_device("ecp5-85")
    with Database(kept) as database:
        data = page_data(swept(database=database, device=chip, own_clock=True))
    clocks = {point["figures"]["clock_mhz"] for point in data["points"]}
    assert len(clocks) > 1
    assert data["clock_mhz"] not in clocks
    page = tmp_path / "page.html"
    page.write_text(render(data), "utf-8")
    document, _ = browse(page)
    assert "milliseconds are cycles at the clock of each machine" in document
    assert f"{data['clock_mhz']} MHz" not in Text(document).text["made"]


def test_points_that_a_condition_excludes_have_their_own_clock(swept, kept):
    with Database(kept) as database:
        data = page_data(
            swept(
                database=database, device=find_device("ecp5-85"), own_clock=True, where=["ms < 0"]
            )
        )
    assert {point["state"] for point in data["points"]} == {"excluded"}
    assert all(point["figures"]["clock_mhz"] > 0 for point in data["points"])


def test_the_command_writes_the_page(tilewright, model, kept, tmp_path):
    page, values = tmp_path / "sweep.html", tmp_path / "sweep.json"
    said = tilewright(
        "sweep", model, "--vary", "lanes=4x4,8x8,16x16", "--vary", "bus_bits=32,128", "-o", page,
        "--database", kept, "--workers", 0, "--json", values,
    )  # fmt: skip
    assert said.endswith(f"{page}: open the page in a browser\n")
    text = page.read_text()
    embedded = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])
    for name, value in json.loads(values.read_text()).items():
        assert embedded[name] == value


def test_layers_and_limits_have_all_cycles_of_every_point(data):
    assert [point["state"] for point in data["points"]].count("failed") == 0
    for point in data["points"]:
        cells = filter(None, point["layers"]["digits"])
        cycles = point["cycles"]["digits"]
        assert sum(count for count, _ in cells) == sum(point["limits"]["digits"].values()) == cycles


def test_a_missing_library_is_told_before_the_sweep(model, monkeypatch, capsys, tmp_path):
    def missing(name):
        raise ImportError(name)

    module = sys.modules["tilewright.flows.sweep.page.render"]
    monkeypatch.setattr(module, "import_module", missing)
    page = tmp_path / "sweep.html"
    assert main(["sweep", str(model), "-o", str(page)]) == ToolError.exit_code
    error = capsys.readouterr().err
    assert error.startswith("error: Plotly: not installed, so no page can be drawn; install it")
    assert not page.exists()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_draws_all_of_it_and_requests_nothing(browse, data, tmp_path, width):
    page = tmp_path / "sweep.html"
    page.write_text(render(data))
    document, requested = browse(page, width)
    assert 'data-ready="true"' in document, "no script failed"
    assert requested == []
    assert document.count('<tr class="point') == 6
    assert len(re.findall(r'<path class="point', document)) >= 6, "a dot for every machine"
    text = Text(document).text
    assert text["networks"] == "digits"
    assert "WebGL" not in text["parallel"]
    assert "16x16" in text["parallel"]
    for point in data["points"]:
        limits = point["limits"]["digits"]
        limit = max(limits, key=limits.__getitem__)
        share = limits[limit] / sum(limits.values())
        assert f"{limit} {share:.1%}" in text["table"]
        assert f"{point['figures']['ram']}" in text["table"]


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_of_a_search_tells_whose_front_it_shows(browse, swept, kept, tmp_path):
    with Database(kept) as database:
        outcome = swept(database=database, search=Search("random", 3))
    page = tmp_path / "sweep.html"
    page.write_text(render(page_data(outcome)))
    notice = Text(browse(page)[0]).text["notice"]
    assert notice == "The front is that of the 3 machines that the search random compiled."


@pytest.mark.slow
@pytest.mark.browser
def test_a_user_sorts_searches_and_brushes(browse, data, tmp_path):
    page = tmp_path / "sweep.html"
    page.write_text(render(data).replace("</body>", CLICKS))
    document, _ = browse(page)
    told = json.loads(Text(document).text["told"])
    assert len(told["rising"]) == 6
    rising, falling = ([int(row[RAM]) for row in told[way]] for way in ("rising", "falling"))
    assert rising == sorted(rising)
    assert falling == sorted(rising, reverse=True)
    assert [row[:2] for row in told["found"]] == [["4x4", "128"]]
    assert {row[0] for row in told["brushed"]} == {"4x4"}
    assert told["across"] == "block RAMs"
    assert told["heat"]["rows"] == data["layers"]["digits"]
    assert told["heat"]["columns"] == ["bus bits 128", "bus bits 32"], "brushed, the fastest first"
    slow, fast = (point for point in data["points"] if point["chosen"]["lanes"] == "4x4")
    pairs = list(zip(fast["layers"]["digits"], slow["layers"]["digits"], strict=True))
    for row, cells in enumerate(pairs):
        fewest = min(cycles for cycles, _ in cells)
        assert told["heat"]["ratios"][row] == pytest.approx([c / fewest for c, _ in cells])
        assert f"{cells[0][0]:,} cycles" in told["heat"]["cycles"][row][0]
        assert told["limits"][row] == [limit for _, limit in cells]
    assert told["chosen"] == 2
    assert told["one"] == []
    assert told["left"] == 1, "the second click on a machine takes it away"
    assert_side_by_side(told["two"], told["order"], data)


def assert_side_by_side(rows: list[list[str]], order: list[list[str]], data: dict) -> None:
    """The comparison has the machines of the first two rows of the table, in this order."""
    points = {(p["chosen"]["lanes"], p["chosen"]["bus_bits"]): p for p in data["points"]}
    pair = [points[row[0], row[1]] for row in order[:2]]
    heading, *rest = rows
    names = [", ".join(f"{name}={value}" for name, value in p["chosen"].items()) for p in pair]
    assert heading == ["", *names, "ratio"]
    told = {row[0]: row[1:] for row in rest}
    assert told["bus bits"] == [p["chosen"]["bus_bits"] for p in pair] + [""]
    assert "lanes" not in told, "equal in both"
    cycles = [p["figures"]["cycles"] for p in pair]
    assert told["cycles"][:2] == [f"{count:,.0f}" for count in cycles]
    assert float(told["cycles"][2][:-1]) == pytest.approx(cycles[1] / cycles[0], rel=0.005)
    for number, layer in enumerate(data["layers"]["digits"]):
        cells = [p["layers"]["digits"][number] for p in pair]
        assert told[layer][:2] == [f"{count:,} {limit}" for count, limit in cells]
