"""Blocks, loading, embedding, checkpoints: what does not depend on which engine runs the tasks.

The tasks run in this process; `test_cluster.py` has real workers.
"""

from __future__ import annotations

import functools
import gc
import itertools
import json
import weakref
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from clusters import edge_folder, in_one_process, vectors_in
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgrl as fg
from fastgrl.datasets import block_model, rmat
from fastgrl.distributed.addresses import Address
from fastgrl.distributed.checkpoints import Checkpoint
from fastgrl.distributed.classification import classify_folder
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.embedding import embed_folder
from fastgrl.distributed.engines import HERE, Done, Pending, submit
from fastgrl.distributed.loading import load_graph
from fastgrl.distributed.places import used
from fastgrl.distributed.plans import RowPlan
from fastgrl.errors import ArgumentError, FastgrlError, InputError, ShapeError
from fastgrl.io import read
from fastgrl.io.importing import import_graph
from fastgrl.io.layout import Options
from fastgrl.linalg import CHUNK_ROWS, subtrees, sum_of_subtrees, tree_sum
from fastgrl.link_runs import Parameters, fit_graph
from fastgrl.ordering import canonical_order_of, reordered
from fastgrl.walks import degree_walk, walk

kinds = pytest.mark.parametrize(
    ("directed", "weighted"), [(a, b) for a in (False, True) for b in (False, True)]
)


@pytest.fixture
def cluster(tmp_path):
    return Cluster(HERE, 3, storage=Address.of(tmp_path / "storage"))


def same(a, b, cluster):
    host = cluster.seam.host
    return all(np.array_equal(x, host(y)) for x, y in zip(a, b, strict=True))


# ---- sums and plans


@given(st.lists(st.floats(-1e8, 1e8), min_size=1, max_size=70), st.lists(st.integers(0, 70), max_size=6))
def test_sums_of_any_ranges_of_chunks_make_up_the_one_tree(values, cuts):
    terms, total = [np.float64(value) for value in values], len(values)
    bounds = sorted({0, total, *(min(cut, total) for cut in cuts)})
    found = {}
    for begin, end in itertools.pairwise(bounds):
        found |= subtrees(terms.__getitem__, begin, end, total)
    assert sum_of_subtrees(found, total) == tree_sum(terms)


@given(st.integers(0, 10**6), st.integers(1, 99))
def test_blocks_are_whole_chunks_and_cover_all_rows_once(rows, blocks):
    plan = RowPlan.even(rows, blocks)
    assert plan.cuts[0] == 0
    assert plan.cuts[-1] == rows
    assert all(cut % CHUNK_ROWS == 0 for cut in plan.cuts[:-1])
    assert all(a < b for a, b in plan.bounds) or rows == 0
    assert len(plan.bounds) == min(blocks, plan.chunks)


# ---- arithmetic of blocks


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9000), st.integers(0, 9000), st.integers(1, 5))
def test_rows_and_columns_are_taken_as_from_an_array(first, second, blocks):
    block = np.random.default_rng(0).standard_normal((9000, 3))
    tall = Cluster(HERE, blocks).spread(block)
    begin, end = sorted((first, second))
    host = tall.cluster.seam.host
    assert np.array_equal(host(tall[begin:end]), block[begin:end])
    assert np.array_equal(host(tall[:, 1:]), block[:, 1:])
    assert np.array_equal(host(2 * tall - tall[:, :1] * tall / 3.0), 2 * block - block[:, :1] * block / 3.0)


def test_blocks_with_other_rows_do_not_mix(cluster):
    with pytest.raises(ShapeError, match="same rows"):
        _ = cluster.spread(np.zeros((9000, 2))) + cluster.spread(np.zeros((8000, 2)))


def test_more_than_may_come_back_is_refused(cluster):
    tall = replace(cluster, most_bytes=100).spread(np.zeros((50, 3)))
    with pytest.raises(FastgrlError, match=r"1,200 bytes.*100 bytes are allowed"):
        tall.cluster.seam.host(tall)


# ---- what is let go of


