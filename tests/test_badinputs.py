"""Awkward and hostile inputs through the command line: what is right gets through, what is wrong is named.

Every edge list is embedded as its case says, and inspected, which reads in the same way and counts.
"""

from __future__ import annotations

import csv
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import badinputs
import pytest
from badinputs import Case, Outcome, Server

from fastgrl.io import read

CASES = badinputs.cases()
MODELS = [case for case in CASES if case.category == "model"]
CLASSIFIED = [case for case in CASES if badinputs.arguments_of(case)[0] == "classify"]
PROCESSES = {case.name: case for case in CASES if case.lazy == "big_graph"}
SIMPLE = [case for case in CASES if case not in MODELS + CLASSIFIED and case.name not in PROCESSES]
# What is wrong with the place of an output is for a command that has one.
READABLE = [case for case in SIMPLE if case.category != "output"]
EMBEDDED = [case for case in SIMPLE if badinputs.arguments_of(case)[0] == "embed"]

# No network, or no room on the disk: the surroundings are at fault, not the input.
SURROUNDINGS = {"dataset_offline", "file_size_limit"}

needs_folder = pytest.mark.skipif(
    badinputs.folder() is None, reason="the folder of awkward inputs is not beside the checkout"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def home(case: Case, tmp_path: Path) -> Iterator[Path]:
    """Where a case is run; folders of pytest are for their owner only."""
    with tempfile.TemporaryDirectory() if case.needs == "non-root" else nullcontext(tmp_path) as top:
        yield Path(top) / case.name


def without_seconds(text: str) -> str:
    """A quote's time is measured, and so never quite the same."""
    return re.sub(r'"seconds": [0-9.e-]+', "", text)


@pytest.fixture(scope="module")
def model(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return badinputs.fit_model(server, tmp_path_factory.mktemp("models") / "fitted")


@needs_folder
@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.name)
def test_every_awkward_input_is_inspected_as_a_user_should_get_it(case: Case, server: Server, tmp_path: Path):
    home = tmp_path / case.name
    names = badinputs.prepare(case, home)
    before = badinputs.contents(home)
    outcome = server.run(case, home, badinputs.as_inspection(case), names)
    check_always(case, outcome)
    assert badinputs.contents(home) == before
    assert not list(tmp_path.rglob("*_MARKER")), "code in the data was run"
    if outcome.exit:
        check_clean_error(case, outcome)
    else:
        check_success(case, outcome)
        check_facts(case, outcome, home)
    if case.repeat_equal:
        again = server.run(case, home, badinputs.as_inspection(case), names)
        assert without_seconds(again.stdout) == without_seconds(outcome.stdout)


@needs_folder
@pytest.mark.parametrize("case", EMBEDDED, ids=lambda case: case.name)
def test_every_awkward_edge_list_is_embedded_or_refused(case: Case, server: Server, home: Path):
    names = badinputs.prepare(case, home)
    before = badinputs.contents(home)
    outcome = server.run(case, home, badinputs.arguments_of(case), names)
    check_always(case, outcome)
    after = badinputs.contents(home)
    if outcome.exit:
        check_clean_error(case, outcome)
        assert after == before
        return
    check_success(case, outcome)
    written = {"out.csv", "target.csv"} & {name for name in after if after[name] != before.get(name)}
    assert {name: after[name] for name in after if name not in written} == {
        name: before[name] for name in before if name not in written
    }
    if "{out}" in case.command:
        check_embedding(home / "out.csv", case)
    if case.repeat_equal:
        first = (home / "out.csv").read_bytes()
        (home / "out.csv").unlink()
        assert server.run(case, home, badinputs.arguments_of(case), names).exit == 0
        assert (home / "out.csv").read_bytes() == first


@needs_folder
@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.name)
def test_a_damaged_model_is_refused_and_a_sound_one_read(
    case: Case, server: Server, model: Path, tmp_path: Path
):
    home = tmp_path / case.name
    names = badinputs.prepare(case, home, model)
    before = badinputs.contents(home)
    outcome = server.run(case, home, badinputs.arguments_of(case), names)
    check_always(case, outcome)
    assert badinputs.contents(home) == before
    assert not list(tmp_path.rglob("*_MARKER")), "code in the data was run"
    (check_clean_error if outcome.exit else check_success)(case, outcome)


