"""How well links are predicted, by `evaluate links` and in Python."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from badinputs import small_graph

import fastgrl as fg
from fastgrl.cli import run
from fastgrl.evaluation import evaluate_links, plain, random_question, whole_graph
from fastgrl.io.reading import read
from fastgrl.options import DESIGNS

PROMISED = {
    *("task", "dataset", "design", "seed", "validation", "test", "chosen", "seconds"),
    "peak_memory_bytes",
}


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.csv").write_text(small_graph())
    return tmp_path


def said(capsys, *arguments: str) -> str:
    """What a command that goes well prints."""
    assert run(arguments) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("design", DESIGNS)
def test_an_evaluation_has_the_promised_figures(design, place, capsys):
    more = ["--design", design, "--rank", "6", "--no-select", "--json"]
    found = json.loads(said(capsys, "evaluate", "links", "edges.csv", *more))
    assert found.keys() >= PROMISED
    assert (found["task"], found["dataset"], found["design"]) == ("links", "edges.csv", design)
    assert {"roc_auc", "average_precision"} <= found["test"].keys()
    assert "roc_auc" in found["validation"]
    assert {"select", "fit", "score"} <= found["seconds"].keys()
    assert ("dot" in found) == (design == "log-diffusion")
    assert ("both_ways" in found) == (design in ("walk", "as-released"))


def test_repeats_are_runs_of_consecutive_seeds_and_their_mean(place, capsys):
    more = ["--no-select", "--rank", "6", "--seed", "3", "--json"]
    found = json.loads(said(capsys, "evaluate", "links", "edges.csv", "--repeat", "3", *more))
    runs = found["repeats"]
    assert [run["seed"] for run in runs] == [3, 4, 5]
    scores = [run["test"]["roc_auc"] for run in runs]
    assert found["test"]["roc_auc"] == pytest.approx(np.mean(scores))
    assert found["test"]["roc_auc_std"] == pytest.approx(np.std(scores, ddof=1))
    alone = json.loads(said(capsys, "evaluate", "links", "edges.csv", *more))
    assert alone["test"] == runs[0]["test"]


def test_a_dataset_is_tested_on_its_own_split_with_the_published_window(capsys):
    found = json.loads(
        said(capsys, "evaluate", "links", "ppi", "--design", "degree-walk", "--no-select", "--json")
    )
    assert (found["split"], found["nodes"], found["test_pairs"]) == ("official", 3852, 2 * 19356)
    assert found["chosen"]["window"] == 5
    assert 0.80 < found["test"]["roc_auc"] < 0.90


def test_a_random_split_of_a_dataset_is_of_all_its_edges():
    ppi = fg.load_dataset("ppi")
    graph = whole_graph(ppi)
    assert graph.num_edges == ppi.counts["all_edges"]
    question = random_question(ppi, seed=1)
    loops = graph.num_self_loops
    assert len(question.positives) == len(question.negatives) == round(0.2 * (graph.num_edges - loops))
    assert not question.graph.has_edges(*question.positives.T).any()
    assert not graph.has_edges(*question.negatives.T).any()


def test_an_evaluation_in_python_takes_any_graph():
    graph = read(io.BytesIO(small_graph().encode())).graph
    found = evaluate_links(graph, fg.LinkPredictor(select=False, n_components=6), metric="hits@5", seed=1)
    assert found["dataset"] is None
    assert 0 <= found["test"]["hits@5"] <= 1
    assert json.loads(json.dumps(plain(found), allow_nan=False)) == found


@pytest.mark.parametrize(
    ("edges", "words"),
    [("a,b\nb,c\n", "too few edges"), ("a,b\nb,c\nc,a\n", "too few pairs without an edge")],
)
def test_a_graph_that_cannot_be_split_is_refused(edges, words, place, capsys):
    (place / "edges.csv").write_text(edges)
    assert run(["evaluate", "links", "edges.csv"]) == 2
    assert words in capsys.readouterr().err