@pytest.fixture
def _no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
def test_what_was_handed_over_is_let_go_at_once():
    one = Done(np.ones(3))
    there, value = weakref.ref(one), weakref.ref(one.value)
    (made,) = submit(HERE, [Pending(np.sum, (Pending(np.concatenate, ([one, one],)),))])
    assert made.value == 6
    del one
    assert there() is None
    assert value() is None


@pytest.mark.usefixtures("_no_collector")
def test_a_graph_that_is_loaded_holds_its_rows_and_ids_alone(tmp_path):
    edge_folder(tmp_path / "edges", 9000, 20_000)
    before = {id(one): one for one in gc.get_objects() if type(one) is Done}
    graph = load_graph(Cluster(HERE, 3), str(tmp_path / "edges"))
    kept = [one for one in gc.get_objects() if type(one) is Done and id(one) not in before]
    assert len(kept) == len(graph.csr.futures) + len(graph.ids)


# ---- loading


@kinds
@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("blocks", [1, 4])
def test_a_folder_is_the_graph_of_its_files_bit_for_bit(tmp_path, directed, weighted, text, blocks):
    table = edge_folder(tmp_path / "edges", 9000, 20_000, text=text, weighted=weighted)
    ours = in_one_process(table, directed=directed)
    cluster = Cluster(HERE, blocks)
    graph = load_graph(cluster, str(tmp_path / "edges"), directed=directed)
    assert np.array_equal(np.concatenate(cluster.gather(graph.ids)), ours.node_ids)
    assert (graph.num_nodes, graph.num_edges) == (ours.num_nodes, ours.num_edges)
    assert graph.degree_span == pytest.approx(ours.degree_span)
    for matrix in (walk, degree_walk):
        assert same(fg.fsvd(matrix(ours), 6, n_iter=2), fg.fsvd(matrix(graph), 6, n_iter=2), cluster)


def test_the_order_of_nodes_does_not_depend_on_files_or_blocks(tmp_path):
    orders = []
    for files, blocks in [(1, 1), (2, 5), (9, 3)]:
        folder = tmp_path / f"{files}"
        edge_folder(folder, 9000, 5000, files=files)
        cluster = Cluster(HERE, blocks)
        orders.append(np.concatenate(cluster.gather(load_graph(cluster, str(folder)).ids)))
    assert all(np.array_equal(orders[0], other) for other in orders)


def test_repeats_are_merged_and_loops_kept(tmp_path):
    rows = {
        "source": ["b", "a", "b", "c", "c"],
        "target": ["a", "b", "a", "c", "a"],
        "weight": [1, 2, 4, 8, 16],
    }
    (tmp_path / "edges").mkdir()
    pd.DataFrame(rows).iloc[:3].to_parquet(tmp_path / "edges" / "one.parquet")
    pd.DataFrame(rows).iloc[3:].to_parquet(tmp_path / "edges" / "two.parquet")
    cluster = Cluster(HERE, 2)
    graph = load_graph(cluster, str(tmp_path / "edges"))
    (csr,) = cluster.gather(graph.csr.futures)
    assert csr.as_scipy.toarray().tolist() == [[0, 7, 16], [7, 0, 0], [16, 0, 8]]
    assert (graph.num_edges, graph.facts.loops) == (3, 1)


def write(folder, name, **columns):
    folder.mkdir(exist_ok=True)
    pd.DataFrame(columns).to_parquet(folder / name)


