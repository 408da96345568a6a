"""Node classification: a scikit-learn estimator over plain functions.

Reference: Abu-El-Haija, Crespi, Ver Steeg, Galstyan, *Fast Graph Learning with Unique Optimal Solutions*,
2021, whose model is the design "jkn"; "co-ridge" is described in `co_ridge_fits`.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from fastgrl import explanations
from fastgrl.certificates import Certificate
from fastgrl.checks import Array, integer, shown
from fastgrl.devices import working_on
from fastgrl.errors import ArgumentError, ShapeError
from fastgrl.estimate import check_memory, estimate_nodes
from fastgrl.explanations import Explanation
from fastgrl.graph import Graph
from fastgrl.inputs import as_graph, ids_of, threads_of
from fastgrl.linear_parts import solve
from fastgrl.node_costs import NodeEstimate
from fastgrl.node_fits import calibrated, certified, fit_nodes, predicted_labels, probabilities, thresholds
from fastgrl.node_growth import grown_inputs, new_ids
from fastgrl.node_inputs import as_features, by_index, known_classes, label_of, labels_of, row_of_labels
from fastgrl.node_models import Fitted, NodeFit, NodeSettings, is_sparse
from fastgrl.node_preparation import feature_names_of, in_order, named_classes, telling_inputs
from fastgrl.node_relabelling import relabel_fit
from fastgrl.node_settings import JKN_SETTINGS, settings_of
from fastgrl.node_storage import NodeParts, save_node_parts
from fastgrl.ordering import reordered
from fastgrl.parallel import single_threaded_blas, thread_count, use_threads
from fastgrl.progress import Progress


class NodeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predict the classes of nodes from a few labels, in closed form.

    The default design, "co-ridge", smooths views of the features along the graph, solves a weighted ridge
    regression for each, and lets them teach each other the unlabelled nodes in a few rounds. The paper's
    designs apply the pseudo-inverse of M = [Z, ÂZ, …, Â^L Z] to the known labels, where Z is the PCA of the
    features beside walk vectors of the graph.

    Args:
        design: "co-ridge", the default and mostly the most accurate, or one of the paper's: "jkn" (SVD of the
            labelled rows of M), "jkn-text" (SVD of all of M, as its text says), "jkn-as-released" (as its
            program does it).
        n_components: directions that are kept. None is 128 for co-ridge (100 from 100 000 nodes on); chosen,
            or 30, for the paper's.
        select: choose settings on the validation nodes, or by leave-one-out where there are none. False takes
            the usual values.
        views: which views of the features co-ridge learns from, such as "l" or ("l", "i"). "l" has rows of
            unit length for words and standardised columns for numbers; "i" weighs rare words more, or has
            standardised rows of unit length; "k" is "l" on a graph with edges to similar nodes as well, which
            takes comparing all pairs. None: chosen, or all three below 10 000 nodes and "l" beyond.
        restart: how near features are gathered from in co-ridge, above 0 and at most 1; smaller is farther.
            None: 0.1 or 0.2 by selection, or 0.15.
        ridge: γ, the penalty of co-ridge's regressions, above 0 (None: chosen); makes a ridge of "jkn-text".
        balance: κ of co-ridge, how strongly small classes are favoured in self-training (None: chosen, or
            0.75); 0 does not favour them at all.
        rounds: rounds of self-training in co-ridge (None: 2 or 5 by selection, or 5). With one view and
            `rounds=0` the model is one linear solve.
        hops: L of the paper's designs (None: chosen, or 6).
        window: C, the steps of the walk behind the paper's walk vectors (None: chosen, or 1).
        negative: λ, the weight of non-edges there (None: chosen, or 1).
        class_weight: None weighs every labelled node alike, "balanced" every class alike; or a dictionary
            from classes to weights.
        random_state: an integer, for the same bits every time; a NumPy generator, or None for fresh
            randomness.
        n_jobs: threads (None or −1: all there are); the result does not depend on it.
        max_memory: refuse a fit that would need more bytes than this.
        device: None computes with NumPy. "cpu", "cuda", "cuda:1" or a `torch.device` fits with PyTorch there:
            factorisations, filters along the graph, moments and scores of ridges, the hops of the paper's
            designs. Similar nodes, the PCA, small solves, choosing settings, explanations and predictions
            for new nodes stay on the host. Equal to rounding, not bit for bit, and PyTorch's threads are its
            own. Tested on "cpu" only. Devices without float64 ("mps") are refused, and so is `max_memory`
            beside it.

    Attributes:
        classes_ (ndarray): the classes, in the order of the columns of scores and probabilities.
        multilabel_ (bool): whether a node may have several labels.
        node_ids_: the ids of the nodes, in the order of predictions.
        graph_: the graph that was fitted.
        feature_names_: names of the features, if they have any.
        chosen_ (dict): the settings in use, by name; `averaged` says over how many of the best settings of
            co-ridge the scores are averaged, of which these are the first.
        validation_ (dict): `accuracy` and `nodes` of the validation nodes that settings were chosen on; empty
            where there were none.
        near_best_ (list): the settings that did best where they were chosen, each with its accuracy.
        loo_accuracy_: the share of labelled nodes predicted rightly without their own label; equal to refits
            where the model is one linear solve, else groups of labels are hidden in turns. None: not known.
        temperature_: what scores are divided by to make probabilities.
        certificate_: how good the projection of the features is, a `Certificate`; None for the paper's.
        seconds_ (dict): how long choosing ("select") and fitting ("fit") took.
        notices_ (list): sentences about what was odd; usually none.
        relabelled_ (dict): what the last `relabel` did; only there after one.
        n_features_in_ (int): the number of features.

    >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "ann"), ("cy", "dan")]
    >>> friends += [("dan", "eve"), ("eve", "fay"), ("fay", "dan")]
    >>> nodes = fg.NodeClassifier(random_state=0)
    >>> nodes = nodes.fit(friends, {"ann": "tea", "fay": "coffee"})
    >>> nodes.predict(["bob", "cy", "dan", "eve"]).tolist()
    ['tea', 'tea', 'coffee', 'coffee']

    Reference: Abu-El-Haija, Crespi, Ver Steeg, Galstyan, *Fast Graph Learning with Unique Optimal Solutions*,
    2021, whose model is "jkn".
    """

    def __init__(
        self,
        *,
        design: str = "co-ridge",
        n_components: int | None = None,
        select: bool = True,
        views: Any = None,
        restart: float | None = None,
        ridge: float | None = None,
        balance: float | None = None,
        rounds: int | None = None,
        hops: int | None = None,
        window: int | None = None,
        negative: float | None = None,
        class_weight: Any = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        max_memory: int | None = None,
        device: Any = None,
    ) -> None:
        self.design = design
        self.n_components = n_components
        self.select = select
        self.views = views
        self.restart = restart
        self.ridge = ridge
        self.balance = balance
        self.rounds = rounds
        self.hops = hops
        self.window = window
        self.negative = negative
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.max_memory = max_memory
        self.device = device

    def fit(
        self,
        graph: Any,
        y: Any,
        *,
        features: Any = None,
        validation: Any = None,
        feature_names: Any = None,
        class_names: Any = None,
        progress: Progress | None = None,
    ) -> NodeClassifier:
        """Learn from a graph whose nodes are partly labelled; returns the classifier itself.

        Args:
            graph: a `Graph`, pairs of ids, a square adjacency matrix, or a graph of networkx, igraph or
                PyTorch Geometric.
            y: one label per node in the order of `graph.node_ids`, −1 (None, NaN, "") where it is unknown; or
                a dictionary from ids to labels; or n×C of 0 and 1 for several labels per node, rows of −1
                unlabelled.
            features: n×d, sparse or dense, in the order of `graph.node_ids`; None: the graph alone.
            validation: ids that are labelled in `y` and serve to choose settings instead of training; or a
                pair (ids, labels).
            feature_names: names that `explain` gives the features.
            class_names: names for the columns of a 2-D `y`.
            progress: called as `progress(done, total)` now and then.

        >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
        >>> nodes = fg.NodeClassifier().fit(friends, {"ann": "tea", "eve": "coffee"})
        >>> nodes.classes_.tolist()
        ['coffee', 'tea']
        """
        graph = as_graph(graph)
        settings = settings_of(self.get_params(deep=False), graph)
        X = as_features(by_index(features, graph, "features"), graph.num_nodes)
        known = known_classes(
            graph, by_index(y, graph, "y"), validation=validation, class_weight=self.class_weight
        )
        known = named_classes(known, class_names)
        if self.max_memory is not None:
            quote = self.cost(
                graph,
                X,
                classes=len(known.targets.classes),
                labelled=len(known.targets.labelled),
                validation=known.validation is not None,
            )
            check_memory(quote, integer("max_memory", self.max_memory, least=1))
        inputs, known, position = in_order(graph, X, known)
        inputs, notices = telling_inputs(inputs)
        with self._threads(), working_on(self.device):
            fit = fit_nodes(inputs, known.targets, settings, validation=known.validation, progress=progress)
        names = feature_names_of(feature_names, X)
        fit = _with_notices(fit, (*known.notices, *notices))
        self._keep(
            NodeParts(self.get_params(), inputs, known.targets, fit, known.validation, names), position
        )
        return self

    def _keep(self, parts: NodeParts, position: Array | None) -> None:
        for name in ("graph_", "certificate_", "relabelled_", "_linear", "_difference"):
            self.__dict__.pop(name, None)
        self._parts, self._position = parts, position
        fitted = parts.fit.fitted
        self.classes_, self.multilabel_ = parts.targets.classes, parts.targets.multilabel
        self.chosen_ = {"design": self.design, **fitted.chosen}
        self.validation_, self.near_best_ = dict(fitted.validation), list(fitted.near_best)
        self.seconds_, self.notices_ = dict(fitted.seconds), list(fitted.notices)
        self.n_features_in_ = 0 if parts.inputs.features is None else parts.inputs.features.shape[1]

    def cost(
        self,
        graph: Graph,
        features: Any = None,
        *,
        classes: int = 2,
        labelled: int | None = None,
        validation: bool = True,
    ) -> NodeEstimate:
        """What `fit` would cost in bytes and products, without fitting.

        `features` are those of `fit`; `classes` and `labelled` are how many classes and labelled nodes there
        would be, `validation` whether there are validation nodes to choose settings by.

        >>> graph = fg.Graph.from_edges([(0, 1), (1, 2), (2, 0)])
        >>> fg.NodeClassifier().cost(graph, np.eye(3), classes=2).peak_bytes > 0
        True
        """
        X = as_features(features, graph.num_nodes)
        shape = None if X is None else (X.shape[1], int(X.nnz) if is_sparse(X) else None)
        return estimate_nodes(
            graph,
            features=shape,
            classes=classes,
            labelled=labelled,
            validation=validation,
            views=None if self.views is None else len(settings_of(self.get_params(), graph).views or ()),
            design=self.design,
            rank=self.n_components,
            select=bool(self.select),
            workers=threads_of(self.n_jobs) or thread_count(),
        )

    @contextmanager
    def _threads(self) -> Iterator[None]:
        with use_threads(threads_of(self.n_jobs)), single_threaded_blas():
            yield

    @property
    def feature_names_(self) -> tuple[str, ...] | None:
        """The names of the columns of the features, if they have any."""
        check_is_fitted(self)
        return self._parts.feature_names

    @property
    def node_ids_(self) -> Array:
        """The ids of the nodes, in the order of the graph that was fitted: the rows of predictions."""
        check_is_fitted(self)
        return self._in_given_order(self._parts.inputs.graph.node_ids)

    @functools.cached_property
    def graph_(self) -> Graph:
        """The graph that was fitted."""
        check_is_fitted(self)
        graph = self._parts.inputs.graph
        return graph if self._position is None else reordered(graph, self._position)

    @functools.cached_property
    def certificate_(self) -> Certificate | None:
        """How good the projection of the features is, measured when first asked for; None for the paper's."""
        check_is_fitted(self)
        with self._threads():
            return certified(self._parts.inputs, self._parts.fit.fitted.model)

    def _in_given_order(self, rows: Array) -> Array:
        return rows if self._position is None else rows[self._position]

    def __sklearn_is_fitted__(self) -> bool:
        return "_parts" in self.__dict__

    def decision_function(self, nodes: Any = None, *, edges: Any = None, features: Any = None) -> Array:
        """m×C scores; the largest of a row is predicted (several labels: those above the label's limit).

        `nodes`, `edges` and `features` are those of `predict`, columns those of `classes_`.

        >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
        >>> nodes = fg.NodeClassifier().fit(friends, {"ann": "tea", "eve": "coffee"})
        >>> nodes.decision_function().shape
        (5, 2)
        """
        check_is_fitted(self)
        fitted, inputs = self._parts.fit.fitted, self._parts.inputs
        if edges is None and features is None:
            if nodes is None:
                return np.array(self._in_given_order(fitted.scores))
            return np.asarray(fitted.scores[inputs.graph.index_of(ids_of(nodes, "nodes"))])
        with self._threads():
            grown = grown_inputs(inputs, fitted.model, edges, features)
            scores = fitted.model.scores(grown.inputs)
        wanted = grown.new_ids if nodes is None else ids_of(nodes, "nodes")
        return np.asarray(scores[grown.inputs.graph.index_of(wanted)] if len(wanted) else scores[:0])

    def predict(self, nodes: Any = None, *, edges: Any = None, features: Any = None) -> Array:
        """The classes of nodes (ids; None: of all in the order of the graph). Several labels: m×C of 0 and 1.

        Nodes that the model has not seen come with `edges` (pairs of ids) and, if it was fitted with
        features, `features`: a dictionary from their ids to rows, or rows in the order of `new_nodes`.
        Without `nodes` the new ones are answered for. The model stays as it is.

        >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
        >>> nodes = fg.NodeClassifier().fit(friends, {"ann": "tea", "eve": "coffee"})
        >>> nodes.predict("bob").tolist()
        ['tea']
        >>> nodes.predict(edges=[("zoe", "dan"), ("zoe", "eve")]).tolist()
        ['coffee']
        """
        scores = self.decision_function(nodes, edges=edges, features=features)
        if self.multilabel_:
            return predicted_labels(scores, self._limits).astype(np.int64)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(self, nodes: Any = None, *, edges: Any = None, features: Any = None) -> Array:
        """m×C probabilities: softmax(scores / T), or for several labels logistic((score − limit) / T).

        T is `temperature_`, which fits what labelled nodes score without their own label, or validation nodes
        where there are any. `nodes`, `edges` and `features` are those of `predict`, columns those of
        `classes_`.

        >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
        >>> nodes = fg.NodeClassifier().fit(friends, {"ann": "tea", "eve": "coffee"})
        >>> nodes.predict_proba(["bob", "dan"]).sum(axis=1).round(6)
        array([1., 1.])
        """
        scores = self.decision_function(nodes, edges=edges, features=features)
        return probabilities(scores, self.temperature_, limits=self._limits)

    def score(self, nodes: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of nodes (ids; None: all) that are predicted as `y` has it.

        `sample_weight` says how much each node counts. Of several labels all must be right.

        >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
        >>> nodes = fg.NodeClassifier().fit(friends, {"ann": "tea", "eve": "coffee"})
        >>> nodes.score(["bob", "dan"], ["tea", "coffee"])
        1.0
        """
        predicted = self.predict(nodes)
        truth = np.asarray(y).tolist() if self.multilabel_ else labels_of(y)
        if len(truth) != len(predicted):
            raise ShapeError(f"y has {len(truth)} labels for {len(predicted)} nodes")
        right = [one == other for one, other in zip(predicted.tolist(), truth, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def new_nodes(self, edges: Any, features: Any = None) -> Array:
        """The ids that `predict(edges=edges, features=features)` answers for, in its order: sorted.

        >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
        >>> nodes = fg.NodeClassifier().fit(friends, {"ann": "tea", "eve": "coffee"})
        >>> nodes.new_nodes([("zoe", "dan"), ("ann", "yan")]).tolist()
        ['yan', 'zoe']
        """
        check_is_fitted(self)
        return new_ids(self._parts.inputs.graph, edges, features)

    def explain(self, node: Any, *, label: Any = None, top: int = 10) -> Explanation:
        """Why a node scores as it does for a class (None: the predicted one), as contributions that add up.

        By hop and feature, and by labelled node; the `top` largest of each are listed, the rest is summed up.
        Exact where the model is one linear solve; of the full co-ridge the last solves are explained, and
        `difference` of the result is the share of nodes they predict otherwise.

        >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
        >>> nodes = fg.NodeClassifier().fit(friends, {"ann": "tea", "eve": "coffee"})
        >>> why = nodes.explain("bob")
        >>> why.label, bool(np.isclose(why.bias + sum(why.hops), why.score))
        ('tea', True)
        """
        check_is_fitted(self)
        inputs, targets, fitted = self._parts.inputs, self._parts.targets, self._parts.fit.fitted
        number = int(inputs.graph.index_of([node])[0])
        with self._threads():
            parts, solutions = self._linear
            own = probabilities(fitted.scores[[number]], self.temperature_, limits=self._limits)[0]
            return explanations.explain(
                parts,
                number,
                inputs=inputs,
                targets=targets,
                column=None if label is None else self._class_number(label),
                top=top,
                feature_names=self._parts.feature_names,
                own=own,
                exact=fitted.model.exact,
                difference=0.0 if fitted.model.exact else self._difference,
                solutions=solutions,
            )

    @functools.cached_property
    def _linear(self) -> tuple[Any, Any]:
        parts = self._parts.fit.fitted.model.parts(self._parts.inputs)
        return parts, [solve(part) for part in parts]

    @functools.cached_property
    def _difference(self) -> float:
        """The share of nodes that the mean of the linear parts predicts otherwise than the model."""
        parts, solutions = self._linear
        linear = explanations.linear_scores(parts, solutions=solutions)
        own = predicted_labels(self._parts.fit.fitted.scores, self._limits)
        return float((predicted_labels(linear, self._limits) != own).any(axis=1).mean())

    @property
    def loo_accuracy_(self) -> float | None:
        """The share of labelled nodes (of labels, if several) predicted rightly without their own label.

        Equal to refits where the model is one linear solve; for the full co-ridge groups of labels are hidden
        in turns, when this is first asked for. None where it is not known.
        """
        return self._calibrated().loo_accuracy

    @property
    def temperature_(self) -> float:
        """What scores are divided by to make probabilities."""
        return float(self._calibrated().temperature or 1.0)

    def _calibrated(self) -> NodeFit:
        """The fit with its temperature; where finding it takes fits of its own, when it is first needed."""
        check_is_fitted(self)
        parts = self._parts
        if parts.fit.temperature is None:
            with self._threads(), working_on(self.device):
                fit = calibrated(parts.fit.fitted, parts.inputs, parts.targets, validation=parts.validation)
            self._parts = replace(parts, fit=fit)
        return self._parts.fit

    @property
    def _limits(self) -> Array | None:
        if not self.multilabel_:
            return None
        return thresholds(self._calibrated().fitted.loo_scores, self._parts.targets)

    def _class_number(self, label: Any) -> int:
        found = [number for number, name in enumerate(self.classes_.tolist()) if name == label]
        if not found:
            names = {str(name): name for name in self.classes_.tolist()}
            near = difflib.get_close_matches(str(label), names, 1)
            hint = f"; did you mean {shown(names[near[0]])}?" if near else ""
            raise ArgumentError(f"{shown(label)} is not a class of this model{hint}")
        return found[0]

    def relabel(self, changes: Mapping[Any, Any], *, measure: bool = True) -> NodeClassifier:
        """Change, add or take away labels of nodes without a refit.

        `changes` is a dictionary from ids to labels, −1 or None to take one away.

        Equal to a refit with the same settings where the model is one linear solve on a basis of all nodes
        (co-ridge with one view and `rounds=0`, "jkn-text"); temperature and `loo_accuracy_` are then renewed.
        For others the last solves are updated; `measure` then refits besides, and `relabelled_` tells the
        share of nodes that the refit predicts otherwise. Settings stay.

        >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
        >>> nodes = fg.NodeClassifier().fit(friends, {"ann": "tea", "eve": "coffee"})
        >>> nodes.relabel({"cy": "tea", "dan": "tea"}).predict(["cy", "dan"]).tolist()
        ['tea', 'tea']
        """
        check_is_fitted(self)
        if not isinstance(changes, Mapping):
            raise ArgumentError(f"changes must be a dictionary from ids to labels, got {shown(changes)}")
        parts = self._parts
        rows = {
            int(parts.inputs.graph.index_of([node])[0]): self._target_row(label)
            for node, label in changes.items()
        }
        with self._threads(), working_on(self.device):
            done = relabel_fit(
                parts.fit,
                parts.inputs,
                parts.targets,
                rows,
                linear=self._linear,
                settings=self._chosen_settings(),
                class_weight=parts.parameters["class_weight"],
                measure=measure,
            )
        self._keep(replace(parts, fit=done.fit, targets=done.targets), self._position)
        self.__dict__["_linear"] = done.linear
        self.relabelled_ = {"exact": done.exact, "difference": done.difference, "changes": len(rows)}
        return self

    def _chosen_settings(self) -> NodeSettings:
        chosen = {
            name: value for name, value in self.chosen_.items() if name in JKN_SETTINGS | {"rank", "ridge"}
        }
        return replace(settings_of(self.get_params(deep=False), self._parts.inputs.graph), **chosen)

    def _target_row(self, label: Any) -> Array | None:
        if self.multilabel_:
            return row_of_labels(label, len(self.classes_))
        if label_of(label) is None:
            return None
        row = np.zeros(len(self.classes_))
        row[self._class_number(label)] = 1.0
        return row

    def save(self, folder: Any, *, force: bool = False) -> None:
        """Write the model to a folder, which `fg.load` reads; an existing one is replaced with `force` only.

        >>> friends = [("ann", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "eve")]
        >>> nodes = fg.NodeClassifier().fit(friends, {"ann": "tea", "eve": "coffee"})
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     nodes.save(f"{folder}/drinks")
        ...     fg.load(f"{folder}/drinks").predict("bob").tolist()
        ['tea']
        """
        self._calibrated()
        save_node_parts(self._parts, folder, force=force, position=self._position)


def node_classifier_of(parts: NodeParts, position: Array | None = None) -> NodeClassifier:
    """The estimator that a model folder tells of."""
    nodes = NodeClassifier(**parts.parameters)
    nodes._keep(parts, position)
    return nodes


def _with_notices(fit: NodeFit, notices: tuple[str, ...]) -> NodeFit:
    fitted: Fitted = fit.fitted
    return replace(fit, fitted=replace(fitted, notices=(*notices, *fitted.notices)))
