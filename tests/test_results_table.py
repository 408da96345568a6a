"""The results table of the README and of the page on accuracy is what the records of the full run say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("readme_table", ROOT / "benchmarks" / "readme_table.py")
readme_table = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(readme_table)

MARKED = [page for page in readme_table.PAGES if readme_table.BEGIN in page.read_text(encoding="utf-8")]


def between_markers(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    assert text.count(readme_table.BEGIN) == text.count(readme_table.END) == 1
    return text.split(readme_table.BEGIN)[1].split(readme_table.END)[0].strip("\n")


def test_the_page_on_accuracy_has_the_table():
    assert ROOT / "docs" / "accuracy.md" in MARKED


@pytest.mark.parametrize("page", MARKED, ids=lambda page: page.name)
def test_the_table_is_what_the_records_say(page):
    assert between_markers(page) == readme_table.compact_tables(), "python benchmarks/readme_table.py --write"


def test_every_row_has_as_many_cells_as_its_head():
    lines = [line for line in readme_table.compact_tables().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {6, 7}


def test_writing_changes_nothing_but_what_is_between_the_markers():
    page = f"before {readme_table.BEGIN} old {readme_table.END} after"
    assert readme_table.with_table(page, "new") == "before <!-- results -->\nnew\n<!-- /results --> after"
    assert readme_table.with_table("no markers", "new") == "no markers"
