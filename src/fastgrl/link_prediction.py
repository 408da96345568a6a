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
    """Predict the missing links of a graph in closed form.

    The paper's designs factorise M = Σ cᵢTⁱ − λ(11' − A), i = 1 … C, with cᵢ = C − i + 1 and T = D⁻¹A, and a
    pair (u, v) scores `left_[u] · right_[v]`. The default design factorises the logarithm of a diffusion
    instead, and weighs it beside degrees by a logistic regression on edges that it holds out.

    Args:
        design: "log-diffusion", the default and mostly the most accurate; "walk", the matrix M above as the
            paper prints it; "degree-walk", D Σ cᵢTⁱ − λ(11' − A), with walks that start in proportion to
            degree; "as-released", the two products of the paper's program; "shrunken", a ridge-shrunken
            spectrum of the adjacency matrix, for dense graphs. The last two take undirected graphs only.
        n_components: columns of the embedding. None is 64 for log-diffusion, 512 for shrunken, 32 for the
            others. log-diffusion spends two of them on degrees unless fewer than 4 are asked for.
        select: choose settings by holding out training edges (as-released has none to choose). False takes
            the values below; log-diffusion then still holds out edges once, to fit its scorer.
        window: steps of a walk C, of the paper's designs. None is chosen, or 5 where nothing is.
        negative: weight of non-edges λ, of the paper's designs. None is chosen, or 1 for walk and 3 for the
            others where nothing is.
        damping: chance that a walk goes on, between 0 and 1: how far a diffusion reaches. For log-diffusion
            with `select=False`; a selection tries 0.5, 0.7, 0.85 and 0.92.
        bipartite: the graph has two sides, such as users and items, and links run between them only.
        random_state: an integer, for the same bits every time; a NumPy generator, or None for fresh
            randomness.
        n_jobs: threads (None or −1: all there are); the result does not depend on it.
        max_memory: bytes that the whole process may hold. A fit that would need more computes in narrower
            panels or keeps tall arrays on disk (the same bits); log-diffusion then keeps fewer entries of
            each row (and says so in `notices_`); what cannot be done is refused before any work.
        device: None computes with NumPy. "cpu", "cuda", "cuda:1" or a `torch.device` factorises with PyTorch
            there: all sparse products and dense blocks. The forward push of a diffusion, choosing settings
            by what was factorised, scores and recommendations stay on the host. The same seed then gives the
            same scores to rounding, not bit for bit, and PyTorch's threads are its own. Tested on "cpu"
            only. Devices without float64 ("mps") are refused, and so is `max_memory` beside it.

    Attributes:
        left_: n×n_components, the vectors of nodes as the first of a pair. `left_[u] · right_[v]` is the
            score of the link u → v, but for log-diffusion, whose `score_pairs` knows more than the vectors
            hold.
        right_: the vectors of nodes as the second of a pair.
        embedding_: `left_` by another name.
        singular_values_: of the matrix that was factorised, largest first.
        certificate_: how good the factorisation is, a `Certificate`, measured when first asked for.
        node_ids_: the ids of the rows of the embedding.
        graph_: the graph that was fitted, with the edges of later updates.
        chosen_ (dict): the settings in use, by name, chosen or given.
        validation_ (dict): figures on the edges held out (`roc_auc`, `average_precision`, `pairs`); empty
            where none were. Settings were chosen on them, so they are a little optimistic.
        near_best_ (list): the settings of "shrunken" that did nearly as well; empty for others.
        seconds_ (dict): how long choosing ("select") and fitting ("fit") took.
        notices_ (list): sentences about what was odd; usually none.
        update_ (dict): what the last `partial_fit` did; only there after one.
        n_features_in_ (int): the number of nodes, for scikit-learn.

    >>> friends = [("ann", "bob"), ("ann", "cy"), ("bob", "cy"), ("bob", "dan")]
    >>> friends += [("cy", "dan"), ("dan", "eve")]
    >>> links = fg.LinkPredictor(n_components=4, random_state=0).fit(friends)
    >>> links.recommend("ann", k=1).targets.tolist()
    ['dan']
    >>> near, far = links.score_pairs([("ann", "dan"), ("ann", "eve")])
    >>> bool(near > far), links.embedding_.shape
    (True, (5, 4))

    Reference: Abu-El-Haija, Crespi, Ver Steeg, Galstyan, *Fast Graph Learning with Unique Optimal Solutions*,
    2021.
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
        """Learn from the edges of a graph; returns the predictor itself.

        `graph` is a `Graph`, pairs of ids, a square adjacency matrix, or a graph of networkx, igraph or
        PyTorch Geometric. `validation` lists pairs of ids that are known to be links though the graph does
        not have them, or is a tuple (links, others) with pairs known to be none; settings are then chosen on
        them. `progress(done, total)` is called now and then. `y` is ignored.

        >>> links = fg.LinkPredictor(design="degree-walk", n_components=2)
        >>> links.fit([(0, 1), (1, 2), (2, 0), (2, 3)]).chosen_["design"]
        'degree-walk'
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
        """What `fit` would cost in bytes and products, as an `Estimate`, without fitting.

        For log-diffusion a sample of rows is pushed to see how long they get.

        >>> graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 0)])
        >>> fg.LinkPredictor(design="walk", n_components=2).cost(graph).peak_bytes > 0
        True
        """
        return cost_of(self._parameters(), graph)

    def plan(self, graph: Graph) -> MemoryPlan:
        """How `fit` would stay within `max_memory`, which must be set; `UnavailableError` if there is no way.

        >>> graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 0)])
        >>> links = fg.LinkPredictor(design="walk", n_components=2, max_memory=10**12)
        >>> links.plan(graph).words()
        'as usual'
        """
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
        """One vector per node, n×n_components; `left_[u] · right_[v]` says how likely the link u → v is.

        It is the score itself but for log-diffusion, whose `score_pairs` knows more than the vectors hold.
        Approximate search looks for candidates by it.
        """
        check_is_fitted(self)
        return self._run.left

    @functools.cached_property
    def right_(self) -> Array:
        """One vector per node as the second of a pair, n×n_components."""
        check_is_fitted(self)
        return self._run.right

    @property
    def embedding_(self) -> Array:
        """One vector per node, n×n_components: those of `left_`."""
        return self.left_

    @property
    def singular_values_(self) -> Array:
        """The singular values of the matrix that was factorised, largest first."""
        check_is_fitted(self)
        return self._run.fit.model.singular_values

    @functools.cached_property
    def certificate_(self) -> Certificate:
        """How good the factorisation is: a `Certificate`, measured when it is first asked for."""
        check_is_fitted(self)
        with calm_threads(self.n_jobs), self._run.planned():
            return link_updates.certify(self._run.graph, self._run.fit)

    def __sklearn_is_fitted__(self) -> bool:
        return "_run" in self.__dict__

    def score_pairs(self, pairs: Any) -> Array:
        """A score for every pair of ids, as an array; larger means likelier.

        `pairs` is an (m, 2) array or an iterable of pairs. log-diffusion gives log-odds against as many
        non-edges as edges; the scores of other designs tell an order only. Pairs that are edges already are
        scored like others.

        >>> links = fg.LinkPredictor(design="walk", n_components=2)
        >>> links = links.fit([(0, 1), (1, 2), (2, 0), (2, 3)])
        >>> links.score_pairs([(0, 3), (1, 3)]).shape
        (2,)
        """
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
        """The `k` best missing links of each of `nodes` (an id or several; None: all), known ones left out.

        `candidates` lists the ids that may be recommended. Every pair is scored, unless `approximate`: then
        an index of `right_` finds the best by dot product, and only these are scored (it needs the extra
        `ann`; with `candidates` or two sides all pairs are scored all the same). The result has the arrays
        `nodes`, `targets` and `scores`, and `as_dict()`. `progress(done, total)` is called now and then.

        >>> paths = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
        >>> links = fg.LinkPredictor(design="walk", n_components=3).fit(paths)
        >>> links.recommend("ann", k=5, candidates=["bob", "cy"]).targets.tolist()
        ['cy']
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
        """Vectors and scores for nodes that are new, from their edges; the model stays as it is.

        `new_edges` are pairs of ids (or triples with a weight) that join nodes the model does not know to
        nodes it knows; `weights` may give the weights instead. The result has `node_ids`, `left` and `right`,
        `score_pairs` and `recommend`; its `trust` says how much of each new node, from 0 to 1, the model can
        represent.

        >>> links = fg.LinkPredictor(n_components=4).fit([(0, 1), (1, 2), (2, 0), (2, 3)])
        >>> new = links.transform([("zoe", 0), ("zoe", 1)])
        >>> new.recommend(k=1).targets.tolist()
        [2]
        """
        check_is_fitted(self)
        with calm_threads(self.n_jobs):
            return link_updates.fold_in_nodes(self._run.graph, self._run.fit, new_edges, weights)

    def partial_fit(
        self, new_edges: Any, *, weights: Any = None, progress: Progress | None = None
    ) -> LinkPredictor:
        """Take in new edges, and nodes that come with them, from where the last fit ended.

        `new_edges` are pairs of ids, or triples with a weight; `weights` may give the weights instead.
        Settings and scorer stay. `update_` says how much of the matrix was captured before and is after, and
        how many columns were multiplied beside those of a fit from the beginning. `progress(done, total)` is
        called now and then. Without an earlier fit this is `fit`.

        >>> links = fg.LinkPredictor(n_components=4).fit([(0, 1), (1, 2), (2, 0), (2, 3)])
        >>> links.partial_fit([("zoe", 0), ("zoe", 1)]).update_["new_nodes"]
        1
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
        """Write the model to a folder, which `fg.load` reads; an existing one is replaced with `force` only.

        >>> from tempfile import TemporaryDirectory
        >>> links = fg.LinkPredictor(n_components=2).fit([("ann", "bob"), ("bob", "cy")])
        >>> with TemporaryDirectory() as folder:
        ...     links.save(f"{folder}/friends")
        ...     fg.load(f"{folder}/friends").node_ids_.tolist()
        ['ann', 'bob', 'cy']
        """
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
    """Hold out edges at random, fit on the rest, and score them beside as many non-edges; `n_splits` times.

    A graph cannot be cut by rows, so this takes the place of scikit-learn's function of the same name. Each
    time a `fraction` of the edges is held out, from a seed that `random_state` begins with. The result maps
    `test_roc_auc`, `test_average_precision`, `fit_seconds` and `score_seconds` to arrays of `n_splits`
    numbers. The estimator itself is not fitted: each split fits a clone.

    >>> from fastgrl.datasets import block_model
    >>> links = fg.LinkPredictor(design="degree-walk", select=False, n_components=8)
    >>> graph = block_model(400, num_classes=4, seed=0).graph
    >>> found = fg.cross_validate(links, graph, n_splits=2)
    >>> found["test_roc_auc"].shape, bool(found["test_roc_auc"].min() > 0.6)
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
