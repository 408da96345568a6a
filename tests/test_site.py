"""The site as a reader has it: built without a warning, no dead link, well spelt, opened in a browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from browsers import SCREENS, browser, offline, untroubled
from doc_blocks import DOCS, ROOT, Page
from site_checks import (
    WORDS,
    dead_links,
    dead_source_links,
    is_word,
    misspelt,
    own_words,
    prose_words,
    source_links,
)

pytestmark = pytest.mark.docs

__all__ = ["browser"]

TEXTS = [
    *(Page(ROOT / name) for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *map(Page, sorted(DOCS.rglob("*.md"))),
]
OPENED = ["index", "start", "links", "frameworks", "api", "performance", "results/paper/tables/table-links"]
# The reference is hundreds of entries of one form: some of them are looked at, since each costs time.
FEWER = """['.md-content .doc-object', '.md-nav--secondary .md-nav__item'].forEach(
    kind => [...document.querySelectorAll(kind)].slice(12).forEach(each => each.remove()))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built anew, with warnings as errors and nothing fetched."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    nowhere = "http://127.0.0.1:9"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "http_proxy": nowhere, "https_proxy": nowhere},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_navigation():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    def listed(entry) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for each in entry.values() if isinstance(entry, dict) else entry:
                yield from listed(each)

    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(listed(config["nav"])) == sorted(pages)


def test_no_link_of_the_site_is_dead(site):
    dead, outside = dead_links(site)
    assert not dead, "\n".join(dead)
    print("\n".join(["links to elsewhere, which were not followed:", *sorted(outside)]))
    assert [link for link in outside if not re.match(r"(https://[\w.-]+\.\w+(/|$)|mailto:)", link)] == []


def test_nothing_of_the_site_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]*src="?https?:', text), page
        assert not re.findall(r'<link[^>]*rel="?(?:stylesheet|preconnect|icon)[^>]*href="?https?:', text), (
            page
        )
    for sheet in (DOCS / "assets").glob("*.css"):
        assert "url(" not in sheet.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_no_link_of_a_source_is_dead(page):
    assert dead_source_links(page) == []


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_every_word_is_spelt_right(page):
    wrong = misspelt(page.name, page.prose)
    assert not wrong, "\n".join(["mend it, or add it to docs/spelling.txt if it is right:", *wrong])


def test_every_word_of_the_help_is_spelt_right():
    import typer

    from fastgrl.cli import app

    def helps(command, name) -> Iterator[tuple[str, str]]:
        yield name, " ".join(filter(None, [command.help, command.epilog]))
        for option in command.params:
            yield f"{name} {option.opts[0]}", getattr(option, "help", None) or ""
        for verb, inner in getattr(command, "commands", {}).items():
            yield from helps(inner, f"{name} {verb}")

    texts = list(helps(typer.main.get_command(app), "fastgrl"))
    assert len(texts) > 50
    wrong = [each for name, text in texts for each in misspelt(name, re.sub(r"Example: .*", "", text))]
    assert not wrong, "\n".join(wrong)


