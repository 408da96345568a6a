"""`fastgrl import` as people run it, and every other verb on what it wrote."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastgrl as fg
from fastgrl.cli import run

TEXT = "source,target\nann,bob\nbob,eve\neve,ann\nbob,ann\ntom,tom\n"


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "friends.csv").write_text(TEXT)
    return tmp_path


def said(capsys, *arguments: str) -> str:
    assert run(arguments) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *arguments: str, code: int = 2) -> str:
    assert run(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_import_says_what_was_understood_and_what_was_written(place, capsys):
    out = said(capsys, "import", "friends.csv", "friends")
    assert "delimiter       comma" in out
    assert "edges           4" in out
    assert "repeats         1" in out
    assert "fastgrl inspect friends" in out
    assert fg.read_graph("friends").node_ids.tolist() == ["ann", "bob", "eve", "tom"]
    assert sorted(os.listdir()) == ["friends", "friends.csv"]


def test_json_has_the_same_facts(place, capsys):
    found = json.loads(said(capsys, "import", "friends.csv", "friends", "--json"))
    expected = {
        "file": "friends.csv",
        "folder": "friends",
        "nodes": 4,
        "edges": 4,
        "self_loops": 1,
        "repeats": 1,
    }
    assert expected.items() <= found.items()
    assert (found["rows"], found["weighted"], found["directed"]) == (5, False, False)
    sizes = sum(path.stat().st_size for path in Path("friends").iterdir() if path.name != "graph.json")
    assert found["bytes"] == sizes


def test_options_are_those_of_reading(place, capsys):
    (place / "w.txt").write_text("# so\na b 2\nb c 3\n")
    said(capsys, "import", "w.txt", "w", "--directed", "--weight", "3", "--quiet")
    graph = fg.read_graph("w")
    assert (graph.directed, graph.weights.tolist()) == (True, [2.0, 3.0])
    (place / "nodes.csv").write_text("id\nann\nbob\neve\ntom\nzoe\n")
    said(capsys, "import", "friends.csv", "all", "--nodes", "nodes.csv", "--threads", "1")
    assert fg.read_graph("all").num_nodes == 5


def test_notes_go_to_stderr_unless_quiet(place, capsys):
    (place / "w.csv").write_text("source,target,weight\na,b,1\na,b,2\n")
    assert run(["import", "w.csv", "w"]) == 0
    assert "weights were added up" in capsys.readouterr().err
    assert run(["import", "w.csv", "w", "--force", "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_standard_input_can_be_imported(place):
    command = [sys.executable, "-m", "fastgrl", "import", "-", "friends", "--json"]
    done = subprocess.run(command, input=TEXT.encode(), capture_output=True, check=True)
    assert json.loads(done.stdout)["edges"] == 4
    assert fg.read_graph("friends").num_edges == 4


def test_what_is_there_is_kept(place, capsys):
    said(capsys, "import", "friends.csv", "friends")
    before = {path.name: path.read_bytes() for path in Path("friends").iterdir()}
    assert "already exists; --force" in refused(capsys, "import", "friends.csv", "friends")
    assert {path.name: path.read_bytes() for path in Path("friends").iterdir()} == before
    said(capsys, "import", "friends.csv", "friends", "--force", "--directed")
    assert fg.read_graph("friends").directed
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    assert "never replaced" in refused(capsys, "import", "friends.csv", "mine", "--force")
    assert "not a folder" in refused(capsys, "import", "friends.csv", "friends.csv", "--force")
    assert "cannot go to standard output" in refused(capsys, "import", "friends.csv", "-")
    assert "need not be imported again" in refused(capsys, "import", "friends", "other")
    assert sorted(os.listdir()) == ["friends", "friends.csv", "mine"]


def test_mistakes_are_said_in_a_line(place, capsys):
    assert "did you mean 'friends.csv'?" in refused(capsys, "import", "freinds.csv", "friends")
    assert "make it first" in refused(capsys, "import", "friends.csv", "no/where")
    assert "--max-memory" in refused(capsys, "import", "friends.csv", "friends", "--max-memory", "much")
    (place / "bad.csv").write_text("a,b\nc\n")
    assert "bad.csv, line 2" in refused(capsys, "import", "bad.csv", "friends")
    assert "ids alone" in refused(capsys, "import", "friends.csv", "friends", "--max-memory", "1kB", code=1)
    assert sorted(os.listdir()) == ["bad.csv", "friends.csv"]


def test_a_folder_that_is_no_graph_is_named(place, capsys):
    Path("other").mkdir()
    assert "without graph.json" in refused(capsys, "inspect", "other")
    said(capsys, "import", "friends.csv", "friends")
    assert "delimiter cannot be chosen" in refused(capsys, "inspect", "friends", "--delimiter", ",")
    Path("friends/indptr.i64").write_bytes(b"")
    assert "indptr.i64" in refused(capsys, "embed", "friends", "-o", "e.csv")


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Path:
    """The same graph as edges.csv and as the folder `stored`; its ids come in order in both."""
    place = tmp_path_factory.mktemp("pair")
    more = np.random.default_rng(3).integers(0, 90, (240, 2)).tolist()
    edges = [(i, i + 1) for i in range(89)] + [(a, b) for a, b in more if a != b]
    lines = "".join(f"n{a:03},n{b:03}\n" for a, b in edges)
    (place / "edges.csv").write_text("source,target\n" + lines)
    (place / "new.csv").write_text("source,target\nn003,n050\nn007,x1\n")
    (place / "labels.csv").write_text(
        "node,label\n" + "".join(f"n{i:03},{'ab'[i > 44]}\n" for i in range(0, 90, 3))
    )
    (place / "features.csv").write_text(
        "node,x,y\n" + "".join(f"n{i:03},{i / 90},{i % 7}\n" for i in range(90))
    )
    (place / "pairs.csv").write_text("n000,n050\nn003,n004\n")
    for name in ("edges", "new"):
        folder = {"edges": "stored", "new": "stored-new"}[name]
        assert run(["import", str(place / f"{name}.csv"), str(place / folder), "-q", "--json"]) == 0
    return place


def without_times(text: str) -> str:
    text = re.sub(r'"(seconds|file|edges_file)": ("[^"]*"|[0-9.e-]+|\{[^}]*\})', "", text)
    return re.sub(r'"layout": \{[^}]*\}', "", text)


def both(pair, capsys, *arguments: str) -> list[str]:
    """What a command prints for the edge list and for the folder; EDGES and OUT are put in."""
    found = []
    for edges, new, mark in (("edges.csv", "new.csv", "1"), ("stored", "stored-new", "2")):
        words = {"EDGES": str(pair / edges), "NEW": str(pair / new)}
        filled = [words.get(word, word.replace("@", mark)) for word in arguments]
        capsys.readouterr()
        assert run(filled) == 0, capsys.readouterr().err
        out = capsys.readouterr().out
        found.append(re.sub(r"(?<=[a-z])[12]\b", "@", without_times(out)))
    return found


@pytest.mark.parametrize(
    ("design", "endings"), [("log-diffusion", ["csv"]), ("degree-walk", ["parquet", "npz", "npy"])]
)
def test_embed_writes_the_same_bytes_for_a_folder(pair, tmp_path, capsys, monkeypatch, design, endings):
    monkeypatch.chdir(tmp_path)
    for ending in endings:
        both(pair, capsys, "embed", "EDGES", "-o", f"e@.{ending}", "--rank", "8", "--design", design)
        assert Path(f"e1.{ending}").read_bytes() == Path(f"e2.{ending}").read_bytes()


def test_link_and_its_verbs_are_the_same_for_a_folder(pair, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    both(pair, capsys, "link", "EDGES", "-o", "model@", "--rank", "8", "--no-select")
    for verb in (
        ["score", "model@", "--pairs", str(pair / "pairs.csv"), "-o", "-"],
        ["recommend", "model@", "--node", "n005", "-k", "3"],
        ["update", "model@", "--edges", "NEW", "--json"],
    ):
        one, other = both(pair, capsys, *verb)
        assert one == other
    models = [fg.load(name) for name in ("model1", "model2")]
    assert models[0].left_.tobytes() == models[1].left_.tobytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "links", "EDGES", "--random-split", "--no-select", "--rank", "8", "--json"],
        ["inspect", "EDGES", "--json"],
        ["estimate", "EDGES", "--json"],
    ],
)
def test_figures_are_the_same_for_a_folder(pair, capsys, arguments):
    one, other = both(pair, capsys, *arguments)
    keep = re.compile(
        r'"(roc_auc|average_precision|nodes|edges|self_loops|components|median|mean|passes)": [^,\n]*'
    )
    assert keep.findall(one)
    assert [match.group() for match in keep.finditer(one)] == [
        match.group() for match in keep.finditer(other)
    ]


def test_classify_and_its_verbs_are_the_same_for_a_folder(pair, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = ["--labels", str(pair / "labels.csv"), "--features", str(pair / "features.csv")]
    both(pair, capsys, "classify", "EDGES", *files, "-o", "model@", "--predictions", "p@.csv", "--no-select")
    assert Path("p1.csv").read_bytes() == Path("p2.csv").read_bytes()
    for verb in (
        ["predict", "model@", "-o", "-"],
        ["explain", "model@", "--node", "n005"],
    ):
        one, other = both(pair, capsys, *verb)
        assert one == other


@pytest.mark.slow
def test_evaluate_nodes_is_the_same_for_a_folder(pair, capsys):
    files = ["--labels", str(pair / "labels.csv"), "--features", str(pair / "features.csv")]
    how = ["--random-split", "--no-select", "--json"]
    one, other = both(pair, capsys, "evaluate", "nodes", "EDGES", *files, *how)
    accuracy = re.compile(r'"accuracy": [^,\n]*')
    assert accuracy.findall(one) == accuracy.findall(other) != []
