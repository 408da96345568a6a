"""What a run measures is what the library measures elsewhere, and its surroundings are put down with it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastgrl as fg
from fastgrl.baselines.netmf import run as run_netmf
from fastgrl.baselines.outcomes import Outcome
from fastgrl.datasets import LinkDataset, NodeDataset, block_model, load_dataset
from fastgrl.evaluation import evaluate_links
from fastgrl.experiments import methods, surroundings
from fastgrl.experiments.curves import depth_curve, rank_curve
from fastgrl.experiments.methods import ENGINES, measure
from fastgrl.experiments.plans import Run, plan
from fastgrl.experiments.specs import load_spec, load_specs
from fastgrl.experiments.worker import perform
from fastgrl.metrics import accuracy, roc_auc
from fastgrl.node_evaluation import evaluate_nodes
from fastgrl.parallel import thread_count, use_threads
from fastgrl.splits import split_edges

Progress = Callable[[int, int], None]
LINK_ROWS = [m.name for m in load_spec("table-links").methods if m.engine == "link-predictor"]
NODE_ROWS = [m.name for m in load_spec("table-nodes").methods if m.engine == "node-classifier"]


@cache
def small_links() -> LinkDataset:
    """A graph in blocks with a third of its edges held out, under a name that the catalogue knows."""
    split = split_edges(block_model(300, num_classes=3).graph, fraction=0.3, seed=1)
    return LinkDataset("ppi", split.train, None, None, split.held_out, split.negatives)


@cache
def small_nodes() -> NodeDataset:
    return block_model(240, num_classes=3, validation_per_class=20)


@cache
def measured(name: str, dataset: Any, progress: Progress | None = None) -> methods.Measured:
    table = load_spec("table-links" if isinstance(dataset, LinkDataset) else "table-nodes")
    method = table.method(name)
    return measure(method.engine, dataset, seed=1, progress=progress, **method.settings)


def evaluated_links(name: str, dataset: LinkDataset) -> tuple[float, dict[str, Any]]:
    told = dict(load_spec("table-links").method(name).settings)
    read = told.pop("read", "test")
    rank = {"n_components": told.pop("rank")} if "rank" in told else {}
    found = evaluate_links(dataset, fg.LinkPredictor(**told, **rank), seed=1)
    return found["dot" if read == "dot" else "test"]["roc_auc"], found


def evaluated_nodes(name: str, dataset: NodeDataset) -> tuple[float, dict[str, Any]]:
    told = dict(load_spec("table-nodes").method(name).settings)
    alone = told.pop("leave_one_out", False)
    found = evaluate_nodes(dataset, fg.NodeClassifier(**told), seed=1, leave_one_out=alone)
    return found["test"]["accuracy"], found


def agree(found: methods.Measured, value: float, evaluated: dict[str, Any]) -> None:
    # Dots may be summed in single precision: a pair or two of the few hundred squared may change places.
    assert found.value == pytest.approx(value, abs=1e-5)
    assert found.chosen == evaluated["chosen"]
    assert 0 < found.seconds <= found.seconds_total
    json.dumps(asdict(found), allow_nan=False)


@pytest.mark.parametrize("name", LINK_ROWS)
def test_a_row_of_links_is_what_evaluate_says(name):
    dataset = load_dataset("ppi") if "walk" in name or name == "paper-32" else small_links()
    found = measured(name, dataset)
    value, evaluated = evaluated_links(name, dataset)
    agree(found, value, evaluated)
    dots = load_spec("table-links").method(name).settings.get("read") == "dot"
    assert found.validation == (None if dots else evaluated["validation"]["roc_auc"])
    assert found.certificate is not None
    # The two products of the released program belong to two matrices: no pair of vectors fits both.
    assert (found.certificate["worst_residual"] < 1e-2) == ("paper" not in name)


@pytest.mark.parametrize("name", NODE_ROWS)
def test_a_row_of_nodes_is_what_evaluate_says(name):
    dataset = load_dataset("cora") if name in ("co-ridge-defaults", "co-ridge-left-out") else small_nodes()
    found = measured(name, dataset)
    value, evaluated = evaluated_nodes(name, dataset)
    agree(found, value, evaluated)
    assert found.validation == evaluated["validation"]["accuracy"]
    assert (found.validation is None) == (name == "co-ridge-left-out")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LINK_ROWS, *NODE_ROWS])
def test_every_row_of_ours_is_what_evaluate_says_of_real_data(name):
    links = name in LINK_ROWS
    dataset = load_dataset("ppi" if links else "cora")
    agree(measured(name, dataset), *(evaluated_links if links else evaluated_nodes)(name, dataset))


@pytest.mark.parametrize("name", ["walk-32", "log-diffusion", "netmf", "paper", "co-ridge"])
def test_what_is_found_depends_neither_on_progress_nor_on_threads(name):
    dataset = small_nodes() if name in ("paper", "co-ridge") else small_links()
    steps: list[tuple[int, int]] = []
    quiet = measured(name, dataset)
    with use_threads(thread_count() + 1):
        told = measured(name, dataset, lambda done, total: steps.append((done, total)))
    assert told.value == quiet.value
    assert told.chosen == quiet.chosen
    assert steps
    assert all(0 <= done <= total for done, total in steps)


def test_a_published_method_is_tested_by_its_scores():
    dataset = small_links()
    found = measure("netmf", dataset, seed=2, progress=None, rank=8, window=2)
    scores = run_netmf(dataset, seed=2, rank=8, window=2).scores
    cut = len(dataset.test)
    assert found.value == roc_auc(scores[:cut], scores[cut:]) > 0.6
    assert found.chosen["rank"] == 8
    assert found.chosen["seed"] == 2
    assert 0 < found.seconds <= found.seconds_total
    assert (found.validation, found.curve, found.certificate) == (None, None, None)
    json.dumps(asdict(found), allow_nan=False)


def test_a_published_method_never_sees_what_is_tested():
    dataset = small_links()
    swapped = replace(dataset, test=dataset.test_negatives, test_negatives=dataset.test)
    values = [measure("netmf", each, seed=0, progress=None, rank=8).value for each in (dataset, swapped)]
    assert sum(values) == pytest.approx(1)


def test_classes_of_a_published_method_are_counted_on_test_nodes_alone():
    dataset = small_nodes()
    right = Outcome(
        scores=np.eye(3)[dataset.y], predictions=dataset.y.copy(), validation=None, seconds={}, settings={}
    )
    assert methods._tested(dataset, right) == 1
    right.predictions[np.setdiff1d(np.arange(240), dataset.test)] = 2 - dataset.y[dataset.train[0]]
    assert methods._tested(dataset, right) == 1
    right.predictions[dataset.test[: len(dataset.test) // 2]] = -1
    expected = accuracy(dataset.y[dataset.test], right.predictions[dataset.test])
    assert methods._tested(dataset, right) == expected == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("design", "ranks", "told"),
    [("degree-walk", [4, 16, 32], {"window": 5, "negative": 3.0}), ("log-diffusion", [4, 16, 32], {})],
)
def test_a_truncated_fit_is_a_fit_of_that_rank(design, ranks, told):
    ppi, steps = load_dataset("ppi"), []
    told |= {"ranks": [*ranks, 40], "apart": ranks, "seed": 1}
    curve, seconds = rank_curve(ppi, design=design, progress=lambda *step: steps.append(step), **told)
    assert curve["over"] == "rank"
    assert (curve["x"], curve["separate"]["x"]) == ([*ranks, 40], ranks)
    np.testing.assert_allclose(curve["y"][:3], curve["separate"]["y"], atol=2e-3)
    assert min(curve["y"]) > 0.8
    assert steps == [(number, 4) for number in range(1, 5)]
    assert seconds > 0


def test_the_curve_of_ranks_passes_through_the_estimator():
    ppi = small_links()
    curve, _ = rank_curve(ppi, design="log-diffusion", ranks=[16], apart=[], seed=1)
    model = fg.LinkPredictor(n_components=16, select=False, random_state=1).fit(ppi.graph)
    dots = [
        (model.left_[u] * model.right_[v]).sum(1, dtype=np.float64)
        for u, v in (ppi.test.T, ppi.test_negatives.T)
    ]
    assert curve["y"][0] == pytest.approx(roc_auc(*dots), abs=2e-3)


def test_the_curve_of_depths_passes_through_the_estimator():
    cora, told = load_dataset("cora"), {"design": "jkn", "window": 1, "negative": 1}
    curve = depth_curve(cora, most=4, rank=30, **told)
    assert curve["over"] == "hops"
    assert curve["x"] == list(range(5))
    for hops in (1, 4):
        model = fg.NodeClassifier(hops=hops, n_components=30, select=False, **told)
        alone = evaluate_nodes(cora, model)["test"]["accuracy"]
        assert curve["y"][hops] == pytest.approx(alone, abs=0.01)


def test_depths_are_tested_with_labels_that_are_never_learnt_from():
    data, told = small_nodes(), {"most": 3, "rank": 8, "design": "jkn", "window": 1, "negative": 1.0}
    y = data.y.copy()
    y[data.test] = (y[data.test] + 1) % 3
    honest, swapped = depth_curve(data, **told), depth_curve(replace(data, y=y), **told)
    assert honest["y"][-1] > 0.9
    assert all(a + b <= 1 + 1e-9 for a, b in zip(honest["y"], swapped["y"], strict=True))


def test_every_curve_of_the_figures_can_be_computed():
    for run in plan([load_spec("figure-depth"), load_spec("figure-rank")], quick=True):
        dataset = small_nodes() if run.task == "nodes" else small_links()
        settings = {**run.settings, **({"rank": 10} if run.task == "nodes" else {})}
        found = measure(run.engine, dataset, seed=0, progress=None, **settings)
        assert found.curve is not None
        assert found.value == found.curve["y"][-1]
        assert len(found.curve["x"]) == len(found.curve["y"])
        json.dumps(asdict(found), allow_nan=False)


def test_every_engine_is_used():
    assert {method.engine for spec in load_specs() for method in spec.methods} == set(ENGINES)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    told = {"design": "jkn", "n_components": 5, "hops": 1, "window": 1, "negative": 1.0, "select": False}
    run = Run("table-nodes", "nodes", "accuracy", "jkn", "node-classifier", "digits", 3, True, told)
    return perform(run)


def test_a_record_says_what_where_and_when(record):
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert (record["seed"], record["quick"], record["dataset"], record["method"]) == (
        3,
        True,
        "digits",
        "jkn",
    )
    assert (record["task"], record["metric"], record["settings"]["hops"]) == ("nodes", "accuracy", 1)
    assert 0.5 < record["value"] <= 1
    assert "spec" not in record
    assert record["command"].startswith("fastgrl reproduce table-nodes --only jkn --dataset digits --seeds 4")
    assert record["counts"]["nodes"] == 1797
    assert record["data"] is None  # it comes with scikit-learn
    assert record["started"].endswith("+00:00")
    assert len(record["key"]) == 16
    assert record["curve"] is None
    needed = {
        "validation",
        "seconds",
        "seconds_total",
        "cpu_seconds",
        "peak_memory_bytes",
        "chosen",
        "epochs",
    }
    assert needed | {"certificate", "load"} <= record.keys()


def test_machine_and_versions_are_put_down(record):
    assert record["machine"].keys() == {"cpu", "cpus", "threads", "memory_bytes", "system"}
    assert record["machine"]["cpus"] >= 1
    assert record["machine"]["memory_bytes"] > 1 << 28
    assert record["machine"]["cpu"]
    with use_threads(7):
        assert surroundings.machine()["threads"] == 7
    assert {"python", "fastgrl", "numpy", "scipy"} <= record["versions"].keys()
    assert record["versions"]["fastgrl"] == fg.__version__
    assert record["versions"]["numpy"] == np.__version__


def test_a_load_that_the_system_does_not_say_is_none(monkeypatch):
    assert surroundings.load_average() >= 0

    def unknown() -> tuple[float, float, float]:
        raise OSError("unobtainable")

    monkeypatch.setattr(surroundings.os, "getloadavg", unknown)
    assert surroundings.load_average() is None
    monkeypatch.delattr(surroundings.os, "getloadavg")
    assert surroundings.load_average() is None


def test_datasets_with_other_files_have_other_checksums():
    found = [surroundings.data_digest(name) for name in ("cora", "citeseer", "ppi", "soc-facebook")]
    assert len(set(found)) == 4
    assert all(len(each) == 64 for each in found)
    assert surroundings.data_digest("cora") == found[0]
    assert surroundings.data_digest("digits") is None


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A repository with the package's files in it, from which the package seems to be imported."""
    package = tmp_path / "src" / "fastgrl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(tmp_path, "init", "--quiet")
    monkeypatch.setattr(surroundings.fastgrl, "__file__", str(package / "__init__.py"))
    return tmp_path


def test_the_state_of_a_checkout_is_put_down(checkout):
    assert surroundings.git_state() is None  # no commit yet
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "one")
    state = {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": False}
    assert surroundings.git_state() == state
    (checkout / "notes").write_text("beside the source")
    assert surroundings.git_state() == state
    (checkout / "src" / "fastgrl" / "__init__.py").write_text("changed = True")
    assert surroundings.git_state() == {**state, "dirty": True}


def test_a_package_that_is_installed_is_no_checkout(checkout, monkeypatch, tmp_path_factory):
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "one")
    inside = checkout / ".venv" / "fastgrl"
    elsewhere = tmp_path_factory.mktemp("site-packages") / "fastgrl"
    for folder in (inside, elsewhere):
        folder.mkdir(parents=True)
        monkeypatch.setattr(surroundings.fastgrl, "__file__", str(folder / "__init__.py"))
        assert surroundings.git_state() is None


def test_without_git_there_is_no_state(monkeypatch):
    monkeypatch.setitem(os.environ, "PATH", "")
    assert surroundings.git_state() is None
