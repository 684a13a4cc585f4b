"""Demands on all pages in a browser: WCAG 2.2 AA, nothing cut off, keyboard, colours, order."""

import json
from collections.abc import Callable
from itertools import combinations, product
from math import dist
from pathlib import Path

import pytest

from tilewright.compiler.frontend import import_model
from tilewright.flows.reports.page import comparison, render, render_comparison
from tilewright.flows.sweep import Database, Space, sweep
from tilewright.flows.sweep.expressions import read_condition
from tilewright.flows.sweep.figures import FIGURES
from tilewright.flows.sweep.outcome import SweepNetwork
from tilewright.flows.sweep.page import page_data
from tilewright.flows.sweep.page import render as render_sweep
from tilewright.flows.tuning.page import page_data as page_data_of_logs
from tilewright.flows.tuning.page import render as render_tuning
from tilewright.flows.tuning.run_log import LoggedTrial, RunLog

from .browser import opened, violations

pytestmark = [pytest.mark.slow, pytest.mark.browser]

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"

MIN_CONTRAST = 3
"""Contrast of graphics by WCAG 2.2, criterion 1.4.11; axe-core checks the contrast of text."""

MIN_DISTANCE = 0.06
"""Between two colours of a page, in OKLab, where black and white have a distance of 1."""

COLOURS = {
    "report": ["compute", "memory", "latency", "dispatch", *(
        f"wait-{name}"
        for name in ("work", "next", "memory", "token", "queue", "fetch", "unit", "fill")
    )],
    "comparison": ["compute", "memory", "latency", "dispatch"],
    "tuning": ["tuner-1", "tuner-2", "tuner-3", "tuner-4", "tuner-5"],
    "sweep": ["GEMM", "VECTOR", "LOAD", "STORE", "latency", "dispatch", "hidden"],
}  # fmt: skip


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> list[dict]:
    from tilewright.flows.cli.main import main

    folder = tmp_path_factory.mktemp("reports")
    found = []
    for machine in ("8x8", "16x16"):
        values = folder / f"{machine}.json"
        words = ["--config", machine, "-o", folder / f"{machine}.html", "--json", values]
        assert main(["report", *map(str, [DIGITS, *words])]) == 0
        found.append(json.loads(values.read_text("utf-8")))
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Callable[..., dict]:
    database = tmp_path_factory.mktemp("sweep") / "kept.db"
    network = SweepNetwork("digits", import_model(DIGITS))

    def data(where=()) -> dict:
        conditions = [read_condition(text, FIGURES, "where") for text in where]
        space = Space.of({"lanes": "4x4,8x8", "bus_bits": "32,128"})
        with Database(database) as results:
            return page_data(sweep([network], space, results, where=conditions))

    return data


def logs() -> list[RunLog]:
    """Two tuners with three seeds each and a search, some trials with failures or predictions."""
    found = []
    for tuner, seed in product(("evolutionary", "xgboost"), range(3)):
        trials = tuple(
            LoggedTrial(
                {"method": "direct", "rows": at % 7, "vectors": (at + seed) % 5},
                "crash" if at % 11 == 9 else "ok",
                None if at % 11 == 9 else 1 - at * (3 + seed) / 1000,
                0.01,
                at / 10 if at > 5 and tuner == "xgboost" else None,
            )
            for at in range(60)
        )
        place = "conv1", "processor, avx2, 1 thread", "a", "b"
        found.append(RunLog(*place, tuner, seed, 414, "s", 2e-6, 0.0, trials))
    trials = tuple(
        LoggedTrial({"y": at}, "ok", 0.9 + at / 50, predicted=1 + at / 60) for at in range(9)
    )
    place = "conv2 + residual", "8x8, latency=64", "c", "d"
    return [*found, RunLog(*place, "search", 0, 9, "cycles", 1795, 0.675, trials)]


@pytest.fixture(scope="module")
def pages(reports, swept, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "report": render(reports[0]),
        "comparison": render_comparison(comparison(*reports)),
        "sweep": render_sweep(swept()),
        "tuning": render_tuning(page_data_of_logs("digits", logs())),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1600, 390])
