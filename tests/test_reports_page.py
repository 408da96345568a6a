from __future__ import annotations

import base64
import json
import re
import sys
from html.parser import HTMLParser
from importlib import resources

import pytest
from report_cases import demo_records, one_dataset, relabelled

from fastgrl.errors import ArgumentError, MissingExtraError
from fastgrl.experiments.specs import load_spec
from fastgrl.reports import write_report

TABLE, FIGURE = one_dataset("table-nodes"), one_dataset("figure-depth")


class Elements(HTMLParser):
    """Every start tag with its attributes, and the text outside scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self._inside = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = tag if tag in ("script", "style") else self._inside

    def handle_endtag(self, tag):
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data):
        if not self._inside:
            self.text.append(data)

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def records():
    return demo_records(seeds=2)


@pytest.fixture(scope="module")
def written(records, tmp_path_factory):
    return write_report(records, [TABLE, FIGURE], tmp_path_factory.mktemp("report") / "new" / "folder")


def page(report):
    return report.page.read_text("utf-8")


def contents(report):
    files = (report.page, *report.tables, *report.figures)
    return {path.name: path.read_bytes() for path in files}


def test_all_files_of_a_report_are_there(written):
    folder = written.page.parent
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert names == [
        *sorted(
            f"figures/figure-depth{width}.{kind}" for width in ("", "-column") for kind in ("png", "svg")
        ),
        "report.html",
        *("tables/datasets.md", "tables/datasets.tex", "tables/table-nodes.md", "tables/table-nodes.tex"),
    ]
    assert sorted(contents(written)) == sorted(name.rpartition("/")[2] for name in names)
    assert all(contents(written).values())


def test_the_same_records_give_the_same_files(records, written, tmp_path):
    assert contents(write_report(records, [TABLE, FIGURE], tmp_path)) == contents(written)


def test_a_changed_record_changes_table_figure_and_page(records, written, tmp_path):
    changed = [dict(record) for record in records]
    for record in changed[:1] + [r for r in changed if r["method"] == "depth-paper"][:1]:
        record["value"] = 0.5
        if record["curve"]:
            record["curve"] = record["curve"] | {"y": [0.5] * len(record["curve"]["x"])}
    new, old = contents(write_report(changed, [TABLE, FIGURE], tmp_path)), contents(written)
    same = {name for name in new if new[name] == old[name]}
    assert same == {"datasets.md", "datasets.tex"}


def test_the_page_asks_for_nothing_from_outside(written):
    html = Elements(page(written))
    addresses = [
        v for _, a in html.tags for k, v in a.items() if k in ("src", "href", "xlink:href", "action")
    ]
    assert all(address.startswith(("#", "data:application/x-ndjson;base64,")) for address in addresses)
    [policy] = [a["content"] for a in html.named("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"|http-equiv', "", page(written))
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", page(written))


def test_links_lead_to_places_and_ids_are_given_once(written):
    html = Elements(page(written))
    ids = [a["id"] for _, a in html.tags if "id" in a]
    assert len(ids) == len(set(ids))
    links = {v[1:] for _, a in html.tags for k, v in a.items() if k.endswith("href") and v.startswith("#")}
    assert links <= set(ids)
    clips = set(re.findall(r"url\(#([\w-]+)\)", page(written)))
    assert clips <= set(ids)


def test_the_records_can_be_taken_from_the_page(records, written):
    [link] = [a for a in Elements(page(written)).named("a") if a.get("download")]
    data = base64.b64decode(link["href"].partition(",")[2]).decode()
    assert [json.loads(line)["key"] for line in data.splitlines()] == [record["key"] for record in records]


def test_figures_have_a_name_made_of_their_numbers(written):
    drawings = [a for a in Elements(page(written)).named("svg") if a.get("role") == "img"]
    assert len(drawings) == 2
    assert all(re.search(r"the paper on Cora: \d\d\.\d\d at 0", a["aria-label"]) for a in drawings)


def test_no_digit_is_typed_into_the_template():
    template = resources.files("fastgrl.reports").joinpath("page.html").read_text("utf-8")
    words = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|<[^>]*>", "", template, flags=re.DOTALL)
    assert not re.search(r"\d", words)


def test_every_measured_number_on_the_page_follows_the_records(records, written, tmp_path):
    scaled = [record | {"value": 0.9 * record["value"]} for record in records]
    new = page(write_report(scaled, [TABLE], tmp_path))
    figures = re.compile(r'data-number="[\d.]+">(?:<strong>)?([\d.]+)(?:</strong>)? <span class="detail">')
    before, after = figures.findall(page(written)), figures.findall(new)
    assert len(before) == len(after) == len(TABLE.methods)
    assert all(old != now for old, now in zip(before, after, strict=True))


@pytest.mark.parametrize(
    "label", ["<script>alert(1)</script>", '" onload="x', "</style>&amp;\ud800\x00", "{{ 7 * 7 }}"]
)
def test_labels_and_values_stay_text(records, tmp_path, label):
    hostile = [
        record
        | {
            "command": label,
            "chosen": {label: label},
            "machine": record["machine"] | {"cpu": label},
            "counts": {"nodes": 5, label: 7},
            "started": label,
        }
        for record in records
    ]
    report = write_report(hostile, [relabelled(TABLE, label), relabelled(FIGURE, label)], tmp_path)
    html = Elements(page(report))
    assert len(html.named("script")) == 1
    assert len(html.named("style")) == 1
    assert not [name for _, attributes in html.tags for name in attributes if name.startswith("on")]
    assert label.replace("\ud800", "?").replace("\x00", "") in "".join(html.text).replace("\x00", "")


def test_a_quick_run_says_so_on_top(tmp_path):
    quick = page(write_report(demo_records(seeds=1, quick=True), [TABLE], tmp_path))
    assert quick.index("Quick run: not the published protocol.") < quick.index("<h2>Summary")


def test_quick_records_beside_full_ones_are_counted_and_left_out(records, written, tmp_path):
    both = records + demo_records(seeds=1, quick=True)
    text = page(write_report(both, [TABLE], tmp_path))
    assert "Quick run" not in text
    assert f"never mixed with full ones: {len(both) - len(records)} records" in text


def test_what_has_no_records_is_left_out(records, tmp_path):
    links = [record for record in records if record["task"] == "links"]
    report = write_report(links, [TABLE, one_dataset("table-links")], tmp_path)
    assert [path.name for path in report.tables][:2] == ["table-links.md", "table-links.tex"]
    assert "Node classification" not in page(report)
    assert report.figures == ()


def test_bad_input_is_refused_and_nothing_is_written(records, tmp_path):
    target = tmp_path / "out"
    with pytest.raises(ArgumentError, match="no records to report"):
        write_report([], [TABLE], target)
    with pytest.raises(ArgumentError, match="records belongs to 'table-nodes'"):
        write_report([record for record in records if record["task"] == "links"], [TABLE], target)
    assert not target.exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArgumentError, match="is a file; give the name of a folder"):
        write_report(records, [TABLE], tmp_path / "file")


def test_a_report_is_written_whole_or_not_at_all(records, tmp_path, monkeypatch):
    old = contents(write_report(records[:4], [TABLE], tmp_path))
    (tmp_path / "tables" / "datasets.tex").unlink()
    (tmp_path / "tables" / "datasets.tex").mkdir()
    with pytest.raises(ArgumentError, match="is a folder"):
        write_report(records, [TABLE], tmp_path)
    assert all((tmp_path / name).read_bytes() == old[name] for name in ("report.html",))
    assert not list(tmp_path.rglob(".fastgrl-*"))


def test_without_jinja2_one_line_names_the_extra(records, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"^the report needs jinja2: pip install 'fastgrl\[plots\]'$"):
        write_report(records, [TABLE], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_first_column_of_every_table_heads_its_row(written):
    html = Elements(page(written))
    assert len([a for a in html.named("th") if a.get("scope") == "row"]) > len(TABLE.methods)
    assert all(a["tabindex"] == "0" and a["aria-label"] for _, a in html.tags if a.get("role") == "region")
    assert load_spec("table-nodes").title in html.text
