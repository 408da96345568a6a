from __future__ import annotations

import re
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_cases import demo_records, record, relabelled

from fastgrl.errors import ArgumentError
from fastgrl.experiments.records import FILE, read_records
from fastgrl.experiments.specs import load_spec, load_specs
from fastgrl.reports.evidence import certificate_grid, command_grid, machine_grid
from fastgrl.reports.grids import MISSING, dataset_grid, score_grid, speed_grid
from fastgrl.reports.latex import escaped
from fastgrl.reports.summary import select, summarise
from fastgrl.reports.tables import QUICK, dataset_sheet, latex, markdown, table_sheet
from fastgrl.reports.verdicts import headline, reproductions, unreached, verdicts

LINKS, NODES = load_spec("table-links"), load_spec("table-nodes")
HOSTILE = [
    "<script>alert(1)</script>",
    "a|b & c_d # ~100 % ^ {x} \\input{y} $z$",
    "_hidden\n| new | row |",
    "[option] *star*",
    'λ ± 2 × Â → "q" ‘r’ 日本 🙂 \ud800 \x00\x1b',
]


def summary_of(records, spec=LINKS):
    return summarise(select(records), spec)


def with_values(values, spec=LINKS, *, method=None, dataset=0, **fields):
    method = spec.methods[0] if method is None else spec.method(method)
    return [
        record(spec, method, spec.datasets[dataset], seed) | {"value": value, "cpu_seconds": None} | fields
        for seed, value in enumerate(values)
    ]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=7), st.lists(st.floats(1e-3, 1e4), min_size=7, max_size=7)
)
def test_cells_are_means_sample_deviations_and_medians(values, times):
    records = with_values(values)
    records = [r | {"seconds": t, "seconds_total": 2 * t} for r, t in zip(records, times, strict=False)]
    cell = summary_of(records).rows[0].cells[0]
    assert cell.mean == pytest.approx(100 * np.mean(values))
    assert cell.seconds == pytest.approx(np.median(times[: len(values)]))
    assert cell.seconds_total == pytest.approx(2 * cell.seconds)
    assert cell.difference == pytest.approx(cell.mean - 99.4)
    if len(values) == 1:
        assert cell.deviation is None
    else:
        assert cell.deviation == pytest.approx(100 * np.std(values, ddof=1), abs=1e-9)


@given(st.permutations(range(6)))
def test_the_order_of_different_runs_does_not_matter(order):
    records = with_values([0.5, 0.6, 0.7]) + with_values([0.4, 0.3, 0.9], method="node2vec")
    assert summary_of([records[i] for i in order]) == summary_of(records)


def test_a_run_made_again_takes_the_place_of_the_old_one():
    first, again = with_values([0.5])[0], with_values([0.75])[0]
    assert summary_of([first, again]).rows[0].cells[0].mean == 75
    assert len(summary_of([first, again]).rows[0].cells[0].records) == 1


def test_records_of_curves_are_in_no_table():
    record_of_curve = with_values([0.5])[0] | {"curve": {"over": "rank", "x": [2], "y": [0.5]}}
    assert not summary_of([record_of_curve]).measured


def test_quick_and_full_runs_are_never_mixed():
    told = LINKS.methods[0].settings_for(LINKS.datasets[0].name, quick=True)
    full = with_values([0.5])
    quick = [r | {"quick": True, "seed": 9, "settings": told} for r in with_values([0.75])]
    mixed = select(full + quick)
    assert (mixed.quick, mixed.left_out, len(mixed.records)) == (False, 1, 1)
    alone = summary_of(quick)
    assert alone.quick
    assert alone.rows[0].cells[0].mean == 75
    assert QUICK in markdown(table_sheet(alone))
    assert QUICK in latex(table_sheet(alone))
    assert QUICK not in markdown(table_sheet(summary_of(full + quick)))


def test_runs_with_other_settings_than_the_specification_has_now_are_left_out():
    old = with_values([0.5, 0.5, 0.5], settings={"learning_rate": 7})
    new = with_values([0.9])
    cell = summary_of(old + new).rows[0].cells[0]
    assert (cell.mean, len(cell.records)) == (90, 1)
    assert not summary_of([r | {"revision": 9} for r in new]).measured


def test_no_records_are_refused_in_a_clear_sentence():
    with pytest.raises(ArgumentError, match="no records to report; run `fastgrl reproduce` first"):
        select([])


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "0.5"])
def test_what_is_not_a_number_is_not_a_result(value):
    cell = summary_of(with_values([value], seconds=value)).rows[0].cells[0]
    assert cell.mean is None
    assert cell.seconds is None


def test_speed_is_compared_on_the_same_processor_only():
    ours = with_values([0.9], method="log-diffusion-defaults", seconds=2.0)
    theirs = with_values([0.9], seconds=50.0)
    assert summary_of(ours + theirs).rows[0].speedup == pytest.approx(25)
    elsewhere = [r | {"machine": r["machine"] | {"cpu": "another"}} for r in theirs]
    assert summary_of(ours + elsewhere).rows[0].speedup is None
    assert "25.0×" in [e.text for e in speed_grid(summary_of(ours + theirs)).rows[0]]


