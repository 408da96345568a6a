"""Link prediction: a scikit-learn estimator over plain functions.

Reference: Abu-El-Haija, Crespi, Ver Steeg, Galstyan, *Fast Graph Learning with Unique Optimal Solutions*,
2021, whose model is the design "walk"; the other designs are described in `link_fits`.
"""

from __future__ import annotations

import difflib
import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from fastgrl import link_updates
from fastgrl.bipartite import checked_sides, sample_across
from fastgrl.certificates import Certificate
from fastgrl.checks import Array, integer, shown
from fastgrl.errors import ArgumentError, InputError
from fastgrl.estimate import DEFAULT_RANKS, Estimate, check_memory, estimate_links
from fastgrl.graph import Graph
from fastgrl.inputs import as_graph, ids_of, seed_of, threads_of
from fastgrl.link_fits import DESIGNS, fit_links
from fastgrl.link_inputs import codes_of, known_pairs
from fastgrl.link_models import Fit, Settings, figures
from fastgrl.link_ranking import recommend_links
from fastgrl.link_storage import Parts, parts_of, save_parts
from fastgrl.link_updates import NewNodes
from fastgrl.ordering import canonical_order, reordered
from fastgrl.parallel import single_threaded_blas, use_threads
from fastgrl.progress import Progress
from fastgrl.push import mean_row_length
from fastgrl.ranking import Recommendations
from fastgrl.splits import split_edges
from fastgrl.storage import Stored


