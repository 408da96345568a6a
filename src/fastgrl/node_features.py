"""Closed-form features of nodes, for any scikit-learn pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fastgrl.checks import Array, integer, shown
from fastgrl.co_ridge import STRUCTURE_WALK
from fastgrl.co_ridge_grids import recipe_for
from fastgrl.devices import working_on
from fastgrl.errors import ArgumentError
from fastgrl.graph import Graph
from fastgrl.ids import as_ids
from fastgrl.inputs import as_graph, seed_of
from fastgrl.jkn_features import structure_factors, structure_of
from fastgrl.node_inputs import as_features
from fastgrl.node_models import NodeInputs
from fastgrl.parallel import single_threaded_blas
from fastgrl.view_bases import Surroundings, projection_of
from fastgrl.views import FeatureMap
from fastgrl.walks import finite_number


class NodeFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Map node ids to features of the nodes' surroundings, for any scikit-learn pipeline.

    They are what the co-ridge of `NodeClassifier` regresses on: features smoothed along the graph and
    projected to few columns. Graph and features belong to the transformer, so that ids, the rows of a table,
    can be split by `GridSearchCV` and the like.

    Args:
        graph: a `Graph`, or anything that `NodeClassifier.fit` takes for one.
        features: n×d, sparse or dense, in the order of `graph.node_ids`; None: the graph alone.
        n_components: columns that are kept, where there are as many (None: 128, or 100 from 100 000 nodes
            on).
        restart: how near features are gathered from, above 0 and at most 1; smaller is farther.
        view: "l" or "i", as of `NodeClassifier`.
        random_state: an integer, for the same bits every time; a NumPy generator, or None for fresh
            randomness.
        device: as of `NodeClassifier`.

    Attributes:
        embedding_ (ndarray): n×k, the features of all nodes.
        graph_ (Graph): the graph.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
    >>> model = make_pipeline(fg.NodeFeatures(friends), LogisticRegression())
    >>> model.fit(["ann", "eve"], ["tea", "coffee"]).predict(["bob", "dan"]).tolist()
    ['tea', 'coffee']
    """

    def __init__(
        self,
        graph: Any = None,
        *,
        features: Any = None,
        n_components: int | None = None,
        restart: float = 0.15,
        view: str = "l",
        random_state: Any = 0,
        device: Any = None,
    ) -> None:
        self.graph = graph
        self.features = features
        self.n_components = n_components
        self.restart = restart
        self.view = view
        self.random_state = random_state
        self.device = device

    def fit(self, nodes: Any = None, y: Any = None) -> NodeFeatures:
        """Compute the features of all nodes of the graph; `nodes` and `y` change nothing.

        >>> fg.NodeFeatures([(0, 1), (1, 2)]).fit().embedding_.shape[0]
        3
        """
        del nodes, y
        if self.graph is None:
            raise ArgumentError("NodeFeatures needs a graph: NodeFeatures(graph, features=X)")
        if self.view not in ("l", "i"):
            raise ArgumentError(f'view must be "l" or "i", got {shown(self.view)}')
        graph = as_graph(self.graph)
        restart = finite_number("restart", self.restart, least=0.0)
        if not 0 < restart <= 1:
            raise ArgumentError(f"restart must be above 0 and at most 1, got {shown(self.restart)}")
        rank = (
            recipe_for(graph.num_nodes).rank
            if self.n_components is None
            else integer("n_components", self.n_components, least=1)
        )
        seed = seed_of(self.random_state)
        with single_threaded_blas(), working_on(self.device):
            around, view = _surroundings(graph, as_features(self.features, graph.num_nodes), self.view, seed)
            V = projection_of(around, view, rank=rank, seed=seed)
            found = around.coordinates(view, around.projected(view, V), restart=restart)
        self.graph_, self.embedding_ = graph, found.Z
        return self

    def transform(self, nodes: Any) -> Array:
        """m×k features of the nodes with the given ids, a list or one column.

        >>> fg.NodeFeatures([("ann", "bob"), ("bob", "cy")]).fit().transform(["cy"]).shape[0]
        1
        """
        check_is_fitted(self)
        column = np.asarray(nodes)
        ids = column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else nodes
        return np.asarray(self.embedding_[self.graph_.index_of(as_ids(ids, "nodes"))])

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns of `transform`, for data frames; `input_features` changes nothing.

        >>> features = fg.NodeFeatures([(0, 1), (1, 2)], n_components=2).fit()
        >>> features.get_feature_names_out().tolist()
        ['nodefeatures0', 'nodefeatures1']
        """
        del input_features
        check_is_fitted(self)
        names = [f"nodefeatures{number}" for number in range(self.embedding_.shape[1])]
        return np.array(names, dtype=object)


def _surroundings(graph: Graph, X: Any, view: str, seed: int) -> tuple[Surroundings, str]:
    inputs = NodeInputs(graph, X)
    if X is None:
        walk = structure_factors(graph, "jkn", seed=seed, **STRUCTURE_WALK).svd
        inputs, view = NodeInputs(graph, None, structure_of(walk)), "s"
    return Surroundings(inputs, FeatureMap.of(inputs)), view
