"""Real workers in processes of their own: the same bits for any number of them, and faults."""

from __future__ import annotations

import inspect
import os
from dataclasses import replace

import libraries
import numpy as np
import pandas as pd
import pytest
import test_frameworks
from clusters import (
    edge_folder,
    fastgrl,
    in_one_process,
    interrupt,
    until,
    write_digits,
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


@pytest.fixture(scope="session")
def two_workers():
    """Two workers of this machine's own, or those of the scheduler that FASTGRL_CLUSTER names."""
    with connected(os.environ.get("FASTGRL_CLUSTER", "local:2")) as cluster:
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


# ---- the command line


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


@pytest.mark.parametrize("option", ["--select", "--bipartite"])
def test_what_is_not_for_folders_is_refused(tmp_path, option):
    edge_folder(tmp_path / "edges", 300, 900)
    program = fastgrl("embed", "edges", "-o", "out", "--cluster", "local:1", option, cwd=tmp_path)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 2
    assert (
        errors.decode() == f"error: {option} cannot be chosen for a folder of Parquet files; leave it out\n"
    )


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


def test_the_usual_design_gives_the_vectors_of_one_process(tmp_path):
    edge_folder(tmp_path / "edges", 9000, 30_000)
    for out, more in (("alone.parquet", ()), ("there", ("--cluster", "local:2"))):
        program = fastgrl("embed", "edges", "-o", out, "--rank", "16", *more, cwd=tmp_path)
        _, errors = program.communicate(timeout=200)
        assert program.returncode == 0, errors.decode()
    alone, there = (pd.read_parquet(tmp_path / name).set_index("id") for name in ("alone.parquet", "there"))
    assert there.equals(alone.loc[there.index])


def test_ctrl_c_is_one_line_and_leaves_nothing(tmp_path):
    edge_folder(tmp_path / "edges", 100_000, 400_000)
    how = ("--design", "degree-walk", "--cluster", "local:2", "--checkpoint", "kept", "--quiet")
    program = fastgrl("embed", "edges", "-o", "out", *how, cwd=tmp_path)
    until(lambda: list(tmp_path.glob("kept/*/product-0001")))
    interrupt(program)
    assert program.communicate(timeout=60) == (b"", b"error: interrupted\n")
    assert program.returncode == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges", "kept"]
    until(lambda: not group_lives(program.pid))


def group_lives(group):
    """Whether any process of a group is there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
