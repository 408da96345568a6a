"""The page as a reader has it: opened from a folder, without any network, in a real browser."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest
from browsers import SCREENS, browser, offline, untroubled
from report_cases import demo_records

from fastgrl.experiments.records import FILE, read_records
from fastgrl.experiments.specs import load_specs
from fastgrl.reports import write_report

pytestmark = pytest.mark.slow

__all__ = ["browser"]


@pytest.fixture(scope="module", params=["made-up", "reproduction-quick"])
def address(request, tmp_path_factory):
    """The page of made-up records, and that of `make reproduce-quick` once it was run."""
    made = Path(__file__).parents[1] / request.param / "report.html"
    if made.exists():
        return made.as_uri()
    return write_report(demo_records(), load_specs(), tmp_path_factory.mktemp("report")).page.as_uri()


@pytest.fixture(params=SCREENS, ids=str)
def opened(request, browser, address):
    with offline(browser, request.param) as window, untroubled(window) as page:
        page.goto(address)
        yield page


def column(page, number):
    cells = page.locator(f"#table-links tbody tr > :nth-child({number + 1})")
    values = cells.evaluate_all("cells => cells.map(c => c.dataset.number ?? c.dataset.text ?? null)")
    return [value if value is None or number == 0 else float(value) for value in values]


def head(page, number):
    return page.locator("#table-links thead tr:last-child th").nth(number)


def is_sorted(values, *, downwards):
    known = [value for value in values if value is not None]
    return values == sorted(known, reverse=downwards) + [None] * (len(values) - len(known))


def test_tables_are_sorted_by_click(opened):
    before = column(opened, 1)
    head(opened, 1).locator("button").click()
    assert is_sorted(column(opened, 1), downwards=False)
    assert head(opened, 1).get_attribute("aria-sort") == "ascending"
    head(opened, 1).locator("button").click()
    assert is_sorted(column(opened, 1), downwards=True)
    assert head(opened, 1).get_attribute("aria-sort") == "descending"
    assert None in before
    assert sorted(map(str, column(opened, 1))) == sorted(map(str, before))


def test_tables_are_sorted_by_keyboard_and_one_column_at_a_time(opened):
    head(opened, 1).locator("button").press("Enter")
    head(opened, 2).locator("button").press("Space")
    assert is_sorted(column(opened, 2), downwards=False)
    sorts = opened.locator("#table-links th[aria-sort]").evaluate_all("t => t.map(x => x.ariaSort)")
    assert [sort for sort in sorts if sort != "none"] == ["ascending"]
    head(opened, 0).locator("button").press("Enter")
    names = column(opened, 0)
    assert names[0].lower() == min(name.lower() for name in names)


def test_rows_stay_together_when_sorted(opened):
    rows = "rows => rows.map(row => [...row.cells].map(c => c.textContent).join('|')).sort()"
    before = opened.locator("#table-links tbody tr").evaluate_all(rows)
    head(opened, 4).locator("button").click()
    assert opened.locator("#table-links tbody tr").evaluate_all(rows) == before


def test_figures_are_seen_whole_and_the_page_does_not_scroll_sideways(opened):
    width = opened.viewport_size["width"]
    drawings = opened.locator("figure svg:visible")
    assert drawings.count() == 3
    for number in range(3):
        box = drawings.nth(number).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["width"] > 0.5 * min(width, 800)
        assert box["height"] > 150
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_wide_tables_scroll_in_a_region_that_takes_the_focus(opened):
    regions = opened.locator("[role=region]:visible")
    assert regions.count() >= 6
    assert regions.first.evaluate("r => { r.focus(); return document.activeElement === r; }")
    assert regions.evaluate_all("all => all.every(r => r.clientWidth <= innerWidth)")


def test_the_records_can_be_downloaded_without_a_network(opened, address):
    beside = Path(url2pathname(urlparse(address).path)).with_name(FILE)
    count = len(read_records(beside)) if beside.exists() else len(demo_records())
    with opened.expect_download() as waiting:
        opened.locator("a[download]").click()
    assert waiting.value.suggested_filename == "records.jsonl"
    with open(waiting.value.path()) as file:
        assert len(file.readlines()) == count


def test_nothing_hinders_a_reader_who_uses_other_means(opened):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe comes with a package of its own"
    )
    opened.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    found = axe.Axe().run(opened)
    assert found.violations_count == 0, found.generate_report()


def test_an_injected_script_does_not_run(browser, tmp_path):
    records = [
        r | {"command": "<img src=x onerror=alert(1)><script>alert(1)</script>"}
        for r in demo_records(seeds=1)
    ]
    report = write_report(records, load_specs()[:1], tmp_path)
    report.page.write_text(
        report.page.read_text().replace("</main>", "<script>document.title = 'x'</script></main>")
    )
    page = browser.new_page()
    alerts = []
    page.on("dialog", lambda dialog: alerts.append(dialog.message))
    page.goto(report.page.as_uri())
    assert page.title() != "x"  # not even one that escaping would have let through
    assert alerts == []
