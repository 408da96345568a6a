"""Real workers in processes of their own: the same bits for any number of them, and faults."""

from __future__ import annotations

import inspect
import json
import os
import re
import time
from dataclasses import replace

import libraries
import numpy as np
import pandas as pd
import pytest
import test_frameworks
from clusters import (
    edge_folder,
    end_programs,
    external,
    fastgrl,
    in_one_process,
    kill,
    tasks_done,
    until,
    vectors_in,
    watching,
    worker_pids,
)

import fastgrl as fg
from fastgrl.datasets import rmat
from fastgrl.distributed import connected
from fastgrl.distributed.loading import load_graph
from fastgrl.distributed.places import used
from fastgrl.linalg import CHUNK_ROWS
from fastgrl.walks import degree_walk, walk

pytestmark = pytest.mark.cluster
NODES = 49 * CHUNK_ROWS


@pytest.fixture(autouse=True)
def _nothing_is_left_running():
    yield
    end_programs()


@pytest.fixture(scope="session")
def two_workers():
    with connected("local:2") as cluster:
        yield cluster


# ---- the laws of the functional SVD, every one of them on two workers

globals().update(
    {
        name: law
        for name, law in vars(test_frameworks).items()
        if name.startswith("test_") and "library" in inspect.signature(law).parameters
    }
)


@pytest.fixture
def library(two_workers):
    return libraries.cluster_library(replace(two_workers, blocks=3))


