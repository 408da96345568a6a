"""Link prediction: a scikit-learn estimator over plain functions.

Reference: Abu-El-Haija, Crespi, Ver Steeg, Galstyan, *Fast Graph Learning with Unique Optimal Solutions*,
2021, whose model is the design "walk"; the other designs are described in `link_fits`.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from fastgrl import link_updates
from fastgrl.bipartite import checked_sides, sample_across
from fastgrl.certificates import Certificate
from fastgrl.checks import Array, integer, shown
from fastgrl.devices import working_on
from fastgrl.errors import InputError
from fastgrl.estimate import Estimate
from fastgrl.graph import Graph
from fastgrl.inputs import as_graph, ids_of, seed_of
from fastgrl.link_inputs import codes_of
from fastgrl.link_models import figures
from fastgrl.link_ranking import recommend_links
from fastgrl.link_runs import LinkRun, Parameters, calm_threads, cost_of, fit_graph, plan_of
from fastgrl.link_storage import Parts, parts_of, save_parts
from fastgrl.link_updates import NewNodes
from fastgrl.memory_plans import MemoryPlan
from fastgrl.ordering import reordered
from fastgrl.progress import Progress
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
    max_memory: bytes that the whole process may hold. A fit that would need more computes in narrower panels
        or keeps tall arrays on disk (the same bits); log-diffusion then keeps fewer entries of each row (and
        says so); what cannot be done is refused before any work.
    device: None computes with NumPy. "cpu", "cuda", "cuda:1" or a `torch.device` factorises with PyTorch
        there: all its sparse products and dense blocks. The forward push of a diffusion, choosing settings by
        what was factorised, scores and recommendations stay on the host, and the result comes back to it. The
        same seed then gives the same scores to rounding, not bit for bit, and PyTorch's threads are its own.
        Tested on "cpu" only, since no GPU was at hand. Devices without float64 ("mps") are refused, and
        `max_memory` beside it.

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
        device: Any = None,
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
        self.device = device

    def fit(
        self, graph: Any, y: Any = None, *, validation: Any = None, progress: Progress | None = None
    ) -> LinkPredictor:
        """Fit to a `Graph`, or to anything `as_graph` takes; `y` is ignored.

        `validation` lists pairs of ids that are known to be links though the graph does not have them, or is
        a tuple (links, others); settings are then chosen on them.
        """
        del y
        self._keep(fit_graph(graph, self._parameters(), validation=validation, progress=progress))
        return self

    def _parameters(self) -> Parameters:
        return Parameters(**self.get_params())

    def _keep(self, run: LinkRun) -> None:
        for name in ("graph_", "certificate_", "left_", "right_", "update_"):
            self.__dict__.pop(name, None)
        self._run, fit = run, run.fit
        self.chosen_ = dict(fit.chosen)
        self.validation_, self.seconds_ = dict(fit.validation), dict(fit.seconds)
        self.notices_, self.near_best_ = list(fit.notices), list(fit.near_best)
        self.n_features_in_ = run.graph.num_nodes

    def cost(self, graph: Graph) -> Estimate:
        """What `fit` would cost; for log-diffusion a sample of rows is pushed to see how long they get."""
        return cost_of(self._parameters(), graph)

    def plan(self, graph: Graph) -> MemoryPlan:
        """How `fit` would stay within `max_memory`; refused if there is no way."""
        return plan_of(self._parameters(), graph)

    @property
    def node_ids_(self) -> Array:
        """The ids of the rows of `embedding_`, in the order of the graph that was fitted."""
        check_is_fitted(self)
        return self._run.in_given_order(self._run.graph.node_ids)

    @functools.cached_property
    def graph_(self) -> Graph:
        """The graph that was fitted, with the edges of later updates."""
        check_is_fitted(self)
        run = self._run
        return run.graph if run.position is None else reordered(run.graph, run.position)

    @functools.cached_property
    def left_(self) -> Array:
        """One vector per node, n×n_components: `left_[u] · right_[v]` is a score of the link u → v."""
        check_is_fitted(self)
        return self._run.left

    @functools.cached_property
    def right_(self) -> Array:
        """The vectors of the second node of a pair."""
        check_is_fitted(self)
        return self._run.right

    @property
    def embedding_(self) -> Array:
        """The vectors of `left_`."""
        return self.left_

    @property
    def singular_values_(self) -> Array:
        """Of the matrix that was factorised, largest first."""
        check_is_fitted(self)
        return self._run.fit.model.singular_values

    @functools.cached_property
    def certificate_(self) -> Certificate:
        """How good the factorisation is, measured when it is first asked for."""
        check_is_fitted(self)
        with calm_threads(self.n_jobs), self._run.planned():
            return link_updates.certify(self._run.graph, self._run.fit)

    def __sklearn_is_fitted__(self) -> bool:
        return "_run" in self.__dict__

    def score_pairs(self, pairs: Any) -> Array:
        """A score for every pair of ids; larger means likelier. log-diffusion gives log-odds."""
        check_is_fitted(self)
        with calm_threads(self.n_jobs):
            return np.asarray(self._run.fit.model.score(codes_of(self._run.graph, pairs)), np.float64)

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
        among = None if candidates is None else self._run.graph.index_of(ids_of(candidates, "candidates"))
        with calm_threads(self.n_jobs):
            return recommend_links(
                self._run.fit.model,
                self._run.graph,
                self._run.graph.index_of(queries),
                k=k,
                candidates=among,
                sides=self._run.fit.sides,
                approximate=approximate,
                progress=progress,
            )

    def transform(self, new_edges: Any, *, weights: Any = None) -> NewNodes:
        """Vectors and scores for nodes that are new, from their edges, without a refit.

        `new_edges` are pairs of ids (or triples with a weight) that join nodes the model does not know to
        nodes it knows. `trust` of the result says how much of each new node the model can represent.
        """
        check_is_fitted(self)
        with calm_threads(self.n_jobs):
            return link_updates.fold_in_nodes(self._run.graph, self._run.fit, new_edges, weights)

    def partial_fit(
        self, new_edges: Any, *, weights: Any = None, progress: Progress | None = None
    ) -> LinkPredictor:
        """Take in new edges, and nodes that come with them, from where the last fit ended.

        Settings and scorer stay. `update_` says how much of the matrix is captured before and after, and how
        many product columns that took beside a fit from the beginning.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(Graph.from_edges(new_edges, weights=weights), progress=progress)
        with calm_threads(self.n_jobs), working_on(self.device):
            updated = link_updates.update(
                self._run.graph,
                self._run.fit,
                new_edges,
                weights=weights,
                seed=seed_of(self.random_state),
                progress=progress,
            )
        position = self._run.position
        if position is not None:
            fresh = np.arange(self._run.graph.num_nodes, updated.graph.num_nodes)
            position = np.concatenate([position, fresh])
        self._keep(LinkRun(updated.graph, position, updated.fit))
        self.update_ = updated.figures
        return self

    def save(self, folder: Any, *, force: bool = False) -> None:
        """Write the model to a folder; `fg.load` reads it."""
        check_is_fitted(self)
        certificate = self.__dict__.get("certificate_")
        run = self._run
        parts = Parts(self.get_params(), run.graph, run.position, run.fit, certificate)
        save_parts(parts, folder, force=force)


def link_predictor_of(stored: Stored, name: Any) -> LinkPredictor:
    """The predictor that was saved as `stored`; `name` is what errors call it."""
    parts = parts_of(stored, name)
    try:
        links = LinkPredictor(**parts.parameters)
    except TypeError as error:
        raise InputError(f"{shown(str(name))} has parameters that are not known here: {error}") from error
    links._keep(LinkRun(parts.graph, parts.position, parts.fit))
    if parts.certificate is not None:
        links.certificate_ = parts.certificate
    return links


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
