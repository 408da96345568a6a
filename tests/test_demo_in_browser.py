"""The demo's page as a reader has it: opened from a folder, without any network, in a real browser."""

from __future__ import annotations

import pytest
from browsers import SCREENS, browser, offline, untroubled

from fastgrl.cli import run

pytestmark = pytest.mark.slow

__all__ = ["browser"]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    assert run(["demo", "-o", str(folder), "--quiet"]) == 0
    return (folder / "demo.html").as_uri()


@pytest.fixture(params=SCREENS, ids=str)
def opened(request, browser, address):
    with offline(browser, request.param) as window, untroubled(window) as page:
        page.goto(address)
        yield page


def open_all(page):
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


def test_the_page_does_not_scroll_sideways_and_figures_are_seen_whole(opened):
    width = opened.viewport_size["width"]
    drawings = opened.locator("figure svg:visible")
    assert drawings.count() == 3
    for number in range(3):
        box = drawings.nth(number).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["height"] > 150
    open_all(opened)
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_the_map_is_seen_on_one_screen_and_its_marks_are_apart(opened):
    box = opened.locator("svg.map:visible").bounding_box()
    assert box["height"] < 900
    glyphs = "text => new Set([...Array(20).keys()].map(i => text.getStartPositionOfChar(i).x)).size"
    assert opened.locator("svg.map:visible .marks text").first.evaluate(glyphs) > 10


def test_pictures_of_digits_are_drawn(opened):
    images = opened.locator("img.digit")
    assert images.count() > 30
    assert images.evaluate_all("all => all.every(i => i.complete && i.naturalWidth === 8)")
    assert images.evaluate_all("all => all.every(i => i.getBoundingClientRect().width >= 40)")


def test_tables_can_be_sorted(opened):
    open_all(opened)
    numbers = "cells => cells.map(c => Number(c.dataset.number))"
    cells = opened.locator("#map tbody tr > :nth-child(2)")
    opened.locator("#map thead th").nth(1).locator("button").click()
    found = cells.evaluate_all(numbers)
    assert len(found) == 10
    assert found == sorted(found)


def test_nothing_hinders_a_reader_who_uses_other_means(opened):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe comes with a package of its own"
    )
    open_all(opened)
    found = axe.Axe().run(opened)
    assert found.violations_count == 0, found.generate_report()


def test_the_figures_can_be_downloaded_without_a_network(opened):
    with opened.expect_download() as waiting:
        opened.locator("a[download]").click()
    assert waiting.value.suggested_filename == "demo.json"


def test_printed_it_keeps_its_figures(browser, address):
    page = browser.new_page()
    page.goto(address)
    assert len(page.pdf(format="A4")) > 50_000
    page.emulate_media(media="print")
    assert page.locator("svg.map:visible").count() == 1
    page.close()