@pytest.mark.parametrize("name", COLOURS)
def test_pages_conform_to_wcag_and_fit_their_width(pages, name, width, scheme):
    with opened(pages[name], width, scheme) as (view, asked):
        assert asked == []
        assert view.get_attribute("html", "data-ready") == "true", "no script failed"
        assert violations(view) == []
        assert view.evaluate("document.documentElement.scrollWidth") == width
        links = view.eval_on_selector_all("#contents a", "all => all.map((a) => a.hash)")
        assert len(links) > 3
        for link in links:
            assert view.eval_on_selector(link, "part => !part.hidden && part.offsetHeight > 0")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", COLOURS)
def test_colours_of_a_page_differ_and_stand_out_from_cards(pages, name, scheme):
    with opened(pages[name], scheme=scheme) as (view, _):
        values = view.evaluate(
            "names => names.map((name) => getComputedStyle(document.documentElement)"
            ".getPropertyValue(`--${name}`).trim())",
            [*COLOURS[name], "card"],
        )
    *colours, card = map(linear, values)
    for shown, colour in zip(COLOURS[name], colours, strict=True):
        assert contrast(colour, card) >= MIN_CONTRAST, shown
    for (one, first), (other, second) in combinations(
        zip(COLOURS[name], map(oklab, colours), strict=True), 2
    ):
        assert dist(first, second) >= MIN_DISTANCE, (one, other)