@needs_folder
@pytest.mark.parametrize("case", CLASSIFIED, ids=lambda case: case.name)
def test_awkward_labels_and_features_are_learnt_from_or_refused(case: Case, server: Server, tmp_path: Path):
    home = tmp_path / case.name
    names = badinputs.prepare(case, home)
    before = badinputs.contents(home)
    outcome = server.run(case, home, [*badinputs.arguments_of(case), "--json"], names)
    check_always(case, outcome)
    after = badinputs.contents(home)
    if outcome.exit:
        check_clean_error(case, outcome)
        assert after == before
        return
    check_success(case, outcome)
    assert {name for name in after if after[name] != before.get(name)} == {"out.csv"}
    found = json.loads(outcome.stdout)
    assert {key: found[key] for key in case.facts} == case.facts
    check_classes(home / "out.csv", set(found["class_names"]))


@needs_folder
def test_features_are_joined_by_id(server: Server, tmp_path: Path):
    written = []
    for case in CLASSIFIED:
        if case.name in ("features_good", "features_other_order"):
            home = tmp_path / case.name
            names = badinputs.prepare(case, home)
            assert server.run(case, home, badinputs.arguments_of(case), names).exit == 0
            written.append((home / "out.csv").read_bytes())
    assert len(written) == 2
    assert written[0] == written[1]