# ---- bits


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A folder of edges of 49 chunks of nodes, and the same graph in one process."""
    folder = tmp_path_factory.mktemp("large") / "edges"
    rng = np.random.default_rng(3)
    ends = np.concatenate([rng.integers(0, NODES, (300_000, 2)), np.stack([np.arange(NODES)] * 2, 1)])
    folder.mkdir()
    table = pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1]})
    for number, some in enumerate(np.array_split(np.arange(len(table)), 3)):
        table.iloc[some].to_parquet(folder / f"{number}.parquet")
    return folder, in_one_process(table)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_bits_depend_neither_on_workers_nor_on_blocks(large, workers):
    folder, ours = large
    alone = fg.fsvd(walk(ours, window=2), 6, n_iter=1, block_size=4)
    with connected(f"local:{workers}") as found:
        for blocks in (1, 2, 7, 49):
            cluster = replace(found, blocks=blocks)
            graph = load_graph(cluster, str(folder))
            assert len(graph.csr.parts) == blocks
            there = fg.fsvd(walk(graph, window=2), 6, n_iter=1, block_size=4)
            parts = zip(alone, there, strict=True)
            assert all(np.array_equal(one, cluster.seam.host(other)) for one, other in parts)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_directed_and_weighted_graphs_have_the_same_bits(two_workers, tmp_path, directed, weighted):
    table = edge_folder(tmp_path / "edges", 9000, 20_000, weighted=weighted)
    ours = in_one_process(table, directed=directed)
    graph = load_graph(replace(two_workers, blocks=3), str(tmp_path / "edges"), directed=directed)
    host = two_workers.seam.host
    for matrix in (walk, degree_walk):
        alone, there = (fg.fsvd(matrix(one), 5, n_iter=1) for one in (ours, graph))
        assert all(np.array_equal(a, host(b)) for a, b in zip(alone, there, strict=True))


def test_models_learn_the_same_on_workers(two_workers):
    graph = rmat(10, edge_factor=6)
    alone = fg.LinkPredictor(select=False, n_components=12).fit(graph)
    digits = fg.load_dataset("digits")
    y = np.where(np.isin(np.arange(len(digits.y)), digits.train), digits.y, -1)
    nodes = fg.NodeClassifier(select=False).fit(digits.graph, y, features=digits.X)
    with used(two_workers):
        links = fg.LinkPredictor(select=False, n_components=12).fit(graph)
        there = fg.NodeClassifier(select=False).fit(digits.graph, y, features=digits.X)
    assert np.array_equal(links.left_, alone.left_)
    assert (there.predict() == nodes.predict()).mean() > 0.995


# ---- faults: an embedding from folder to folder, and a classification


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    edge_folder(folder / "edges", 100_000, 400_000, text=False)
    return folder


EMBED = ("embed", "edges", "--design", "degree-walk", "--rank", "16", "--blocks", "4", "--quiet")


@pytest.fixture(scope="module")
def undisturbed(edges):
    """What an embedding gives without a fault, and how long it takes."""
    with external(edges / "calm") as cluster, watching(cluster.address, 2):
        begin = time.monotonic()
        embedded(edges, cluster.address, "calm-vectors")
        seconds = time.monotonic() - begin
    return vectors_in(edges / "calm-vectors"), seconds


def embedded(folder, address, out):
    done = fastgrl(*EMBED, "-o", out, "--cluster", address, cwd=folder)
    output, errors = done.communicate(timeout=200)
    assert done.returncode == 0, errors.decode()
    return output


@pytest.mark.parametrize("nanny", [True, False])
@pytest.mark.parametrize("after", [12, 150])
def test_a_worker_that_is_killed_changes_nothing(edges, undisturbed, nanny, after):
    (ids, vectors), seconds = undisturbed
    out = f"killed-{nanny}-{after}"
    options = () if nanny else ("--no-nanny",)
    with external(edges / out, 2, *options) as cluster, watching(cluster.address, 2) as client:
        pids, begin = worker_pids(client), time.monotonic()
        program = fastgrl(*EMBED, "-o", f"{out}-vectors", "--cluster", cluster.address, cwd=edges)
        until(lambda: tasks_done(client) >= after)
        kill(pids[0])
        _, errors = program.communicate(timeout=200)
        assert program.returncode == 0, errors.decode()
        print(f"extra time: {time.monotonic() - begin - seconds:.1f} s on {seconds:.1f} s")
    found = vectors_in(edges / f"{out}-vectors")
    assert np.array_equal(found[0], ids)
    assert np.array_equal(found[1], vectors)


def test_a_worker_that_is_killed_while_nodes_are_classified_changes_nothing(tmp_path):
    write_digits(tmp_path)
    verb = ("classify", "edges.csv", "--labels", "labels.csv", "--no-select", "--quiet")
    alone = fastgrl(*verb, "-o", "alone.csv", cwd=tmp_path)
    assert alone.wait(100) == 0
    with external(tmp_path / "cluster") as cluster, watching(cluster.address, 2) as client:
        pids = worker_pids(client)
        program = fastgrl(*verb, "-o", "there.csv", "--cluster", cluster.address, cwd=tmp_path)
        until(lambda: tasks_done(client) >= 30)
        kill(pids[1])
        _, errors = program.communicate(timeout=200)
        assert program.returncode == 0, errors.decode()
    one, other = (pd.read_csv(tmp_path / name) for name in ("alone.csv", "there.csv"))
    assert (one["class"] == other["class"]).mean() > 0.995


def write_digits(folder):
    digits = fg.load_dataset("digits")
    pairs = digits.graph.edge_codes()
    pd.DataFrame(pairs, columns=["source", "target"]).to_csv(folder / "edges.csv", index=False)
    rows = {"id": digits.train, "label": digits.y[digits.train]}
    pd.DataFrame(rows).to_csv(folder / "labels.csv", index=False)


def test_classes_go_from_folder_to_folder_past_a_worker_that_is_killed(tmp_path):
    digits = fg.load_dataset("digits")
    ends = digits.graph.edge_codes()
    (tmp_path / "edges").mkdir()
    table = pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1]})
    table.to_parquet(tmp_path / "edges" / "all.parquet")
    write_digits(tmp_path)
    verb = ("classify", "edges", "--labels", "labels.csv", "--quiet", "--cluster")
    with external(tmp_path / "cluster") as cluster, watching(cluster.address, 2) as client:
        calm = fastgrl(*verb, cluster.address, "-o", "calm", cwd=tmp_path)
        _, errors = calm.communicate(timeout=200)
        assert calm.returncode == 0, errors.decode()
        pids, before = worker_pids(client), tasks_done(client)
        program = fastgrl(*verb, cluster.address, "-o", "killed", cwd=tmp_path)
        until(lambda: tasks_done(client) >= before + 60)
        kill(pids[0])
        _, errors = program.communicate(timeout=200)
        assert program.returncode == 0, errors.decode()
    one, other = (pd.read_parquet(tmp_path / name) for name in ("calm", "killed"))
    assert one.equals(other)


def test_a_scheduler_that_is_gone_is_an_error_and_leaves_nothing(edges):
    with external(edges / "gone") as cluster, watching(cluster.address, 2) as client:
        program = fastgrl(*EMBED, "-o", "gone-vectors", "--cluster", cluster.address, cwd=edges)
        until(lambda: tasks_done(client) >= 60)
        client.close()
        kill(cluster.processes[0].pid)
        _, errors = program.communicate(timeout=100)
    assert program.returncode == 1
    said = [line for line in errors.decode().splitlines() if line.startswith("error:")]
    assert len(said) == 1
    assert "is gone" in said[0]
    assert "--checkpoint" in said[0]
    assert not [name for name in os.listdir(edges) if "gone-vectors" in name]


def test_a_run_whose_client_and_scheduler_died_goes_on_from_its_checkpoint(edges, undisturbed):
    (ids, vectors), _ = undisturbed
    verb = (*EMBED, "-o", "resumed-vectors", "--checkpoint", "kept")
    with external(edges / "first") as cluster, watching(cluster.address, 2) as client:
        program = fastgrl(*verb, "--cluster", cluster.address, cwd=edges)
        until(lambda: len(list((edges / "kept").glob("stage-*/product-*/facts.json"))) >= 4)
        program.kill()
        program.communicate()
        client.close()
        kill(cluster.processes[0].pid)
    before = {path: path.stat().st_mtime_ns for path in (edges / "kept").glob("stage-*/product-*/facts.json")}
    with external(edges / "second", 3) as cluster, watching(cluster.address, 3):
        program = fastgrl(*verb, "--cluster", cluster.address, cwd=edges)
        _, errors = program.communicate(timeout=200)
        assert program.returncode == 0, errors.decode()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    found = vectors_in(edges / "resumed-vectors")
    assert np.array_equal(found[0], ids)
    assert np.array_equal(found[1], vectors)


def test_too_little_memory_is_an_error_that_says_what_to_do(edges):
    with external(edges / "tiny", 2, "--memory-limit", "130MB") as cluster, watching(cluster.address, 2):
        verb = [word for word in EMBED if word not in ("--blocks", "4")]
        program = fastgrl(
            *verb, "--blocks", "1", "-o", "tiny-vectors", "--cluster", cluster.address, cwd=edges
        )
        _, errors = program.communicate(timeout=120)
    assert program.returncode == 1
    assert re.search(r"error: a worker of tcp://\S+ died .*--blocks", errors.decode().replace("\n", " "))
    assert not (edges / "tiny-vectors").exists()


# ---- the command line


def test_a_graph_whose_vectors_the_caller_may_not_hold_goes_from_folder_to_folder(edges, undisturbed):
    (_, vectors), _ = undisturbed
    limit = vectors.nbytes // 4
    options = ("--cluster", "local:2", "--max-memory", str(limit), "--json")
    program = fastgrl(*EMBED, "-o", "limited-vectors", *options, cwd=edges)
    output, errors = program.communicate(timeout=200)
    assert program.returncode == 0, errors.decode()
    assert json.loads(output)["blocks"] == 4
    assert np.array_equal(vectors_in(edges / "limited-vectors")[1], vectors)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--cluster", "tcp://127.0.0.1:1"), 1, "no Dask scheduler answers"),
        (("--cluster", "somewhere"), 2, "tcp://host:8786"),
        (("--cluster", "local:0"), 2, "at least 1"),
        (("--blocks", "2"), 2, "--blocks is about a cluster"),
        (("--checkpoint", "kept"), 2, "--checkpoint is about a cluster"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(tmp_path, options, code, words):
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n")
    program = fastgrl("embed", "edges.csv", "-o", "out.csv", *options, cwd=tmp_path)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == code
    assert words in errors.decode()
    assert "Traceback" not in errors.decode()
    assert not (tmp_path / "out.csv").exists()


def test_every_verb_that_fits_runs_on_workers(tmp_path):
    write_digits(tmp_path)
    some = ("--cluster", "local:2", "--quiet", "--no-select")
    verbs = [
        ("link", "edges.csv", "-o", "links", "--design", "degree-walk", *some),
        ("embed", "edges.csv", "-o", "vectors.csv", "--design", "degree-walk", "--rank", "8", *some),
        ("evaluate", "links", "edges.csv", "--design", "degree-walk", "--json", *some),
        ("evaluate", "nodes", "digits", "--json", *some),
    ]
    for verb in verbs:
        program = fastgrl(*verb, cwd=tmp_path)
        _, errors = program.communicate(timeout=200)
        assert program.returncode == 0, errors.decode()
    assert (tmp_path / "links").is_dir()