def wrong_folders(tmp_path):
    folder = tmp_path / "edges"
    write(folder, "a.parquet", source=["x"], target=["y"])
    yield (
        "one is text",
        lambda: write(folder, "b.parquet", source=[1], target=[2]),
        "text in .* and integers in",
    )
    yield (
        "weights",
        lambda: write(folder, "b.parquet", source=["x"], target=["z"], weight=[1.0]),
        "has weights",
    )
    yield (
        "no edges at all",
        lambda: write(folder, "a.parquet", source=[], target=[]),
        "none of its 1 Parquet files has edges",
    )
    yield (
        "missing id",
        lambda: write(folder, "b.parquet", source=["x", None], target=["y", "z"]),
        "row 2.*missing",
    )
    yield (
        "mixed",
        lambda: write(folder, "b.parquet", source=["x"], target=[1]),
        "one column of ids holds text, the other integers",
    )
    yield (
        "negative",
        lambda: write(folder, "b.parquet", source=["x"], target=["y"], weight=[-1.0]),
        "negative",
    )
    yield (
        "other columns",
        lambda: write(folder, "people.parquet", id=["x"], city=["Rome"]),
        "'source' and 'target' of 'a.parquet', and in 'id' and 'city' of 'people.parquet'",
    )
    yield (
        "a fraction",
        lambda: write(folder, "b.parquet", source=[1], target=[0.5]),
        "numbers with a fraction",
    )
    yield "damaged", lambda: (folder / "b.parquet").write_bytes(b"PAR1 no"), "b.parquet: not a whole Parquet"


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("where", ["on a cluster", "in one process"])
def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path, cluster, number, where):
    _, make, words = list(wrong_folders(tmp_path))[number]
    make()
    reading = functools.partial(load_graph, cluster) if where == "on a cluster" else fg.read_graph
    with pytest.raises(InputError, match=words):
        reading(str(tmp_path / "edges"))


@kinds
@pytest.mark.parametrize("text", [True, False])
def test_one_process_reads_the_same_folder_as_the_same_graph(tmp_path, directed, weighted, text):
    table = edge_folder(tmp_path / "edges", 300, 2000, text=text, weighted=weighted)
    ours = in_one_process(table, directed=directed)
    found = read(str(tmp_path / "edges"), directed=directed).graph
    order = canonical_order_of(found)
    found = found if order is None else reordered(found, order)
    assert np.array_equal(found.node_ids, ours.node_ids)
    assert abs(found.to_scipy() - ours.to_scipy()).max() < 1e-12


@pytest.mark.parametrize("where", ["on a cluster", "in one process"])
def test_large_integers_stay_apart_whatever_their_type(tmp_path, cluster, where):
    write(tmp_path / "edges", "a.parquet", source=np.array([2**60 + 1]), target=np.array([2**60 + 3]))
    write(tmp_path / "edges", "b.parquet", source=np.array([1], np.uint64), target=np.array([2], np.uint64))
    if where == "on a cluster":
        ids = np.concatenate(cluster.gather(load_graph(cluster, str(tmp_path / "edges")).ids))
    else:
        ids = fg.read_graph(tmp_path / "edges").node_ids
    assert sorted(ids.tolist()) == [1, 2, 2**60 + 1, 2**60 + 3]


def test_files_without_rows_and_files_of_programs_are_left_out(tmp_path, cluster):
    folder = tmp_path / "edges"
    write(folder, "a.parquet", source=[], target=[])
    write(folder, "b.parquet", source=["x", "y"], target=["y", "z"])
    write(folder / "year=2020", "c.parquet", source=["z"], target=["x"])
    write(folder, "_temporary.parquet", source=["q"], target=["r"])
    (folder / "_SUCCESS").touch()
    there, here = load_graph(cluster, str(folder)), fg.read_graph(folder)
    assert (there.num_nodes, there.num_edges) == (here.num_nodes, here.num_edges) == (3, 3)


def test_a_folder_of_tables_is_not_imported_and_the_message_says_why(tmp_path):
    write(tmp_path / "edges", "a.parquet", source=["x"], target=["y"])
    with pytest.raises(ArgumentError, match="folder of Parquet files, which verbs that take EDGES read"):
        import_graph(tmp_path / "edges", tmp_path / "graph")


@pytest.mark.parametrize(
    ("name", "words"), [("nothing", "no folder"), (".", "no files that end in .parquet")]
)
def test_a_folder_without_edges_is_refused(tmp_path, cluster, name, words):
    with pytest.raises(InputError, match=words):
        load_graph(cluster, str(tmp_path / name))


