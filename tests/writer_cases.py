"""One call of every writer, with content that depends on a seed."""

from __future__ import annotations

import numpy as np

from fastgrl.graph import Graph
from fastgrl.io.writers import write_embedding, write_graph, write_table


def graph_of(count):
    edges = [(f"n{i}", f"n{i + 1}") for i in range(count)]
    return Graph.from_edges(
        edges, weights=np.arange(1.0, count + 1), nodes=[f"n{i}" for i in range(count + 2)]
    )


def vectors_of(seed, rows=9):
    return np.random.Generator(np.random.Philox(seed)).standard_normal((rows, 3))


def embedding_writer(name):
    return lambda folder, seed: write_embedding(
        folder / name, vectors_of(seed), node_ids=[f"n{seed}{i}" for i in range(9)], force=True
    )


WRITERS = {name: embedding_writer(name) for name in ("e.csv", "e.parquet", "e.npz", "e.npy", "e.txt")} | {
    "table": lambda folder, seed: write_table(folder / "t.tsv", {"a": [seed] * 9}, force=True),
    "edges and nodes": lambda folder, seed: write_graph(
        graph_of(3 + seed), folder / "g.csv", nodes=folder / "n.csv", force=True
    ),
    "graph": lambda folder, seed: write_graph(graph_of(3 + seed), folder / "g.npz", force=True),
}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}
