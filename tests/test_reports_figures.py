from __future__ import annotations

import struct
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from report_cases import demo_records, one_dataset, relabelled

from fastgrl.errors import MissingExtraError
from fastgrl.experiments.specs import load_spec
from fastgrl.reports.curves import described, plot_grid, plot_of
from fastgrl.reports.figures import COLUMN, DPI, WIDE, drawn
from fastgrl.reports.summary import select

NAMES = ["figure-time", "figure-depth", "figure-rank"]
SMALL = {name: one_dataset(name, methods=1) for name in NAMES}


def plot(name, records=None, spec=None):
    return plot_of(select(demo_records(seeds=2) if records is None else records), spec or SMALL[name])


def width_of(png):
    return struct.unpack(">I", png[16:20])[0]


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_whole_files_of_the_width_asked_for(name):
    png, svg = drawn(plot(name), width=COLUMN)
    assert png.startswith(b"\x89PNG")
    assert width_of(png) == round(COLUMN * DPI)
    root = ElementTree.fromstring(svg)
    assert root.get("width") == f"{72 * COLUMN:g}pt"
    assert b"<dc:date>" not in svg


@pytest.mark.parametrize("name", NAMES)
def test_the_same_records_give_the_same_bytes_and_others_do_not(name):
    records = demo_records(seeds=2)
    first = drawn(plot(name, records), width=COLUMN)
    assert drawn(plot(name, list(reversed(records))), width=COLUMN) == first
    for record in records:
        record["value"] -= 0.05
        if record["curve"]:
            record["curve"] = record["curve"] | {"y": [y - 0.05 for y in record["curve"]["y"]]}
    png, svg = drawn(plot(name, records), width=COLUMN)
    assert png != first[0]
    assert svg != first[1]


def test_a_quick_run_is_marked_in_the_figure():
    quick, full = (plot("figure-depth", demo_records(seeds=1, quick=quick)) for quick in (True, False))
    assert quick.quick
    plain = drawn(full, width=COLUMN)
    assert drawn(quick, width=COLUMN) != plain
    assert drawn(replace(quick, quick=False), width=COLUMN) == plain


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("label", ["_hidden $\\frac$ <b>&", "日本 🙂 \x00 \ud800", "long " * 40])
def test_any_label_can_be_drawn(name, label):
    _, svg = drawn(plot(name, spec=relabelled(SMALL[name], label)), width=COLUMN)
    ElementTree.fromstring(svg)


def test_one_point_and_one_run_can_be_drawn():
    records = [r for r in demo_records(seeds=1) if (r["method"], r["dataset"]) == ("wys", "ppi")]
    lonely = plot_of(select(records), load_spec("figure-time"))
    assert len(lonely.points) == 1
    drawn(lonely, width=WIDE)


def settings_now():
    import matplotlib

    # Asking for the backend would choose one.
    return {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}


def test_nothing_of_matplotlib_is_changed():
    import matplotlib

    with matplotlib.rc_context({"font.size": 13}):
        before, loaded = settings_now(), "matplotlib.pyplot" in sys.modules
        drawn(plot("figure-depth"), width=COLUMN)
        assert settings_now() == before
        assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_the_users_own_settings_do_not_change_the_bytes():
    import matplotlib

    usual = drawn(plot("figure-depth"), width=COLUMN)
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert drawn(plot("figure-depth"), width=COLUMN) == usual


def test_curves_are_means_and_deviations_over_seeds():
    records = [r for r in demo_records(seeds=2) if r["method"] == "rank-paper" and r["dataset"] == "ppi"]
    for record, shift in zip(records, (0.0, 0.1), strict=True):
        record["curve"] = {
            "over": "rank",
            "x": [2, 4],
            "y": [0.5 + shift, 0.7],
            "separate": {"x": [4], "y": [0.8]},
        }
    [curve] = plot_of(select(records), load_spec("figure-rank")).curves
    assert curve.x == (2, 4)
    assert curve.y == pytest.approx((55, 70))
    assert curve.deviation == pytest.approx((50**0.5, 0))
    assert curve.apart == ((4, pytest.approx(80)),)


def test_broken_curves_lose_only_what_is_broken():
    records = [r for r in demo_records(seeds=1) if r["method"] == "rank-paper" and r["dataset"] == "ppi"]
    records[0]["curve"] = {"over": "rank", "x": [2, 4, 8], "y": [0.5, None, float("nan")]}
    [curve] = plot_of(select(records), load_spec("figure-rank")).curves
    assert curve.x == (2,)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_figure_is_also_in_words_or_in_its_table(name):
    found = plot(name, spec=load_spec(name))
    text, grid = described(found), plot_grid(found)
    for item in (*found.points, *found.curves):
        assert f"{item.method.label} on {item.dataset.label}: " in text
    assert len(grid.rows) == len(found.points) + len(found.curves)
    assert all(len(row) == len(grid.columns) == len(grid.right) for row in grid.rows)


def test_without_matplotlib_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"^figures need matplotlib: pip install 'fastgrl\[plots\]'$"):
        drawn(plot("figure-depth"))
