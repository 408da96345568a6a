"""From a folder of edge lists to a folder of vectors, on workers all the way."""

from __future__ import annotations

from typing import Any

from fastgrl.checks import integer, shown
from fastgrl.costs import DIFFUSION_ROUNDS
from fastgrl.diffusion_links import LEAST_WITH_DEGREES, QUICK_KEEP, QUICK_ROUNDS
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.diffusions import build_space, embedded
from fastgrl.distributed.graphs import DistributedGraph
from fastgrl.distributed.hold_outs import fitted_dot_scorer
from fastgrl.distributed.loading import load_graph
from fastgrl.distributed.talls import Tall
from fastgrl.distributed.writing import Result, vectors_written
from fastgrl.errors import ArgumentError
from fastgrl.estimate import DEFAULT_RANKS
from fastgrl.io.layout import Options
from fastgrl.progress import Progress, portions
from fastgrl.push import KEEP
from fastgrl.stopwatch import Stopwatch
from fastgrl.walks import walk_svd

DESIGNS = ("log-diffusion", "degree-walk", "walk")


def embed_folder(
    cluster: Cluster,
    source: str,
    out: str,
    *,
    design: str = "log-diffusion",
    rank: int | None = None,
    window: int | None = None,
    negative: float | None = None,
    damping: float = 0.85,
    quick: bool = False,
    seed: int = 0,
    side: str = "left",
    directed: bool = False,
    options: Options | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Embed the graph in a folder of Parquet edge lists into a folder of Parquet files, one for every block.

    `source` and `out` are paths that all workers share, or addresses that fsspec knows; an `out` that is
    there, and holds nothing else, is replaced with `force` only. `design` is "log-diffusion", "degree-walk"
    or "walk", whose settings have the names that `LinkPredictor` gives them; `rank` is the number of columns,
    `side` "left" or "right". `options` says which columns of the files are which. Nodes come in the order of
    their ids. The vectors are, bit for bit, those of one process. Returns counts, settings, names of files
    and seconds.

        with connected("tcp://host:8786") as cluster:
            embed_folder(cluster, "s3://bucket/edges", "s3://bucket/vectors", design="degree-walk")
    """
    result = Result(out, force, inputs=(source,))
    result.check()
    if design not in DESIGNS:
        raise ArgumentError(f"on a cluster the design is one of {', '.join(DESIGNS)}, got {shown(design)}")
    watch = Stopwatch()
    graph = load_graph(cluster, source, options=options, directed=directed)
    usual = min(DEFAULT_RANKS[design], graph.num_nodes)
    columns = integer("rank", usual if rank is None else rank, least=1, most=graph.num_nodes)
    watch.stop("read")
    how: dict[str, Any] = {"columns": columns, "side": side, "seed": seed, "progress": progress}
    if design == "log-diffusion":
        vectors, values = _diffusion_vectors(graph, damping=damping, quick=quick, **how)
    else:
        vectors, values = _walk_vectors(graph, design, window=window, negative=negative, **how)
    watch.stop("fit")
    files = vectors_written(cluster, result, graph.ids, vectors.futures)
    watch.stop("write")
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "design": design,
        "rank": columns,
        "seed": seed,
        "side": side,
        "blocks": len(graph.csr.parts),
        "out": out,
        "files": files,
        "singular_values": [float(value) for value in values[:8]],
        "seconds": watch.seconds,
    }


def _walk_vectors(
    graph: DistributedGraph,
    design: Any,
    *,
    columns: int,
    side: str,
    seed: int,
    window: int | None,
    negative: float | None,
    progress: Progress | None,
) -> tuple[Tall, Any]:
    from fastgrl.walk_links import WINDOW

    how = {"window": WINDOW if window is None else window, "negative": negative}
    _, svd = walk_svd(graph, design, rank=columns, seed=seed, progress=progress, **how)  # type: ignore[arg-type]
    roots = svd.s**0.5
    return (svd.U if side == "left" else svd.Vt.T) * roots, svd.s


def _diffusion_vectors(
    graph: DistributedGraph,
    *,
    columns: int,
    side: str,
    seed: int,
    damping: float,
    quick: bool,
    progress: Progress | None,
) -> tuple[Tall, Any]:
    rank = columns - 2 if columns >= LEAST_WITH_DEGREES else columns
    keep, rounds = (QUICK_KEEP, QUICK_ROUNDS) if quick else (KEEP, DIFFUSION_ROUNDS)
    how: dict[str, Any] = {"keep": keep, "rounds": rounds, "damping": damping}
    learns = rank < columns and not quick
    learning, fitting = portions(progress, [1, 1] if learns else [1e-9, 1])
    scorer = fitted_dot_scorer(graph, rank=rank, seed=seed, progress=learning, **how) if learns else None
    space = build_space(graph, rank=rank, seed=seed, progress=fitting, **how)
    vectors = embedded(space, n_components=columns, side=side, dot_scorer=scorer)
    return vectors, space.singular_values
