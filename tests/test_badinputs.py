"""Awkward and hostile inputs through the command line: what is right gets through, what is wrong is named.

Where a case says `embed`, its input is read by `inspect`, which reads in the same way and writes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import badinputs
import pytest
from badinputs import Case, Outcome, Server

from fastgrl.io import read

# Cases whose point is a command that does not exist yet, by that command.
WAITING = {
    "embed": {
        *("out_is_directory", "out_parent_is_file", "out_is_input", "out_name_too_long", "out_is_link"),
        *("file_size_limit", "interrupt", "kill_9", "four_at_once"),
    },
    "classify": {case.name for case in badinputs.cases() if case.category in ("labels", "features")},
    "recommend": {case.name for case in badinputs.cases() if case.category == "model"},
}
READABLE = [case for case in badinputs.cases() if not any(case.name in names for names in WAITING.values())]

# No network: the surroundings are at fault, not the input.
SURROUNDINGS = {"dataset_offline"}

needs_folder = pytest.mark.skipif(
    badinputs.folder() is None, reason="the folder of awkward inputs is not beside the checkout"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@needs_folder
@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.name)
def test_every_awkward_input_gets_what_a_user_should_get(case: Case, server: Server, tmp_path: Path):
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
        assert server.run(case, home, badinputs.as_inspection(case), names).stdout == outcome.stdout


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


@needs_folder
def test_no_case_is_forgotten():
    names = [case.name for case in badinputs.cases()]
    waiting = set.union(*WAITING.values())
    assert waiting <= set(names)
    assert {case.name for case in READABLE} | waiting == set(names)
    assert len(READABLE) > 90


@needs_folder
def test_the_cases_that_are_read_as_inspections_ask_for_nothing_else():
    for case in READABLE:
        assert badinputs.as_inspection(case)[0] in ("inspect", "datasets")
        assert "-o" not in badinputs.as_inspection(case)
