"""The site of `make docs`, opened as files in a browser: wide and narrow, light and dark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.browser import browser

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[1]
HIGHEST = 12_000
"""Pixels of a page at 1280 wide."""
LOOKED_AT = (
    *("index.html", "first-steps.html", "recipes.html", "data.html", "results/tasks.html"),
    *("verbs/text-and-vocabularies.html", "api/settings.html"),
)
# A busy machine with two cores.
PATIENCE = 300_000
FOUND = ".md-search-result__link"


@pytest.fixture(scope="module")
def opened():
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def site(opened, tmp_path_factory):
    """The folder of the built site."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra docs)")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def page_of(opened, width: int, scheme: str):
    """(a page, what it complains of: errors of its console, what it asks other servers for)."""
    page = opened.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    complaints = []
    page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda asked: asked.url.startswith(("http:", "https:")) and complaints.append(asked.url),
    )
    return page, complaints


def test_no_page_is_too_high(opened, site):
    page, complaints = page_of(opened, 1280, "light")
    found = []
    for path in sorted(site.rglob("*.html")):
        # A server's answer, with addresses from the root.
        if path.name == "404.html":
            continue
        page.goto(path.as_uri(), wait_until="load")
        width, height = page.evaluate(
            "() => [document.body.scrollWidth, document.documentElement.scrollHeight]"
        )
        if width > 1280 or height > HIGHEST:
            found.append(f"{path.relative_to(site)}: {width} x {height}")
    page.close()
    assert not found, "\n".join(found)
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_window_in_both_schemes(opened, site, width, scheme):
    page, complaints = page_of(opened, width, scheme)
    for name in LOOKED_AT:
        page.goto((site / name).as_uri(), wait_until="load")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        shade = sum(map(float, paper.strip("rgba()").split(",")[:3])) / 3
        assert shade > 200 if scheme == "light" else shade < 80, (name, paper)
    page.close()
    assert not complaints, "\n".join(complaints)


def test_search_finds_pages_that_are_opened_as_files(opened, site):
    page, complaints = page_of(opened, 1280, "light")
    page.goto((site / "index.html").as_uri(), wait_until="load")
    page.click(".md-search__input")
    # Keys, which the search waits for.
    page.keyboard.type("camlm")
    page.wait_for_selector(FOUND)
    links = page.eval_on_selector_all(FOUND, "all => all.map(one => one.href)")
    assert any("/objectives.html" in link for link in links), links
    page.close()
    assert not complaints, "\n".join(complaints)