def test_the_speedup_of_a_row_is_the_geometric_mean():
    records = [
        r
        for d in range(4)
        for method, seconds in (("log-diffusion", 2.0), ("log-diffusion-defaults", 1.0))
        for r in with_values([0.9], method=method, dataset=d, seconds=seconds)
    ]
    records += [r for d in range(4) for r in with_values([0.9], dataset=d, seconds=float(10**d))]
    row = summary_of(records).rows[0]
    assert row.speedup == pytest.approx(10**1.5)
    assert row.speedup_chosen == pytest.approx(10**1.5 / 2)


def test_time_that_other_programs_took_does_not_count():
    disturbed = with_values([0.9], seconds=50.0, seconds_total=60.0, cpu_seconds=20.0)
    cell = summary_of(disturbed).rows[0].cells[0]
    assert (cell.seconds, cell.seconds_total) == (20, 20)


def test_ours_is_the_first_method_of_that_kind():
    assert summary_of(demo_records()).ours.method.name == "log-diffusion"
    assert summary_of(demo_records(), NODES).ours.method.name == "co-ridge"


def test_the_best_measured_of_every_column_is_bold():
    summary = summary_of(demo_records())
    for column in range(4):
        means = [row.cells[column].mean for row in summary.rows]
        bold = [row.cells[column].mean for row in summary.rows if row.cells[column].best]
        assert bold
        assert max(means) in bold
        assert all(f"{mean:.2f}" == f"{max(means):.2f}" for mean in bold)
    assert f"**{max(means):.2f}**" in markdown(table_sheet(summary))


@pytest.mark.parametrize(("value", "answer"), [(0.999, r"yes, by \+0.50"), (0.99, r"no, by −0.40")])
def test_verdicts_say_who_is_ahead_of_whom_and_by_how_much(value, answer):
    summary = summary_of(with_values([value], method="log-diffusion"))
    sentence, *others = verdicts(summary)
    assert re.search(
        rf"^FB: ours ahead .*: {answer} \((ahead of|behind) Watch Your Step, published, 99.40\)", sentence
    )
    assert all("not known, ours has not been measured" in other for other in others)
    assert f"on {int(value > 0.994)} of 1 dataset." in headline(summary)


def test_a_published_number_above_all_measured_is_named():
    assert unreached(summary_of(with_values([0.993]))) == (
        "FB: the published 99.40 of Watch Your Step is above every number measured here.",
    )
    assert unreached(summary_of(with_values([0.995]))) == ()


@pytest.mark.parametrize(
    ("method", "value", "words"),
    [
        ("gcn", 0.8101, r"reproduced \(−0.49\)"),
        ("gcn", 0.80, "below by 1.50"),
        ("gat", 0.8201, r"reproduced \(−1.19\)"),
        ("gat", 0.80, "below by 3.20"),
        ("gat", 0.88, "above by 4.80"),
    ],
)
def test_reproduction_is_judged_by_the_tolerance_of_the_method(method, value, words):
    [sentence] = reproductions(summary_of(with_values([value], NODES, method=method), NODES))
    assert re.search(f"Cora {words}", sentence)


@pytest.mark.parametrize("spec", [LINKS, NODES], ids=lambda spec: spec.name)
def test_every_measured_number_comes_from_records(spec):
    records = demo_records(seeds=2)
    scaled = [r | {"value": 0.9 * r["value"], "seconds": 3 * r["seconds"] + i} for i, r in enumerate(records)]
    before, after = summary_of(records, spec), summary_of(scaled, spec)
    pairs = zip(score_grid(before).rows, score_grid(after).rows, strict=True)
    for old, new in pairs:
        assert all(a.text != b.text for a, b in zip(old[2::3], new[2::3], strict=True))
        assert [a.text for a in old[1::3]] == [b.text for b in new[1::3]]  # what was published stays
    assert verdicts(before) != verdicts(after)
    assert speed_grid(before) != speed_grid(after)


def test_missing_runs_leave_dashes_and_nothing_else():
    records = [r for r in demo_records(seeds=1) if r["dataset"] == "ppi" and r["method"] != "wys"]
    grid = score_grid(summary_of(records))
    assert [entry.text for entry in grid.rows[0][2::3]] == [MISSING] * 4
    assert all(row[2].text == MISSING and row[2].value is None for row in grid.rows)
    assert all(row[11].text != MISSING for row in grid.rows[1:])


def table_rows(text):
    tables, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(len(re.findall(r"(?<!\\)\|", line)) - 1)
        elif rows:
            tables, rows = [*tables, rows], []
    return tables


@pytest.mark.parametrize("label", ["plain", *HOSTILE])
def test_rows_of_markdown_tables_have_equally_many_columns(label):
    spec = relabelled(LINKS, label)
    text = markdown(table_sheet(summary_of(demo_records(seeds=1), spec)))
    text += "\n" + markdown(dataset_sheet(select(demo_records(seeds=1)), [spec]))
    tables = table_rows(text)
    assert [set(rows) for rows in tables] == [{13}, {15}, {8}]
    assert "<script" not in text


