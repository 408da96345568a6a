"""New nodes by `transform` and new edges by `partial_fit`, against fitting again: ROC-AUC, seconds, products.

    FASTGRL_DATA=<folder> python benchmarks/updates.py [--dataset NAME ...]

New nodes: 5 % of the nodes (of degree 4 or more) are taken out of the graph; half of their edges are given to
`transform`, the other half is to be predicted against as many random pairs. New edges: 20 % of the edges are
held out for testing; of the others 1 % comes late, to `partial_fit`. Settings are the defaults without
selection, and the scorer of the first fit stays.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import header

import fastgrl as fg
from fastgrl.evaluation import whole_graph
from fastgrl.link_updates import grow
from fastgrl.metrics import roc_auc
from fastgrl.splits import split_edges

DATASETS = ("ca-HepTh", "ca-AstroPh")
NEW_NODES, LATE_EDGES = 0.05, 0.01


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def held_out_nodes(graph: fg.Graph, seed: int = 0) -> tuple[fg.Graph, Any, Any, Any]:
    """The graph without some nodes, edges of these that are given, edges to be predicted, and other pairs."""
    rng = np.random.default_rng(seed)
    new = np.zeros(graph.num_nodes, bool)
    new[rng.choice(np.flatnonzero(graph.degrees >= 4), int(NEW_NODES * graph.num_nodes), replace=False)] = (
        True
    )
    codes = graph.edge_codes().astype(np.int64)
    ends = new[codes].sum(1)
    touching = codes[ends == 1]
    touching = np.where(new[touching[:, :1]], touching, touching[:, ::-1])
    known = rng.random(len(touching)) < 0.5
    given, wanted = touching[known], touching[~known]
    wanted = wanted[np.isin(wanted[:, 0], given[:, 0])]
    others = np.column_stack([wanted[:, 0], rng.choice(np.flatnonzero(~new), len(wanted))])
    others = others[~graph.has_edges(*others.T)]
    train = fg.Graph.from_edges(graph.node_ids[codes[ends == 0]], nodes=graph.node_ids[~new])
    return train, given, wanted, others


def new_nodes(graph: fg.Graph) -> None:
    train, given, wanted, others = held_out_nodes(graph)
    ids = graph.node_ids
    links = fg.LinkPredictor(select=False).fit(train)
    new, folding = timed(lambda: links.transform(ids[given]))
    again, fitting = timed(lambda: fg.LinkPredictor(select=False).fit(grow(train, ids[given]).graph))
    folded, refitted = (
        100 * roc_auc(m.score_pairs(ids[wanted]), m.score_pairs(ids[others])) for m in (new, again)
    )
    share, faster, trust = folded / refitted, fitting / folding, np.median(new.trust)
    print(f"  {len(new.node_ids)} new nodes, median trust {trust:.2f}")
    print(f"    transform {folded:.2f}, refit {refitted:.2f}: {share:.1%} of it")
    print(f"    {folding:.2f} s against {fitting:.2f} s: {faster:.1f} times faster")


def late_edges(graph: fg.Graph) -> None:
    split = split_edges(graph, fraction=0.2, seed=0)
    codes, ids = split.train.edge_codes(), graph.node_ids
    late = np.random.default_rng(0).random(len(codes)) < LATE_EDGES
    links = fg.LinkPredictor(select=False).fit(split.train.with_edges(codes[~late]))
    before = area(links, split, ids)
    _, updating = timed(lambda: links.partial_fit(ids[codes[late]]))
    again, fitting = timed(lambda: fg.LinkPredictor(select=False).fit(split.train))
    done = links.update_
    after, fresh = area(links, split, ids), area(again, split, ids)
    columns = f"{done['product_columns']} of {done['refit_product_columns']} product columns"
    print(f"  {int(late.sum())} late edges, {done['rows_pushed']:,} of {graph.num_nodes:,} rows pushed again")
    print(f"    before {before:.2f}, partial_fit {after:.2f}, refit {fresh:.2f}")
    print(f"    {columns}, {updating:.2f} s against {fitting:.2f} s")
    print(f"    captured energy {done['captured_before']:.2%} before, {done['captured_after']:.2%} after")


def area(links: fg.LinkPredictor, split: Any, ids: Any) -> float:
    return 100 * roc_auc(links.score_pairs(ids[split.held_out]), links.score_pairs(ids[split.negatives]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", nargs="+", default=DATASETS)
    print(header())
    for name in parser.parse_args().dataset:
        graph = whole_graph(fg.load_dataset(name))
        print(f"{name}, {graph.num_nodes:,} nodes, {graph.num_edges:,} edges")
        new_nodes(graph)
        late_edges(graph)


if __name__ == "__main__":
    main()