class LinkPredictor(BaseEstimator):  # type: ignore[misc]
    """Predict missing links of a graph in closed form.

    Parameters
    ----------
    design: "log-diffusion" (the default, most accurate); the paper's matrix "walk" as printed,
        "degree-walk" with a consistent transpose, "as-released" as its program computed it; "shrunken", a
        ridge-shrunken spectrum for dense graphs.
    n_components: columns of the embedding (None: 64 for log-diffusion, 32 for the paper's, 512 for shrunken).
        log-diffusion spends two of them on degrees unless fewer than 4 are asked for.
    select: choose settings by holding out training edges; False takes the defaults below, and one hold-out
        to fit the scorer.
    window, negative: steps of a walk C and weight of non-edges λ, for the paper's designs.
    damping: how far a diffusion reaches, for log-diffusion without selection.
    bipartite: the graph has two sides, and links run between them only.
    random_state: an integer, for the same bits every time; a NumPy generator, or None for fresh randomness.
    n_jobs: threads (None: all there are); the result does not depend on it.
    max_memory: refuse a fit that would need more bytes than this.

    >>> graph = fg.load_dataset("digits").graph
    >>> links = fg.LinkPredictor(select=False, n_components=16).fit(graph)
    >>> links.score_pairs([(0, 1), (0, 36)]).shape
    (2,)
    >>> links.recommend([0], k=2).targets.shape
    (2,)
    """

    def __init__(
        self,
        *,
        design: str = "log-diffusion",
        n_components: int | None = None,
        select: bool = True,
        window: int | None = None,
        negative: float | None = None,
        damping: float = 0.85,
        bipartite: bool = False,
        random_state: Any = 0,
        n_jobs: int | None = None,
        max_memory: int | None = None,
    ) -> None:
        self.design = design
        self.n_components = n_components
        self.select = select
        self.window = window
        self.negative = negative
        self.damping = damping
        self.bipartite = bipartite
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.max_memory = max_memory

    def fit(
        self, graph: Any, y: Any = None, *, validation: Any = None, progress: Progress | None = None
    ) -> LinkPredictor:
        """Fit to a `Graph`, or to anything `as_graph` takes; `y` is ignored.

        `validation` lists pairs of ids that are known to be links though the graph does not have them, or is
        a tuple (links, others); settings are then chosen on them.
        """
        del y
        graph = as_graph(graph)
        settings = self._settings(graph)
        order = canonical_order(graph.node_ids)
        position = None if order is None else np.argsort(order)
        known_order = graph if order is None else reordered(graph, order)
        known = None if validation is None else known_pairs(known_order, validation)
        # Found in the caller's order: with edges written "user, item", users are side 0.
        sides = checked_sides(graph) if settings.bipartite else None
        sides = sides if sides is None or order is None else sides[order]
        with self._threads():
            fit = fit_links(known_order, settings, known=known, sides=sides, progress=progress)
        self._keep(known_order, position, fit)
        return self

    def _keep(self, graph: Graph, position: Array | None, fit: Fit) -> None:
        for name in ("graph_", "certificate_", "left_", "right_", "update_"):
            self.__dict__.pop(name, None)
        self._graph, self._position, self._fit = graph, position, fit
        self.chosen_ = dict(fit.chosen)
        self.validation_, self.seconds_ = dict(fit.validation), dict(fit.seconds)
        self.notices_, self.near_best_ = list(fit.notices), list(fit.near_best)
        self.n_features_in_ = graph.num_nodes

    def _settings(self, graph: Graph) -> Settings:
        if self.design not in DESIGNS:
            near = difflib.get_close_matches(str(self.design), DESIGNS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ArgumentError(f"design must be one of {', '.join(DESIGNS)}, got {shown(self.design)}{hint}")
        if graph.num_nodes < 2:
            raise ArgumentError(f"{graph!r} has no two nodes to predict a link between")
        if graph.num_edges == 0:
            raise ArgumentError(f"{graph!r} has no edges to learn from")
        self._check_numbers()
        rank = DEFAULT_RANKS[self.design] if self.n_components is None else self.n_components
        rank = integer("n_components", rank, least=1, most=max(_MOST_COMPONENTS, graph.num_nodes))
        if self.max_memory is not None:
            check_memory(self.cost(graph), integer("max_memory", self.max_memory, least=1))
        window = None if self.window is None else integer("window", self.window, least=1)
        return Settings(
            design=self.design,
            n_components=rank,
            select=bool(self.select),
            window=window,
            negative=self.negative,
            damping=self.damping,
            bipartite=bool(self.bipartite),
            seed=seed_of(self.random_state),
        )

    def _check_numbers(self) -> None:
        if not isinstance(self.select, bool | np.bool_):
            raise ArgumentError(f"select must be True or False, got {shown(self.select)}")
        if not isinstance(self.damping, int | float | np.floating) or not 0 < self.damping < 1:
            raise ArgumentError(f"damping must be between 0 and 1, got {shown(self.damping)}")
        real = isinstance(self.negative, int | float | np.number | None)
        if not real or (self.negative is not None and not 0 <= self.negative < np.inf):
            raise ArgumentError(f"negative must be a finite number of at least 0, got {shown(self.negative)}")
        threads_of(self.n_jobs)

    def cost(self, graph: Graph) -> Estimate:
        """What `fit` would cost; for log-diffusion a sample of rows is pushed to see how long they get."""
        rank = None
        if self.n_components is not None:
            rank = min(integer("n_components", self.n_components, least=1), graph.num_nodes)
        length = mean_row_length(graph, damping=self.damping) if self.design == "log-diffusion" else None
        return estimate_links(
            graph, design=self.design, rank=rank, window=self.window, select=self.select, row_length=length
        )

    @contextmanager
    def _threads(self) -> Iterator[None]:
        with use_threads(threads_of(self.n_jobs)), single_threaded_blas():
            yield

    @property
    def node_ids_(self) -> Array:
        """The ids of the rows of `embedding_`, in the order of the graph that was fitted."""
        check_is_fitted(self)
        return self._in_given_order(self._graph.node_ids)

    @functools.cached_property
    def graph_(self) -> Graph:
        """The graph that was fitted, with the edges of later updates."""
        check_is_fitted(self)
        return self._graph if self._position is None else reordered(self._graph, self._position)

    @functools.cached_property
    def left_(self) -> Array:
        """One vector per node, n×n_components: `left_[u] · right_[v]` is a score of the link u → v."""
        check_is_fitted(self)
        return self._in_given_order(self._fit.model.left)

    @functools.cached_property
    def right_(self) -> Array:
        """The vectors of the second node of a pair."""
        check_is_fitted(self)
        return self._in_given_order(self._fit.model.right)

    @property
    def embedding_(self) -> Array:
        """The vectors of `left_`."""
        return self.left_

    @property
    def singular_values_(self) -> Array:
        """Of the matrix that was factorised, largest first."""
        check_is_fitted(self)
        return self._fit.model.singular_values

    @functools.cached_property
    def certificate_(self) -> Certificate:
        """How good the factorisation is, measured when it is first asked for."""
        check_is_fitted(self)
        with self._threads():
            return link_updates.certify(self._graph, self._fit)

    def _in_given_order(self, rows: Array) -> Array:
        return rows if self._position is None else rows[self._position]

    def __sklearn_is_fitted__(self) -> bool:
        return "_fit" in self.__dict__

    def score_pairs(self, pairs: Any) -> Array:
        """A score for every pair of ids; larger means likelier. log-diffusion gives log-odds."""
        check_is_fitted(self)
        with self._threads():
            return np.asarray(self._fit.model.score(codes_of(self._graph, pairs)), np.float64)

    def recommend(
        self,
        nodes: Any = None,
        *,
        k: int = 10,
        candidates: Any = None,
        approximate: bool = False,
        progress: Progress | None = None,
    ) -> Recommendations:
        """The `k` best missing links of each of `nodes` (ids; None: of all), known ones left out.

        `candidates` restricts whom to recommend. `approximate` scores only the best by the plain dot product
        that an index of `right_` finds (the extra [ann]), instead of every pair; not with `candidates` or
        sides, where all pairs are scored.
        """
        check_is_fitted(self)
        queries = self.node_ids_ if nodes is None else ids_of(nodes, "nodes")
        among = None if candidates is None else self._graph.index_of(ids_of(candidates, "candidates"))
        with self._threads():
            return recommend_links(
                self._fit.model,
                self._graph,
                self._graph.index_of(queries),
                k=k,
                candidates=among,
                sides=self._fit.sides,
                approximate=approximate,
                progress=progress,
            )

    def transform(self, new_edges: Any, *, weights: Any = None) -> NewNodes:
        """Vectors and scores for nodes that are new, from their edges, without a refit.

        `new_edges` are pairs of ids (or triples with a weight) that join nodes the model does not know to
        nodes it knows. `trust` of the result says how much of each new node the model can represent.
        """
        check_is_fitted(self)
        with self._threads():
            return link_updates.fold_in_nodes(self._graph, self._fit, new_edges, weights)

    def partial_fit(
        self, new_edges: Any, *, weights: Any = None, progress: Progress | None = None
    ) -> LinkPredictor:
        """Take in new edges, and nodes that come with them, from where the last fit ended.

        Settings and scorer stay. `update_` says how much of the matrix is captured before and after, and how
        many product columns that took beside a fit from the beginning.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(Graph.from_edges(new_edges, weights=weights), progress=progress)
        with self._threads():
            updated = link_updates.update(
                self._graph,
                self._fit,
                new_edges,
                weights=weights,
                seed=seed_of(self.random_state),
                progress=progress,
            )
        position = None
        if self._position is not None:
            fresh = np.arange(self._graph.num_nodes, updated.graph.num_nodes)
            position = np.concatenate([self._position, fresh])
        self._keep(updated.graph, position, updated.fit)
        self.update_ = updated.figures
        return self

    def save(self, folder: Any, *, force: bool = False) -> None:
        """Write the model to a folder; `fg.load` reads it."""
        check_is_fitted(self)
        certificate = self.__dict__.get("certificate_")
        parts = Parts(self.get_params(), self._graph, self._position, self._fit, certificate)
        save_parts(parts, folder, force=force)


_MOST_COMPONENTS = 4096


def link_predictor_of(stored: Stored, name: Any) -> LinkPredictor:
    """The predictor that was saved as `stored`; `name` is what errors call it."""
    parts = parts_of(stored, name)
    try:
        links = LinkPredictor(**parts.parameters)
    except TypeError as error:
        raise InputError(f"{shown(str(name))} has parameters that are not known here: {error}") from error
    links._keep(parts.graph, parts.position, parts.fit)
    if parts.certificate is not None:
        links.certificate_ = parts.certificate
    return links


def embed(
    graph: Any,
    rank: int = 64,
    *,
    design: str = "log-diffusion",
    select: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    n_threads: int | None = None,
) -> Array:
    """One vector per node, n×rank, in the order of `graph.node_ids`: the `embedding_` of a `LinkPredictor`.

    >>> fg.embed(fg.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)]), 2).shape
    (4, 2)
    """
    links = LinkPredictor(
        design=design, n_components=rank, select=select, random_state=seed, n_jobs=n_threads
    )
    return links.fit(graph, progress=progress).embedding_


def cross_validate(
    estimator: LinkPredictor,
    graph: Any,
    *,
    n_splits: int = 5,
    fraction: float = 0.1,
    random_state: Any = 0,
) -> dict[str, Array]:
    """Hold out edges at random, fit on the rest, score; as often as `n_splits` says.

    A graph cannot be cut by rows, so this takes the place of scikit-learn's function of the same name, whose
    names it gives its results: `test_roc_auc`, `test_average_precision`, `fit_seconds`, `score_seconds`.

    >>> graph = fg.load_dataset("digits").graph
    >>> found = fg.cross_validate(fg.LinkPredictor(select=False, n_components=8), graph, n_splits=2)
    >>> found["test_roc_auc"].shape, bool(found["test_roc_auc"].min() > 0.9)
    ((2,), True)
    """
    graph, seed = as_graph(graph), seed_of(random_state)
    rows = []
    for number in range(integer("n_splits", n_splits, least=1)):
        split = split_edges(graph, fraction=fraction, seed=seed + number)
        others = split.negatives
        if estimator.bipartite:
            others = sample_across(graph, checked_sides(graph), len(split.held_out), seed=seed + number)
        begin = time.perf_counter()
        model = clone(estimator).fit(split.train)
        fitted = time.perf_counter()
        pairs = graph.node_ids[np.concatenate([split.held_out, others])]
        found = figures(model.score_pairs(pairs), len(split.held_out))
        rows.append(
            {
                "test_roc_auc": found["roc_auc"],
                "test_average_precision": found["average_precision"],
                "fit_seconds": fitted - begin,
                "score_seconds": time.perf_counter() - fitted,
            }
        )
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