def leftovers(text):
    """What is left of LaTeX when everything harmless is taken away."""
    harmless = (
        r"""\\[A-Za-z]+\{\} | \\[&%$#_{}] | \$(\\[A-Za-z]+|-)\$ | \\[`'^~=."uHvcrk]\{[A-Za-z]\} | \{[\[*]\}"""
    )
    return re.findall(r"[&%$#_{}\\~^<>|]", re.sub(harmless, "", text, flags=re.VERBOSE))


@given(st.text(max_size=60))
def test_escaped_text_is_ascii_without_anything_special(text):
    assert escaped(text).isascii()
    assert leftovers(escaped(text)) == []
    assert "[" not in escaped(text).replace("{[}", "")
    assert escaped("a" + text) == "a" + escaped(text)


def test_escaping_keeps_what_people_read():
    assert escaped("Ångström & Erdős") == r"\r{A}ngstr\"{o}m \& Erd\H{o}s"
    assert escaped("± 5 % of ~10, λΩ − 3 × 2") == (
        r"$\pm$ 5 \% of \textasciitilde{}10, $\lambda$$\Omega$ $-$ 3 $\times$ 2"
    )


@pytest.mark.parametrize("label", ["plain", *HOSTILE])
def test_latex_tables_are_whole(label):
    spec = relabelled(LINKS, label)
    text = latex(table_sheet(summary_of(demo_records(seeds=1), spec)))
    assert text.isascii()
    bare = re.sub(r"\\[{}%&$#_]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("\\begin{table*}") == bare.count("\\end{table*}") == 2
    for tabular in re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", bare, flags=re.DOTALL):
        lines = [
            line for line in tabular[1].splitlines() if line.endswith(r"\\") and "multicolumn" not in line
        ]
        assert lines
        assert {line.count("&") + 1 for line in lines} == {len(tabular[0])}


def test_datasets_stand_beside_the_papers_counts_and_differences_are_bold():
    counts = {"nodes": 3852, "edges": 19349, "all_edges": 38705, "test": 19356}
    records = with_values([0.5], dataset=3, counts=counts)
    [row] = dataset_grid(select(records), load_specs()).rows
    texts = [entry.text for entry in row]
    assert texts[:7] == ["PPI", "3,852", "3,852", "same", "20,881", "38,705", "+17,824"]
    assert [entry.strong for entry in row] == [False] * 6 + [True, False]
    assert texts[7] == "19,349 to learn from · 19,356 to test"


def test_certificates_show_the_least_favourable_fit_and_survive_null():
    records = with_values([0.5, 0.6, 0.7], method="log-diffusion")
    records[0]["certificate"] = None
    records[1]["certificate"] |= {"captured": 0.5, "captured_error": 0.01}
    records[2]["certificate"] = {"captured": 0.75, "worst_residual": 0.25, "gap": 0.001, "complete": False}
    [row] = certificate_grid(select(records), [LINKS]).rows
    assert [entry.text for entry in row[3:]] == ["2", "0.25", "50.00 %", "1.00 %", "0.001", "1 of 2"]
    none = [r | {"certificate": None} for r in records]
    assert certificate_grid(select(none), [LINKS]).rows == ()


def test_commands_settings_and_machines_are_those_of_the_records():
    told = {"window": 5, "seed": 3, "rates": [0.1, 0.2]}
    records = with_values([0.5, 0.6], chosen=told, command="do it")
    records[1] |= {"versions": {"numpy": "9.9"}, "git": None}
    [row] = command_grid(select(records), LINKS).rows
    assert [row[place].text for place in (2, 3, 5)] == ["0, 1", "do it", "window 5, rates 0.1 0.2"]
    machines = machine_grid(select(records))
    facts = {row[0].text: row[1].text for row in machines.rows}
    assert facts["numpy"] == "2.1.0 (1 run), 9.9 (1 run)"
    assert facts["cpu"] == "AMD EPYC 7B13"


def test_records_with_next_to_nothing_in_them_are_reported():
    bare = {"key": "0", "task": "links", "method": "wys", "dataset": "ppi", "seed": 0, "metric": "roc_auc"}
    bare |= {"value": 0.5, "seconds": 1.0}
    chosen = select([bare])
    assert statistics.fmean([summarise(chosen, LINKS).rows[0].cells[3].mean]) == 50
    assert machine_grid(chosen).rows == ()
    assert dataset_grid(chosen, [LINKS]).rows == ()
    assert markdown(table_sheet(summarise(chosen, replace(LINKS, methods=LINKS.methods[:1]))))


def test_reports_load_nothing_that_draws_or_trains():
    unwanted = "('matplotlib', 'jinja2', 'torch')"
    program = f"import fastgrl.reports, sys; print([m for m in {unwanted} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_committed_tables_are_what_the_committed_records_say():
    folder = Path(__file__).parents[1] / "docs" / "results" / "paper"
    chosen = select(read_records(folder / FILE))
    for spec in (LINKS, NODES):
        text = markdown(table_sheet(summarise(chosen, spec)))
        assert (folder / "tables" / f"{spec.name}.md").read_text(encoding="utf-8") == text