def test_columns_and_weights_are_chosen_as_everywhere(tmp_path, cluster):
    write(tmp_path / "e", "a.parquet", w=[2.0, 3.0], to=["b", "c"], frm=["a", "b"])
    graph = load_graph(cluster, str(tmp_path / "e"), options=Options(columns="frm,to", weight="w"))
    assert (graph.weighted, graph.largest_weight, graph.num_nodes) == (True, 3.0, 3)
    graph = load_graph(cluster, str(tmp_path / "e"), options=Options(columns="frm,to", unweighted=True))
    assert graph.weights is None


# ---- from folder to folder


@kinds
@pytest.mark.parametrize(
    ("design", "quick"),
    [("degree-walk", False), ("walk", False), ("log-diffusion", True), ("log-diffusion", False)],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_vectors_are_those_of_one_process_bit_for_bit(
    tmp_path, cluster, directed, weighted, design, quick, side
):
    table = edge_folder(tmp_path / "edges", 5000, 12_000, weighted=weighted)
    ours = in_one_process(table, directed=directed)
    run = fit_graph(ours, Parameters(design=design, n_components=10, select=False), quick=quick)
    how = {"design": design, "quick": quick, "rank": 10, "side": side, "directed": directed}
    told = embed_folder(cluster, str(tmp_path / "edges"), str(tmp_path / "out"), **how)
    ids, vectors = vectors_in(tmp_path / "out")
    assert np.array_equal(ids, ours.node_ids)
    assert np.array_equal(vectors, run.left if side == "left" else run.right)
    assert told["files"] == sorted(file.name for file in (tmp_path / "out").iterdir())


@pytest.mark.parametrize(("rank", "edges"), [(3, 900), (6, 12)])
def test_where_nothing_can_be_held_out_or_need_be_vectors_are_those_of_one_process(
    tmp_path, cluster, rank, edges
):
    ours = in_one_process(edge_folder(tmp_path / "edges", 300, edges))
    run = fit_graph(ours, Parameters(n_components=rank, select=False))
    embed_folder(cluster, str(tmp_path / "edges"), str(tmp_path / "out"), rank=rank)
    assert np.array_equal(vectors_in(tmp_path / "out")[1], run.left)


def test_a_result_that_is_there_stays_unless_told_otherwise(tmp_path, cluster):
    edge_folder(tmp_path / "edges", 300, 900)
    (tmp_path / "out").mkdir()
    for name in ("part-00000.parquet", "part-00007.parquet", "_SUCCESS"):
        (tmp_path / "out" / name).write_text("old")
    with pytest.raises(ArgumentError, match="exists"):
        embed_folder(cluster, str(tmp_path / "edges"), str(tmp_path / "out"), design="walk", rank=2)
    embed_folder(cluster, str(tmp_path / "edges"), str(tmp_path / "out"), design="walk", rank=2, force=True)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["part-00000.parquet"]


@pytest.mark.parametrize("mine", ["letter.txt", "part-1.csv", "photos/part-00000.parquet", ".env"])
def test_a_folder_with_anything_else_in_it_is_never_deleted(tmp_path, cluster, mine):
    edge_folder(tmp_path / "edges", 300, 900)
    (tmp_path / "out" / mine).parent.mkdir(parents=True)
    (tmp_path / "out" / mine).write_text("x")
    with pytest.raises(ArgumentError, match=f"such as '{mine}': it is not deleted"):
        embed_folder(cluster, str(tmp_path / "edges"), str(tmp_path / "out"), rank=2, force=True)
    assert (tmp_path / "out" / mine).read_text() == "x"


def test_what_is_read_is_never_written_over(tmp_path, cluster):
    edge_folder(tmp_path / "edges", 300, 900)
    for number, file in enumerate(sorted((tmp_path / "edges").iterdir())):
        file.rename(tmp_path / "edges" / f"part-{number:05}.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "edges")
    for out in ("edges", "edges/", "link", "edges/new", "link/new"):
        with pytest.raises(ArgumentError, match="is read from"):
            embed_folder(cluster, str(tmp_path / "edges"), f"{tmp_path}/{out}", rank=2, force=True)
    assert len(list((tmp_path / "edges").iterdir())) == 4


def test_what_fails_leaves_nothing_behind(tmp_path, cluster):
    edge_folder(tmp_path / "edges", 300, 900)
    for wrong in ({"rank": 301}, {"design": "shrunken"}, {"design": "walk", "negative": -1.0}):
        with pytest.raises(ArgumentError):
            embed_folder(cluster, str(tmp_path / "edges"), str(tmp_path / "out"), **wrong)
    assert [file.name for file in tmp_path.iterdir() if "out" in file.name] == []


# ---- checkpoints


def checkpointed(folder, blocks=3):
    return Cluster(HERE, blocks, checkpoint=Checkpoint.at(folder))


@pytest.mark.parametrize(
    ("design", "quick"), [("degree-walk", False), ("log-diffusion", True), ("log-diffusion", False)]
)
def test_a_run_goes_on_from_its_checkpoint_with_the_same_bits(tmp_path, design, quick):
    edge_folder(tmp_path / "edges", 9000, 20_000)
    how = {"design": design, "rank": 8, "quick": quick}
    edges = str(tmp_path / "edges")
    embed_folder(Cluster(HERE, 3), edges, str(tmp_path / "plain"), **how)

    def stop(done, total):
        if 2 * done > total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_folder(checkpointed(tmp_path / "kept"), edges, str(tmp_path / "out"), progress=stop, **how)
    assert not (tmp_path / "out").exists()
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("part-*")}
    assert written
    # Other workers, and another wish for blocks: the first cut is kept.
    embed_folder(checkpointed(tmp_path / "kept", 5), edges, str(tmp_path / "out"), **how)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    for one, other in zip(vectors_in(tmp_path / "plain"), vectors_in(tmp_path / "out"), strict=True):
        assert np.array_equal(one, other)


def test_the_checkpoint_of_another_run_is_refused(tmp_path):
    edge_folder(tmp_path / "edges", 300, 900)
    how = {"design": "walk", "rank": 4}
    edges = str(tmp_path / "edges")
    embed_folder(checkpointed(tmp_path / "kept"), edges, str(tmp_path / "one"), **how)
    with pytest.raises(ArgumentError, match=r"another run \(seed was 0, and is 1 now\)"):
        embed_folder(checkpointed(tmp_path / "kept"), edges, str(tmp_path / "two"), seed=1, **how)


def test_a_checkpoint_knows_whether_edges_were_held_out(tmp_path):
    edge_folder(tmp_path / "edges", 300, 900)
    edges = str(tmp_path / "edges")
    embed_folder(checkpointed(tmp_path / "kept"), edges, str(tmp_path / "one"), rank=3)
    with pytest.raises(ArgumentError, match="another run"):
        embed_folder(checkpointed(tmp_path / "kept"), edges, str(tmp_path / "two"), rank=5)


def test_a_checkpoint_of_other_edges_is_refused(tmp_path):
    edge_folder(tmp_path / "edges", 300, 900)
    how = {"design": "walk", "rank": 4}
    embed_folder(checkpointed(tmp_path / "kept"), str(tmp_path / "edges"), str(tmp_path / "one"), **how)
    write(tmp_path / "edges", "part-3.parquet", source=["n0000001"], target=["n0000002"])
    with pytest.raises(ArgumentError, match="another run"):
        embed_folder(checkpointed(tmp_path / "kept"), str(tmp_path / "edges"), str(tmp_path / "two"), **how)


def test_a_damaged_checkpoint_is_an_error_that_says_so(tmp_path):
    edge_folder(tmp_path / "edges", 300, 900)
    how = {"design": "walk", "rank": 4}
    embed_folder(checkpointed(tmp_path / "kept"), str(tmp_path / "edges"), str(tmp_path / "one"), **how)
    for file in (tmp_path / "kept").rglob("facts.json"):
        file.write_text(json.dumps({})[:1])
    with pytest.raises(OSError, match="delete the checkpoint"):
        embed_folder(checkpointed(tmp_path / "kept"), str(tmp_path / "edges"), str(tmp_path / "two"), **how)


# ---- models


@pytest.mark.parametrize("design", ["log-diffusion", "degree-walk", "walk", "as-released", "shrunken"])
def test_link_predictors_learn_the_same_bits_on_a_cluster(cluster, design):
    graph = rmat(9, edge_factor=6)
    alone = fg.LinkPredictor(design=design, n_components=12).fit(graph)
    with used(cluster):
        there = fg.LinkPredictor(design=design, n_components=12).fit(graph)
    assert there.chosen_ == alone.chosen_
    assert np.array_equal(there.left_, alone.left_)
    assert np.array_equal(there.right_, alone.right_)


@pytest.mark.parametrize("design", ["co-ridge", "jkn", "jkn-text", "jkn-as-released"])
@pytest.mark.parametrize("features", [True, False])
def test_node_classifiers_learn_the_same_on_a_cluster(cluster, design, features):
    data = block_model(400, num_classes=3, seed=1)
    y = np.where(np.isin(np.arange(400), data.train), data.y, -1)
    X = data.X if features else None

    def fitted():
        return fg.NodeClassifier(design=design, select=False).fit(data.graph, y, features=X)

    alone = fitted()
    with used(cluster):
        there = fitted()
    assert np.abs(there.predict_proba() - alone.predict_proba()).max() < 1e-3
    assert (there.predict() == alone.predict()).mean() > 0.995


# ---- classes from folder to folder


def node_folders(folder, data, *, features=True, skip=0):
    """Edges, labels and features of a dataset as files; ids are text."""
    ids = np.array([f"n{number:05}" for number in range(data.graph.num_nodes)], object)
    ends = data.graph.edge_codes()
    for number, some in enumerate(np.array_split(ends, 3)):
        write(folder / "edges", f"{number}.parquet", source=ids[some[:, 0]], target=ids[some[:, 1]])
    names = [f"class {number}" for number in data.y[data.train]]
    pd.DataFrame({"id": ids[data.train], "label": names}).to_csv(folder / "labels.csv", index=False)
    if features:
        X = data.X.toarray() if hasattr(data.X, "toarray") else data.X
        table = pd.DataFrame(X).add_prefix("f").assign(id=ids).sample(frac=1, random_state=0)
        table = table[table["id"] >= ids[skip]]
        (folder / "features").mkdir()
        for number, some in enumerate(np.array_split(np.arange(len(table)), 2)):
            table.iloc[some].to_parquet(folder / "features" / f"{number}.parquet")
    return ids


def classified(cluster, folder, *, features=True, **how):
    files = {"labels": str(folder / "labels.csv")}
    files |= {"features": str(folder / "features")} if features else {}
    return classify_folder(cluster, str(folder / "edges"), str(folder / "out"), **files, **how)


def connected_blocks(num_nodes, **how):
    """A dataset without isolated nodes, which a list of edges cannot name."""
    data = block_model(num_nodes, num_classes=3, **how)
    ring = np.stack([np.arange(num_nodes), np.roll(np.arange(num_nodes), 1)], axis=1)
    return replace(data, graph=data.graph.with_edges(np.concatenate([data.graph.edge_codes(), ring])))


@pytest.mark.parametrize("features", [True, False])
def test_classes_are_those_of_one_process(tmp_path, cluster, features):
    data = connected_blocks(9000, seed=3)
    ids = node_folders(tmp_path, data, features=features)
    told = classified(cluster, tmp_path, features=features)
    assert told["blocks"] == 3
    found = pd.concat([pd.read_parquet(file) for file in sorted((tmp_path / "out").glob("*.parquet"))])
    assert found["id"].tolist() == ids.tolist()
    assert found["probability"].between(1 / 3, 1).all()
    y = np.where(np.isin(np.arange(9000), data.train), data.y, -1)
    how = {"views": ("l",)} if features else {}
    alone = fg.NodeClassifier(select=False, ridge=0.003, **how)
    alone.fit(data.graph, y, features=data.X if features else None)
    assert (found["class"].to_numpy() == [f"class {one}" for one in alone.predict()]).mean() > 0.998


def held_out(folder, data, ids):
    names = [f"class {number}" for number in data.y[data.validation]]
    pd.DataFrame({"id": ids[data.validation], "label": names}).to_csv(folder / "held.csv", index=False)
    return {"validation": str(folder / "held.csv")}


def test_settings_are_those_that_tell_validation_nodes_best(tmp_path, cluster):
    data = connected_blocks(300, seed=3, mixing=0.4)
    held = held_out(tmp_path, data, node_folders(tmp_path, data))
    told = classified(cluster, tmp_path, **held, ridge=0.01)
    assert told["notices"] == []
    assert told["validation"]["nodes"] == len(data.validation)
    figures = {}
    for restart in (0.1, 0.2):
        one = classified(cluster, tmp_path, **held, restart=restart, ridge=0.01, force=True)
        figures[restart] = one["validation"]["accuracy"]
    assert told["validation"]["accuracy"] == max(figures.values()) == figures[told["chosen"]["restart"]]


def test_validation_nodes_are_not_trained_on(tmp_path, cluster):
    data = connected_blocks(300, seed=4)
    ids = node_folders(tmp_path, data)
    held = held_out(tmp_path, replace(data, validation=data.train[::2]), ids)
    told = classified(cluster, tmp_path, **held)
    assert told["labelled"] == len(data.train) - len(data.train[::2])
    with pytest.raises(ArgumentError, match="are validation nodes: none is left"):
        classified(cluster, tmp_path, validation=str(tmp_path / "labels.csv"), force=True)
    (tmp_path / "held.csv").write_text(f"id,label\n{ids[0]},other\n")
    with pytest.raises(ArgumentError, match="'other', which no label has"):
        classified(cluster, tmp_path, **held, force=True)


def test_numbers_are_standardised_and_narrow_features_stay_as_they_are(tmp_path, cluster):
    data = connected_blocks(5000, seed=4)
    rng = np.random.default_rng(0)
    data = replace(data, X=rng.standard_normal((5000, 6)) * [1, 10, 100, 0, 1, 1] + data.y[:, None])
    node_folders(tmp_path, data)
    told = classified(cluster, tmp_path)
    found = pd.concat([pd.read_parquet(file) for file in sorted((tmp_path / "out").glob("*.parquet"))])
    y = np.where(np.isin(np.arange(5000), data.train), data.y, -1)
    alone = fg.NodeClassifier(select=False, views=("l",), ridge=0.003).fit(data.graph, y, features=data.X)
    assert (found["class"].to_numpy() == [f"class {one}" for one in alone.predict()]).mean() > 0.998
    assert told["features"] == 6


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "labels.csv").write_text("id,label\nnobody,a\nn00001,b\n"), "nobody"),
        (lambda f: (f / "labels.csv").write_text("id,label\nn00001,a\nn00002,a\n"), "one class only"),
        (lambda f: (f / "labels.csv").write_text("id,label\nn00001,\n"), "no label"),
        (lambda f: (f / "features" / "0.parquet").unlink(), r"no row for \d+ of 400 nodes.*missing-features"),
        (lambda f: write(f / "features", "2.parquet", id=["n00001"], other=[1.0]), "other columns"),
        (lambda f: write(f / "features", "0.parquet", id=["n00001"], f0=[np.inf]), "row 1, column 'f0'"),
    ],
)
def test_wrong_labels_and_features_are_named_and_nothing_is_written(tmp_path, cluster, spoil, words):
    node_folders(tmp_path, connected_blocks(400, seed=1))
    spoil(tmp_path)
    with pytest.raises(FastgrlError, match=words):
        classified(cluster, tmp_path)
    assert not (tmp_path / "out").exists()


def test_nothing_is_scattered():
    from pathlib import Path

    sources = Path(fg.__file__).with_name("distributed").glob("*.py")
    assert not [path.name for path in sources if ".scatter(" in path.read_text("utf-8")]
