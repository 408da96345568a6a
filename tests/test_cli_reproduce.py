"""The verb reproduce as people run it: again, interrupted, with mistakes, without what it needs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_cli import ESCAPE, PROGRAM, in_terminal

from fastgrl import experiment_commands, terminal
from fastgrl.cli import run
from fastgrl.experiments import runner
from fastgrl.experiments.plans import plan
from fastgrl.experiments.records import FILE, read_records
from fastgrl.experiments.runner import Event
from fastgrl.experiments.specs import load_spec
from fastgrl.options import PrintingOptions

WALK = ["reproduce", "table-links", "--only", "walk-32", "--dataset", "ppi", "--seeds", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A folder with one run on record, its report, and what a terminal received on the way."""
    folder = tmp_path_factory.mktemp("reproduced")
    (folder / "shown").write_text(in_terminal(*WALK, "-o", str(folder / "out")))
    return folder


@pytest.fixture
def place(finished, tmp_path, monkeypatch) -> Path:
    shutil.copytree(finished / "out", tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, *arguments: str, code: int = 2) -> str:
    assert run(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err
    return err


def test_a_terminal_of_eighty_columns_is_not_overrun(finished):
    shown = ESCAPE.sub("", (finished / "shown").read_text()).replace("\r", "\n")
    assert max(map(len, shown.replace(str(finished), "").splitlines())) <= 80
    assert re.search(r"^1 of 1  walk-32 on ppi, seed 0: roc_auc 84\.\d\d, \S+ s$", shown, re.MULTILINE)
    assert "performed 1 of 1 runs, 0 were on record" in " ".join(shown.split())


def test_a_record_and_the_report_say_the_same(finished):
    (record,) = read_records(finished / "out" / FILE)
    assert 0.84 < record["value"] < 0.85
    assert record["command"] == "fastgrl reproduce table-links --only walk-32 --dataset ppi --seeds 1 -o DIR"
    assert f"{100 * record['value']:.1f}" in (finished / "out" / "tables" / "table-links.md").read_text()


def test_one_json_object_says_what_was_done_and_where_it_is(place, capsys):
    assert run([*WALK, "-o", "out", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["performed"], found["on_record"]) == (1, 0, 1)
    assert (found["folder"], found["elsewhere"], found["failures"]) == ("out", [], {})
    paths = [found["page"], *found["tables"], *found["figures"]]
    assert all(Path(path).is_file() for path in paths)
    assert "out/tables/table-links.md" in found["tables"]


def test_what_is_on_record_is_not_run_again_and_needs_no_data(place, capsys, monkeypatch):
    monkeypatch.setenv("FASTGRL_DATA", str(place / "nothing"))
    monkeypatch.setattr(runner, "WORKER", (sys.executable, "-c", "raise SystemExit(1)"))
    before = (place / "out" / FILE).read_bytes()
    (place / "out" / "report.html").unlink()
    assert run([*WALK, "-o", "out"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^  performed +0 of 1 runs, 1 were on record$", shown, re.MULTILINE)
    assert "out/report.html" in shown
    assert (place / "out" / "report.html").is_file()
    assert (place / "out" / FILE).read_bytes() == before


def test_a_run_that_fails_is_told_of_and_the_code_is_one(place, capsys, monkeypatch):
    answer = (
        "import json, sys; sys.stdin.readline(); print(json.dumps({'error': 'no \\x1b[2J luck'}), flush=True)"
    )
    monkeypatch.setattr(runner, "WORKER", (sys.executable, "-I", "-S", "-c", answer))
    arguments = [*WALK[:-4], "--seeds", "2", "-o", "out"]
    assert run(arguments) == 1
    out, err = capsys.readouterr()
    assert err.startswith("error: 1 of 2 runs could not be performed:\nwalk-32 on ppi, seed 1: no")
    assert "1 of 1  walk-32 on ppi, seed 1: no" in out
    assert "\x1b" not in out + err
    assert run([*arguments, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert list(found["failures"]) == ["walk-32 on ppi, seed 1"]
    assert (found["runs"], found["performed"], found["on_record"]) == (2, 0, 1)


def test_a_failure_of_everything_writes_no_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "WORKER", (sys.executable, "-I", "-S", "-c", "raise SystemExit(3)"))
    assert run([*WALK, "-o", str(tmp_path / "out"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["page"], found["tables"]) == (None, [])
    assert not (tmp_path / "out" / "report.html").exists()


def test_control_c_is_one_line_and_the_folder_can_be_gone_on_with(finished, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(finished / "out", out)
    arguments = [*WALK[:-4], "--seeds", "3", "-o", str(out)]
    program = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with program:
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        while not children.read_text().split():
            assert program.poll() is None
            time.sleep(0.01)
        worker = int(children.read_text().split()[0])
        time.sleep(0.3)
        os.killpg(program.pid, signal.SIGINT)
        _, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (130, "error: interrupted\n")
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, 0)
        assert Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    assert read_records(out / FILE) == read_records(finished / "out" / FILE)
    assert run([*WALK, "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["performed"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tabel-links"], "nothing in the paper is called 'tabel-links'; did you mean table-links?"),
        (["all", "tabel-links"], "did you mean table-links?"),
        (["table-nodes", "--dataset", "croa"], "no dataset 'croa' is part of this; did you mean cora?"),
        (["table-nodes", "--dataset", "ppi"], "choose from citeseer, cora, pubmed"),
        (["table-nodes", "--only", "gnc"], "no method 'gnc' is part of this; did you mean gcn?"),
        (["all", "--only", "gcn", "--dataset", "ppi"], "nothing is to be run"),
        (["table-nodes", "--seeds", "0"], "--seeds must be a whole number of at least 1, got '0'"),
        (["table-nodes", "--threads", "x"], "--threads must be a whole number of at least 1, got 'x'"),
    ],
)
def test_mistyped_names_and_numbers_are_refused(arguments, words, tmp_path, capsys):
    assert words in refused(capsys, "reproduce", *arguments, "-o", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_folder_has_to_be_named(capsys):
    err = refused(capsys, "reproduce", "table-links")
    assert "-o" in err
    assert "see fastgrl reproduce --help" in err


def test_a_file_is_no_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("out.txt").write_text("mine")
    assert "'out.txt' is no folder" in refused(capsys, *WALK, "-o", "out.txt")
    assert Path("out.txt").read_text() == "mine"
    err = refused(capsys, *WALK, "-o", "out.txt/below", code=1)
    assert "could not be read: Not a directory" in err


def test_a_broken_record_is_named_with_its_file_and_line(place, capsys):
    with open("out/records.jsonl", "ab") as file:
        file.write(b"{oops\n")
    err = refused(capsys, *WALK, "-o", "out")
    assert err == "error: out/records.jsonl, line 2 is not JSON; take the line away and run again\n"


@pytest.mark.parametrize("missing", [["matplotlib"], ["jinja2"], ["matplotlib", "jinja2"]])
def test_a_report_that_cannot_be_drawn_is_one_line(missing, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(experiment_commands, "find_spec", lambda name: None if name in missing else True)
    err = refused(capsys, *WALK, "-o", str(tmp_path / "out"), code=1)
    assert err == f"error: a report needs {' and '.join(missing)}: pip install 'fastgrl[plots]'\n"


def test_a_method_without_its_packages_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "find_spec", lambda name: None if name == "torch" else True)
    err = refused(capsys, "reproduce", "table-nodes", "-o", str(tmp_path / "out"), code=1)
    assert re.fullmatch(r"error: \w+ needs torch: pip install 'fastgrl\[baselines\]'; .* --only\n", err)
    assert not (tmp_path / "out").exists()


def test_data_that_cannot_be_fetched_stops_before_anything_is_run(tmp_path, capsys, monkeypatch):
    def offline(name: str, **_: object) -> None:
        raise terminal.UnavailableError(f"{name} is not here, and there is no network")

    monkeypatch.setattr("fastgrl.datasets.load_dataset", offline)
    err = refused(capsys, *WALK, "-o", str(tmp_path / "out"), code=1)
    assert err == "error: ppi is not here, and there is no network\n"
    assert not (tmp_path / "out").exists()


def test_help_fits_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["reproduce", "--help-all"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("--only", "--dataset", "--seeds", "--quick", "--threads", "--json", "table-nodes", "all"):
        assert word in shown
    assert "records.jsonl" in shown


@pytest.mark.parametrize("quiet", [False, True])
def test_a_bar_is_shown_while_a_run_is_on_its_way_and_a_line_when_it_has_ended(quiet, capsys, monkeypatch):
    seen: list[object] = []

    @contextlib.contextmanager
    def bar(what: str, *, shown: bool):
        seen.append((what, shown))
        yield lambda done, total: seen.append((done, total))
        seen.append("closed")

    monkeypatch.setattr(terminal, "progress_bar", bar)
    first, second = plan([load_spec("table-links")], only=["walk-32"], datasets=["ppi"], seeds=2)
    events = [Event("begin", first, 1, 2), Event("progress", first, 1, 2, done=3, total=9)]
    events += [Event("end", first, 1, 2, record={"value": 0.84531, "seconds": 1.23456})]
    events += [Event("begin", second, 2, 2), Event("failed", second, 2, 2, reason="why\nat length")]
    with experiment_commands._telling(PrintingOptions(quiet=quiet)) as tell:
        for event in events:
            tell(event)
    titles = [f"{number} of 2 · walk-32 on ppi, seed {number - 1}" for number in (1, 2)]
    assert seen == [(titles[0], not quiet), (3, 9), "closed", (titles[1], not quiet), "closed"]
    lines = [
        "1 of 2  walk-32 on ppi, seed 0: roc_auc 84.53, 1.235 s",
        "2 of 2  walk-32 on ppi, seed 1: why",
    ]
    assert capsys.readouterr().out.splitlines() == ([] if quiet else lines)