def test_no_word_of_the_list_is_there_for_nothing():
    lines = [line for line in WORDS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert [line for line in lines if lines.count(line) > 1] == []
    assert lines == [line.strip() for line in lines]


def test_common_misspellings_stand_nowhere():
    where = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs",
        "src",
        "examples",
        "benchmarks",
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "codespell_lib",
            "--skip",
            "*/results/paper/*,*.svg",
            *where,
            "Makefile",
            "mkdocs.yml",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_dead_link_and_a_misspelt_word_are_found_out(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#there"></a><a href="b.html#not"></a><img src="c.png">')
    (tmp_path / "b.html").write_text('<p id="there"><a href="https://example.org/">')
    dead, outside = dead_links(tmp_path)
    assert dead == [
        "a.html:1: b.html#not: no such place on that page",
        "a.html:1: c.png: no such file",
    ]
    assert outside == {"https://example.org/"}
    text = "# Colour\n\nThe colour of a grahp, `grahp`, in grahp.md, normalised.\n"
    assert misspelt("page.md", text) == ["page.md:3: grahp"]
    page = Page(DOCS / "made-up.md")
    page.__dict__["text"] = "[a](../README.md) [b](nowhere.md) ![c](../README.md#nowhere) [d](https://x)\n"
    assert [link for _, link in source_links(page)] == [
        "../README.md",
        "nowhere.md",
        "../README.md#nowhere",
        "https://x",
    ]
    assert [each.rsplit(": ", 1)[1] for each in dead_source_links(page)] == [
        "no such file",
        "no such heading",
        "not an address",
    ]
    assert is_word("NumPy")
    assert not is_word("numpy")
    assert "fastgrl" in own_words()
    assert [word for _, word in prose_words("a **b**, c-d: `e`, --force")] == ["a", "b", "c", "d"]


@pytest.fixture(scope="module", params=SCREENS, ids=str)
def context(request, browser):
    with offline(browser, request.param, permissions=["clipboard-read", "clipboard-write"]) as window:
        window.set_default_timeout(10_000)
        yield window


@pytest.fixture
def page(context):
    with untroubled(context) as opened:
        yield opened


def width(page) -> int:
    return page.viewport_size["width"]


@pytest.mark.parametrize("name", OPENED)
def test_a_page_fits_the_window_and_hinders_nobody(page, site, name):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is a package of its own")
    page.goto((site / f"{name}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width(page)
    assert page.locator(".md-content").bounding_box()["width"] <= width(page)
    for picture in page.locator(".md-content img").all():
        assert picture.evaluate("image => image.complete && image.naturalWidth > 0")
        assert picture.bounding_box()["width"] <= width(page)
    # A scheme that was asked for is shown.
    bright = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert bright == page.evaluate("matchMedia('(prefers-color-scheme: light)').matches")
    page.evaluate(FEWER)
    found = axe.Axe().run(page, options={"preload": False})  # which reads style sheets again
    grave = [each for each in found.response["violations"] if each["impact"] in ("serious", "critical")]
    assert grave == [], found.generate_report()


def test_search_finds_a_word_without_a_network_and_enter_opens_it(page, site):
    page.goto((site / "index.html").as_uri())
    field = page.locator("input.md-search__input")
    if not field.is_visible() or width(page) < 960:
        page.locator(".md-header label[for=__search]").first.click()
    field.click()
    page.keyboard.type("certificate", delay=10)
    results = page.locator(".md-search-result__item")
    results.first.wait_for()
    assert results.count() >= 2
    assert "certificate" in results.first.inner_text().lower()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"h=certificate"))
    assert "certificate" in page.locator(".md-content mark").first.inner_text().lower()


def test_colours_are_switched_and_stay(page, site):
    page.goto((site / "index.html").as_uri())
    before = page.locator("body").get_attribute("data-md-color-scheme")
    page.locator("label.md-header__button[title^=Switch]:visible").click()
    assert page.locator("body").get_attribute("data-md-color-scheme") != before
    page.locator("label.md-header__button[title^=Switch]:visible").click()
    assert page.locator("body").get_attribute("data-md-color-scheme") == before


def test_a_console_is_copied_as_its_commands_alone(page, site):
    page.goto((site / "index.html").as_uri())
    buttons = page.locator(".md-content .highlight .md-code__button")
    assert buttons.count() == page.locator(".md-content .highlight pre").count() >= 3
    console = page.locator(".language-console").first
    console.locator(".md-code__button").click()
    copied = page.evaluate("navigator.clipboard.readText()").strip().splitlines()
    assert [line for line in copied if line.strip()] == [
        "fastgrl link friends.csv -o model",
        "fastgrl recommend model --node ann -k 1",
    ]


def test_a_wide_table_scrolls_by_itself_and_takes_the_focus(page, site):
    page.goto((site / "results/paper/tables/table-links.html").as_uri())
    tables = page.locator(".md-typeset__scrollwrap")
    assert tables.count() >= 2
    for table in tables.all():
        assert table.evaluate("t => { t.focus(); return document.activeElement === t; }")
        assert table.evaluate("t => t.clientWidth <= innerWidth && t.scrollWidth > t.clientWidth")
