"""The demo: what it prints, what it writes, and a page that says the same as its JSON."""

from __future__ import annotations

import base64
import json
import re
import shlex
import struct
import sys
import zlib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from test_reports_page import Elements

import fastgrl
import fastgrl.io
from fastgrl.cli import run
from fastgrl.demonstration import plane
from fastgrl.reports.demo_drawings import picture
from fastgrl.reports.demo_page import Pictures, demo_page

COMMANDS = [("Look.", "fastgrl inspect digits.csv")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "a" / "b"


@pytest.fixture(scope="module")
def shown(folder):
    """What a person sees, and the files beside the page."""
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(["demo", "-o", str(folder)]) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def html(folder, shown):
    return (folder / "demo.html").read_text("utf-8")


@pytest.fixture(scope="module")
def value(html):
    """The figures of the page, as they are downloaded from it."""
    [link] = [a for a in Elements(html).named("a") if a.get("download")]
    return json.loads(base64.b64decode(link["href"].partition(",")[2]))


@pytest.fixture(scope="module")
def pictures():
    digits = fastgrl.load_dataset("digits")
    places = np.random.default_rng(0).normal(size=(len(digits.y), 2))
    return Pictures(places, digits.y, digits.X.toarray().astype(int).reshape(-1, 8, 8))


def text(html):
    return " ".join("".join(Elements(html).text).split())


def section(html, name):
    return html[html.index(f'<section id="{name}"') :].partition("</section>")[0]


def test_what_is_written_can_be_read_again(folder, shown, capsys):
    names = ["demo.html", "digits-classes", "digits-classes.csv", "digits-embedding.csv"]
    names += ["digits-features.csv", "digits-labels.csv", "digits-links", "digits.csv"]
    assert sorted(path.name for path in folder.iterdir()) == names
    graph = fastgrl.io.read(folder / "digits.csv").graph
    assert (graph.num_nodes, graph.num_edges) == (1797, 6309)
    vectors = np.loadtxt(folder / "digits-embedding.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(
        vectors[:, 1:].astype("f4"), fastgrl.load(folder / "digits-links").embedding_
    )
    for following in re.findall(r"fastgrl (\w+ \S+digits\S+.*)", shown):
        assert run(shlex.split(following)) == 0
    assert {"best missing links of", "explained", "nodes"} <= set(
        re.findall("best missing links of|explained|nodes", capsys.readouterr().out)
    )


def test_files_are_overwritten_only_by_force(folder, shown, capsys):
    before = (folder / "digits.csv").read_bytes(), (folder / "digits-embedding.csv").read_bytes()
    assert run(["demo", "-o", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err
    assert run(["demo", "-o", str(folder), "--force", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["page"] == str(folder / "demo.html")
    assert value["files"][:2] == [str(folder / "digits.csv"), str(folder / "digits-embedding.csv")]
    assert all(Path(file).exists() for file in value["files"])
    assert before == ((folder / "digits.csv").read_bytes(), (folder / "digits-embedding.csv").read_bytes())


def test_the_screen_ends_with_the_page_and_is_one_screen(folder, shown):
    lines = shown.splitlines()
    assert len(lines) <= 23
    assert lines[-1].endswith(str(folder / "demo.html"))
    assert re.search(r"ROC-AUC +9\d\.\d\d %", shown)
    assert "captured energy" in shown
    assert f"fastgrl inspect {folder}/digits.csv" in shown


def test_without_a_folder_nothing_is_written_and_it_is_said_how(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["demo"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert "fastgrl demo -o digits" in capsys.readouterr().out.splitlines()[-1]


def test_without_jinja2_there_is_a_note_and_all_but_the_page(tmp_path, monkeypatch, capsys):
    for name in ("jinja2", "markupsafe", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    assert run(["demo", "-o", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == "note: the page of the demo needs jinja2: pip install 'fastgrl[plots]'\n"
    assert json.loads(out)["page"] is None
    assert sorted(path.name for path in tmp_path.iterdir())[:1] == ["digits-classes"]


def test_the_page_needs_no_matplotlib(value, pictures, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "</html>" in demo_page(value, pictures, COMMANDS)


def test_figures_in_words_are_those_of_the_json(html, value):
    said, links, classes = text(html), value["links"], value["classes"]
    for words in (
        f"{value['nodes']:,} small pictures",
        f"a graph of {value['edges']:,} edges",
        f"took {value['total_seconds']:.2f} seconds together",
        f"{100 * value['same_numeral']:.1f} % of the digits whose vectors are nearest",
        f"{links['best']['same_numeral']} of the best {links['best']['count']}",
        f"ROC-AUC {100 * links['test']['roc_auc']:.2f} %",
        f"average precision {100 * links['test']['average_precision']:.2f} %",
        f"{100 * classes['accuracy']:.2f} % of {classes['others']:,} digits",
        f"{100 * links['certificate']['captured_energy']:.2f} %",
        f"{100 * value['certificate']['captured_energy']:.2f} %",
        f"{100 * value['map']['same_numeral']:.1f} % of the nearest ten",
        f"with seed {value['seed']}",
        f"fastgrl {fastgrl.__version__}",
    ):
        assert words in said


def test_tables_hold_the_numbers_of_the_figures(html, value):
    numbers = [float(a["data-number"]) for _, a in Elements(html).tags if "data-number" in a]
    listed = [*value["singular_values"], *value["links"]["singular_values"]]
    listed += [count for row in value["classes"]["confusion"] for count in row]
    listed += [share for row in value["classes"]["explained"]["pixels"] for share in row]
    listed += [each["same_numeral"] for each in value["map"]["of_each_numeral"]]
    assert set(listed) <= set(numbers)
    confusion = Elements(section(html, "classes"))
    cells = [int(a["data-number"]) for a in confusion.named("td")]
    assert cells == [count for row in value["classes"]["confusion"] for count in row]


def test_cards_show_the_links_the_mistakes_and_the_reasons(html, value):
    links, classes = value["links"], value["classes"]
    assert [link["numerals"] for link in links["of_each_numeral"]] == [[n, n] for n in range(10)]
    for name, nodes in {
        "links": [link[end] for link in links["of_each_numeral"] for end in ("node", "target")],
        "classes": [mistake["node"] for mistake in classes["mistakes"]],
        "explained": [share["node"] for share in classes["explained"]["labelled"]],
    }.items():
        drawn = [image["alt"] for image in Elements(section(html, name)).named("img")]
        assert {f"digit {node}" for node in nodes} <= {alt.partition(",")[0] for alt in drawn}
    unlike = links["first_unlike"]
    assert f"{unlike['node']} and {unlike['target']}" in text(html)


def test_the_figures_themselves_add_up(value):
    classes, why = value["classes"], value["classes"]["explained"]
    counts = np.array(classes["confusion"])
    assert counts.sum() == classes["others"]
    assert np.trace(counts) / counts.sum() == pytest.approx(classes["accuracy"])
    assert all(counts[one["is"], one["said"]] > 0 and one["is"] != one["said"] for one in classes["mistakes"])
    assert why["bias"] + sum(why["hops"]) == pytest.approx(why["score"], abs=1e-6)
    assert why["from_labels"] + why["from_pseudo_labels"] == pytest.approx(why["score"], abs=1e-6)
    assert value["links"]["best"] == {"count": 100, "same_numeral": 100}
    assert value["map"]["same_numeral"] > 0.9


def test_places_of_missing_links_are_those_among_all_pairs(folder, value):
    model = fastgrl.load(folder / "digits-links")
    u, v = np.triu_indices(1797, 1)
    joined = fastgrl.load_dataset("digits").graph.to_scipy().toarray()[u, v] != 0
    scores = model.score_pairs(np.column_stack([u[~joined], v[~joined]]))
    for link in (*value["links"]["recommended"], value["links"]["first_unlike"]):
        assert link["place"] == 1 + np.count_nonzero(scores > link["score"] + 1e-6)


def test_every_digit_is_on_the_map_as_its_numeral(html):
    wide = re.search(r'<svg class="map".*?</svg>', html, re.DOTALL)[0]
    marks = re.findall(r'<text class="digit-(\d)" x="([^"]*)" y="([^"]*)">(\d+)</text>', wide)
    assert [int(numeral) for numeral, *_ in marks] == list(range(10))
    for numeral, x, y, glyphs in marks:
        assert set(glyphs) == {numeral}
        assert len(x.split()) == len(y.split()) == len(glyphs)
    assert sum(len(glyphs) for *_, glyphs in marks) == 1797


def test_the_map_is_the_same_each_time_and_knows_no_class():
    vectors = np.random.default_rng(0).normal(size=(200, 5))
    first = plane(vectors)
    np.testing.assert_array_equal(first, plane(vectors))
    assert first.shape == (200, 2)
    assert np.isfinite(first).all()


def test_a_picture_holds_the_pixels(pictures):
    pixels = pictures.pixels[0]
    data = base64.b64decode(picture(pixels).partition(",")[2])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (8, 8)
    start = data.index(b"IDAT") + 4
    rows = np.frombuffer(zlib.decompress(data[start:]), np.uint8).reshape(8, 17)[:, 1:]
    np.testing.assert_array_equal(rows[:, 1::2], pixels * 255 // 16)
    assert (rows[:, ::2] == 0).all()


def test_the_page_is_one_small_file_that_asks_for_nothing(html):
    elements = Elements(html)
    addresses = [v for _, a in elements.tags for k, v in a.items() if k in ("src", "href", "xlink:href")]
    kinds = ("#", "data:application/json;base64,", "data:image/png;base64,")
    assert all(address.startswith(kinds) for address in addresses)
    [policy] = [a["content"] for a in elements.named("meta") if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'")
    assert "http" not in html.replace("http-equiv", "")
    assert "url(" not in html
    assert len(html.encode()) < 600_000
    ids = [a["id"] for _, a in elements.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert {address[1:] for address in addresses if address.startswith("#")} <= set(ids)


def test_figures_have_words_and_pictures_have_names(html):
    elements = Elements(html)
    drawings = elements.named("svg")
    assert len(drawings) == 5
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in drawings)
    assert all(a["alt"] for a in elements.named("img"))


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '" onload="x', "{{ 7 * 7 }}"])
def test_values_stay_text(value, pictures, hostile):
    changed = value | {"matrix": hostile, "versions": {hostile: hostile}}
    html = demo_page(changed, pictures, [(hostile, hostile)])
    elements = Elements(html)
    assert len(elements.named("script")) == 1
    assert not [name for _, attributes in elements.tags for name in attributes if name.startswith("on")]
    assert text(html).count(hostile) == 5


def test_no_digit_is_typed_into_the_template():
    template = resources.files("fastgrl.reports").joinpath("demo.html").read_text("utf-8")
    words = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|<[^>]*>", "", template, flags=re.DOTALL)
    assert not re.search(r"\d", words)


def test_what_the_page_offers_to_type_works_in_its_folder(folder, html, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    commands = re.findall(r"<dd><code>fastgrl (.*?)</code></dd>", html)
    assert len(commands) == 6
    for command in commands:
        assert run(shlex.split(command)) == 0, command
    assert capsys.readouterr().err == ""
    assert len(Path("my-links.csv").read_text().splitlines()) == 1 + 3 * 1797
