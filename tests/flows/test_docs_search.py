"""The search of the documentation's site when its pages are opened as files."""

import shutil
from pathlib import Path

import pytest

from .browser import opened

ROOT = Path(__file__).parents[2]
SHIM = ROOT / "docs" / "javascripts" / "iframe-worker.js"

PAGE = """<!doctype html><html lang="en"><title>Search</title><body><main id="answers"></main>
<script src="iframe-worker.js"></script><script>
const worker = new Worker("worker.js");
worker.onmessage = ({ data }) => { document.getElementById("answers").textContent += data; };
for (const word of ["depth", "wise"]) worker.postMessage(word);
</script></body></html>"""

WORKER = """addEventListener("message", ({ data }) => postMessage(data.toUpperCase()));"""


def test_the_site_names_the_script_that_its_theme_would_fetch():
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert "plugins: [search, offline]" in settings
    assert f"polyfills: [{SHIM.relative_to(ROOT / 'docs').as_posix()}]" in settings


@pytest.mark.slow
@pytest.mark.browser
def test_a_worker_runs_on_a_page_that_is_opened_as_a_file(tmp_path):
    shutil.copy(SHIM, tmp_path)
    (tmp_path / "worker.js").write_text(WORKER, "utf-8")
    page = tmp_path / "page.html"
    page.write_text(PAGE, "utf-8")
    with opened(page) as (view, _):
        view.wait_for_function("document.getElementById('answers').textContent == 'DEPTHWISE'")