def linear(text: str) -> tuple[float, ...]:
    """Red, green and blue of `#rrggbb` in linear light."""
    parts = (int(text[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return tuple(p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """WCAG's ratio."""
    weights = 0.2126, 0.7152, 0.0722
    low, high = sorted(sum(w * p for w, p in zip(weights, c, strict=True)) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def oklab(rgb: tuple[float, ...]) -> tuple[float, ...]:
    """Björn Ottosson's OKLab, https://bottosson.github.io/posts/oklab/."""

    def times(rows, values):
        return [sum(a * b for a, b in zip(row, values, strict=True)) for row in rows]

    cones = times(
        [(0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566),
         (0.0883024619, 0.2817188376, 0.6299787005)],
        rgb,
    )  # fmt: skip
    return tuple(times(
        [(0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099),
         (0.0259040371, 0.7827717662, -0.8086757660)],
        [value ** (1 / 3) for value in cones],
    ))  # fmt: skip


def test_a_layer_is_chosen_by_mouse_and_keyboard(pages, reports):
    layers = reports[0]["layers"]
    with opened(pages["report"]) as (view, _):

        def shown() -> str:
            return view.inner_text("#layer-detail")

        slowest = max(layers, key=lambda layer: layer["added_cycles"])
        assert slowest["name"] in shown()
        view.locator("#graph [data-layer='1']").click()
        assert layers[1]["name"] in shown()
        assert layers[1]["sentence"].replace("`", "") in shown()
        assert layers[1]["schedule"].splitlines()[0] in shown()
        assert view.input_value("#timeline-layer") == "1"
        label = view.get_attribute("canvas", "aria-label")
        assert "cycles" in label
        view.keyboard.press("ArrowDown")
        assert layers[2]["name"] in shown()
        view.focus("canvas")
        view.keyboard.press("0")
        assert view.get_attribute("canvas", "aria-label").endswith("the whole run")
        view.keyboard.press("+")
        assert view.get_attribute("canvas", "aria-label") != label


def test_layers_are_sorted_by_keyboard(pages, reports):
    cycles = [f"{layer['added_cycles']:,}" for layer in reports[0]["layers"]]
    with opened(pages["report"]) as (view, _):

        def column() -> list[str]:
            rows = "#layers tbody.layer tr:first-child td:nth-child(4)"
            return view.locator(rows).all_inner_texts()

        assert column() == cycles
        view.get_by_role("button", name="Cycles", exact=True).focus()
        view.keyboard.press("Enter")
        falling = sorted(cycles, key=lambda text: -int(text.replace(",", "")))
        assert column() == falling
        view.keyboard.press("Enter")
        assert column() == falling[::-1], "the focus stays on the heading"


def test_a_network_of_many_layers_begins_with_the_slowest(reports, tmp_path):
    data = json.loads(json.dumps(reports[0]))
    first = data["layers"][0]
    data["layers"] = [
        {**first, "name": f"layer{number}", "added_cycles": number} for number in range(200)
    ]
    data["completions"] = [
        {"name": f"layer{number}", "begin": number, "end": number + 1} for number in range(200)
    ]
    page = tmp_path / "long.html"
    page.write_text(render(data), "utf-8")
    with opened(page) as (view, _):
        names = view.locator("#layers td.name-cell")
        assert names.count() == 30
        assert names.first.inner_text() == "layer199"
        view.get_by_role("button", name="Show all 200 rows").click()
        assert names.count() == 200


def test_joined_layers_tell_what_they_share_once(pages):
    cases = {
        "s1.b0.conv2 + s1.b0.add": "s1.b0.conv2 + add",
        "/m/c/Conv + /m/c.1/Relu + /n/Add": "/m/c/Conv + c.1/Relu + n/Add",
        "conv3 + residual": "conv3 + residual",
        "a.conv + a.conv2 + ab.c": "a.conv + conv2 + ab.c",
    }
    with opened(pages["report"]) as (view, _):
        for name, shown in cases.items():
            assert view.evaluate("joined", name) == shown


def test_labels_in_bars_fit_or_are_left_out(reports, tmp_path):
    first, second = json.loads(json.dumps(reports))
    first["causes"] |= {"compute": 85, "memory": 12, "latency": 2, "dispatch": 1}
    page = tmp_path / "narrow.html"
    page.write_text(render_comparison(comparison(first, second)), "utf-8")
    with opened(page, 390) as (view, _):
        parts = view.locator(".stack > div")
        assert parts.count() > 4
        for part in parts.all():
            wanted, room = part.evaluate("it => [it.scrollWidth, it.clientWidth]")
            assert wanted <= room, part.inner_text()


def test_dots_do_not_cover_the_name_of_the_slope(reports, tmp_path):
    data = json.loads(json.dumps(reports[0]))
    first = next(layer for layer in data["layers"] if layer["macs_per_cycle"])
    slope = data["roofline"]["bytes_per_cycle"]
    per_byte = [2 ** (at / 8) for at in range(8)]
    data["layers"] = [
        {**first, "name": f"layer{at}", "macs_per_byte": each, "macs_per_cycle": slope * each}
        for at, each in enumerate(per_byte)
    ]
    page = tmp_path / "dots.html"
    page.write_text(render(data), "utf-8")
    inside = """name => [...document.querySelectorAll("#roofline .dot")].filter((dot) => {
      const box = name.getBBox(), to = name.getScreenCTM().inverse().multiply(dot.getScreenCTM());
      const at = new DOMPoint(dot.cx.baseVal.value, dot.cy.baseVal.value).matrixTransform(to);
      const beside = (it, from, extent) => it > from - 6 && it < from + extent + 6;
      return beside(at.x, box.x, box.width) && beside(at.y, box.y, box.height);
    }).length"""
    with opened(page) as (view, _):
        name = view.locator("#roofline text", has_text="bytes a cycle")
        assert view.locator("#roofline .dot").count() == len(per_byte)
        assert name.evaluate(inside) == 0


def test_the_range_of_one_seed_has_no_area(tmp_path):
    place = "conv1", "processor, avx2, 1 thread", "a", "b"
    trials = tuple(LoggedTrial({"y": at}, "ok", 1 - at / 20, 0.01) for at in range(6))
    log = RunLog(*place, "random", 0, 6, "s", 2e-6, 0.0, trials)
    page = tmp_path / "one.html"
    page.write_text(render_tuning(page_data_of_logs("digits", [log])), "utf-8")
    within = """band => {
      const box = band.getBBox(), steps = [...Array(40).keys()].map((at) => (at + 0.5) / 40);
      return steps.flatMap((x) => steps.map((y) => band.isPointInFill(
        new DOMPoint(box.x + x * box.width, box.y + y * box.height)))).filter(Boolean).length;
    }"""
    with opened(page) as (view, _):
        assert view.locator("#curves path[fill-opacity]").evaluate(within) == 0


def test_numbers_have_three_digits_and_the_right_prefix(pages):
    cases = {0.0085: "8.50 mJ", 999.7: "1.00 kJ", 70856: "70.9 kJ", 12: "12 J", 3.1e-7: "310 nJ"}
    with opened(pages["report"]) as (view, _):
        for number, text in cases.items():
            said = view.evaluate("number => quantity(number, 'J')", number)
            assert said.replace("\u00a0", " ") == text
        assert view.evaluate("range(0.005002, 0.0085, 'J')") == "5.00 to 8.50\u00a0mJ"


def test_a_sweep_without_result_says_so_and_has_a_legend(swept, tmp_path):
    page = tmp_path / "none.html"
    page.write_text(render_sweep(swept(["ms < 0.0001"])), "utf-8")
    with opened(page) as (view, _):
        assert view.inner_text("#verdict").startswith(
            "no machine meets every condition, of 4 tried"
        )
        assert "Nearest: lanes=" in view.inner_text("#verdict")
        assert view.locator("#scatter .legend").text_content() == "excluded"
        cards = view.inner_text("#cards").splitlines()
        assert cards[cards.index("Excluded") + 2] == "4 by ms < 0.0001"
        assert cards[cards.index("Programs") + 2] == "none was compiled"
        assert view.is_hidden("#parallel-card")


def test_marks_of_a_narrow_range_differ(pages):
    read = "(scale => scale.marks.map(scale.text))(scaleOf([0.9561, 0.9567], 6))"
    with opened(pages["tuning"]) as (view, _):
        marks = view.evaluate(read)
    assert marks == ["0.9562", "0.9564", "0.9566"]


def test_a_task_is_chosen_by_keyboard_and_all_parts_follow(pages):
    with opened(pages["tuning"]) as (view, _):
        labels = "#curves svg, #predicted svg, #space svg"

        def said() -> list[str]:
            return [one.get_attribute("aria-label") for one in view.locator(labels).all()]

        # The task with the larger default comes first, so a layer's cycles before seconds.
        assert said() == [
            "Best ratio so far of conv2 + residual: search 0.900 after 9 trials",
            "9 predictions and what was measured; pairs in order: 100.0%",
            "9 of 9 candidates by y and ratio; the best takes 0.900 of the default",
        ]
        view.get_by_role("button", name="conv1").focus()
        view.keyboard.press("Enter")
        assert view.evaluate("document.activeElement.textContent") == "conv1"
        assert view.get_attribute("tr.chosen button", "aria-pressed") == "true"
        # Seeds gain 3, 4 and 5 thousandths for each trial, and the last one that works is the 59th.
        assert said()[0] == (
            "Best ratio so far of conv1: evolutionary 0.764 after 60 trials; "
            "xgboost 0.764 after 60 trials"
        )
        rows = view.locator("#tuners tbody tr").all_inner_texts()
        assert rows[0].split("\t") == [
            "evolutionary",
            "3",
            "60",
            "0.764",
            "0.705 to 0.823",
            "\u2013",
        ]
        assert view.locator("#space path").count() > 0, "crosses of candidates without a time"
        view.select_option("#across", label="method")
        assert said()[2].startswith("35 of 414 candidates by method and ratio;")
        view.get_by_role("button", name="Show all 35 rows").click()
        assert view.locator("#trials tbody tr").count() == 35


def test_a_table_of_machines_fits_a_desktop(pages):
    with opened(pages["sweep"], 1280) as (view, _):
        widths = "part => [part.scrollWidth, part.clientWidth]"
        wanted, room = view.locator("#table-card .scroll").evaluate(widths)
        assert wanted <= room


def test_lines_do_not_strike_through_the_labels_of_axes(pages):
    with opened(pages["sweep"]) as (view, _):
        label = view.locator("#parallel .axis text").first
        style = label.evaluate(
            "it => [getComputedStyle(it).paintOrder, getComputedStyle(it).stroke]"
        )
        card = view.locator("#parallel-card").evaluate("it => getComputedStyle(it).backgroundColor")
        assert style == ["stroke", card]


def test_both_machines_stay_in_sight_on_a_phone(pages):
    with opened(pages["sweep"], 390) as (view, _):
        for row in (0, 1):
            button = view.locator("tr.point button").nth(row)
            button.focus()
            view.keyboard.press("Enter")
        cells = view.locator("#pair thead tr > *")
        assert cells.count() == 4
        for at in range(4):
            box = cells.nth(at).bounding_box()
            assert box["x"] + box["width"] <= 390