def check_classes(path: Path, classes: set[str]) -> None:
    """One row per node, in the order of the edges, with a class and its probability."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["node", "class", "probability"]
    assert [row[0] for row in rows] == [f"n{i}" for i in range(12)]
    assert {row[1] for row in rows} <= classes
    assert all(0 <= float(row[2]) <= 1 for row in rows)


def check_always(case: Case, outcome: Outcome) -> None:
    both = outcome.stdout + outcome.stderr
    assert outcome.exit >= 0, "ended by a signal"
    assert "Traceback" not in both
    assert "internal error" not in both
    assert "_MARKER" not in both
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", both)
    assert len(outcome.stderr.encode()) < 4096
    assert outcome.seconds < case.limits.get("seconds", 60)
    assert outcome.rss_mb < case.limits.get("rss_mb", 1500)


def check_clean_error(case: Case, outcome: Outcome) -> None:
    assert "CLEAN_ERROR" in case.allowed, outcome.stderr
    assert outcome.exit == (1 if case.name in SURROUNDINGS else 2), outcome.stderr
    assert outcome.stdout == ""
    assert 1 <= len(outcome.stderr.splitlines()) <= 8
    for pattern in case.says:
        assert re.search(pattern, outcome.stderr, re.IGNORECASE), (pattern, outcome.stderr)


def check_success(case: Case, outcome: Outcome) -> None:
    assert "OK" in case.allowed or ("WARN+OK" in case.allowed and outcome.stderr), outcome
    assert "error" not in outcome.stderr


def check_facts(case: Case, outcome: Outcome, home: Path) -> None:
    if case.stdout == "closed":
        return
    found = json.loads(outcome.stdout)
    expected = {key: value for key, value in case.facts.items() if key in found}
    assert {key: found[key] for key in expected} == expected
    if "ids" in case.facts:
        arguments = badinputs.as_inspection(case)
        weight = arguments[arguments.index("--weight") + 1] if "--weight" in arguments else None
        graph = read(home / Path(case.files["edges"]).name, weight=weight).graph
        assert list(map(str, graph.node_ids)) == case.facts["ids"]


def check_embedding(path: Path, case: Case) -> None:
    """One row per node, ids as they were, every number finite, as many columns as the rank."""
    csv.field_size_limit(1 << 24)
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    rank = int(badinputs.arguments_of(case)[badinputs.arguments_of(case).index("--rank") + 1])
    assert header == ["id", *(f"e{k}" for k in range(rank))]
    assert all(len(row) == rank + 1 and all(math.isfinite(float(x)) for x in row[1:]) for row in rows)
    if "nodes" in case.facts:
        assert len(rows) == case.facts["nodes"]
    if "ids" in case.facts:
        assert [row[0] for row in rows] == case.facts["ids"]


@pytest.fixture(scope="module")
def lone_run(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[float, bytes]:
    """How long embedding the large graph takes, and what it gives."""
    case = PROCESSES["interrupt"]
    home = tmp_path_factory.mktemp("lone") / case.name
    names = badinputs.prepare(case, home)
    outcome = server.run(case, home, badinputs.arguments_of(case), names)
    assert outcome.exit == 0, outcome.stderr
    return outcome.seconds, (home / "out.csv").read_bytes()


@needs_folder
def test_a_disk_that_fills_up_leaves_nothing_behind(server: Server, tmp_path: Path):
    case = PROCESSES["file_size_limit"]
    home = tmp_path / case.name
    names = badinputs.prepare(case, home)
    outcome = server.run(case, home, badinputs.arguments_of(case), names)
    check_always(case, outcome)
    check_clean_error(case, outcome)
    assert set(badinputs.contents(home)) == {"edges.txt"}


@needs_folder
@pytest.mark.parametrize("moment", PROCESSES["interrupt"].signal["at"] if PROCESSES else [])
def test_ctrl_c_is_answered_at_any_moment(moment, server: Server, lone_run, tmp_path: Path):
    case, (seconds, whole) = PROCESSES["interrupt"], lone_run
    home = tmp_path / case.name
    names = badinputs.prepare(case, home)
    outcome = server.run(case, home, badinputs.arguments_of(case), names, stop_after=moment * seconds)
    assert outcome.seconds < 2
    if outcome.exit == 0:  # this run was quicker than the first
        assert (home / "out.csv").read_bytes() == whole
        return
    assert (outcome.exit, outcome.stdout, outcome.stderr) == (130, "", "error: interrupted\n")
    assert set(badinputs.contents(home)) == {"edges.txt"}


@needs_folder
def test_a_kill_leaves_no_part_of_a_file_and_the_next_run_works(server: Server, lone_run, tmp_path: Path):
    case, (seconds, whole) = PROCESSES["kill_9"], lone_run
    home = tmp_path / case.name
    names = badinputs.prepare(case, home)
    for moment in case.signal["at"]:
        server.run(case, home, badinputs.arguments_of(case), names, stop_after=moment * seconds)
        left = badinputs.contents(home)
        assert left.get("out.csv", whole) == whole
        assert all(name.startswith(".fastgrl-") for name in set(left) - {"out.csv", "edges.txt"})
    (home / "out.csv").unlink(missing_ok=True)
    assert server.run(case, home, badinputs.arguments_of(case), names).exit == 0
    assert (home / "out.csv").read_bytes() == whole


@needs_folder
def test_four_runs_at_once_write_one_whole_file(lone_run, tmp_path: Path):
    case = PROCESSES["four_at_once"]
    home = tmp_path / case.name
    names = badinputs.prepare(case, home)
    command = [sys.executable, "-m", "fastgrl", *(a.format(**names) for a in badinputs.arguments_of(case))]
    running = [subprocess.Popen(command, cwd=home, stdout=-3, stderr=-1) for _ in range(case.parallel)]
    errors = [process.communicate()[1].decode() for process in running]
    # One that began when another had finished would find the file there, and say so.
    assert all(code == 0 or "--force" in error for code, error in zip(codes(running), errors, strict=True))
    assert 0 in codes(running)
    assert (home / "out.csv").read_bytes() == lone_run[1]
    assert set(badinputs.contents(home)) == {"edges.txt", "out.csv"}


def codes(running: list[subprocess.Popen[bytes]]) -> list[int]:
    return [process.returncode for process in running]


@needs_folder
def test_no_case_is_forgotten():
    tested = {case.name for case in READABLE + EMBEDDED + MODELS + CLASSIFIED} | set(PROCESSES)
    assert tested == {case.name for case in CASES}
    assert set(PROCESSES) == {"file_size_limit", "interrupt", "kill_9", "four_at_once"}


@needs_folder
def test_the_cases_that_are_read_as_inspections_ask_for_nothing_else():
    for case in READABLE:
        assert badinputs.as_inspection(case)[0] in ("inspect", "datasets")
        assert "-o" not in badinputs.as_inspection(case)
