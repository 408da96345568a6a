"""What node classification is asked for, what it is made of, and what every fitted design can do."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastgrl.certificates import Certificate
from fastgrl.checks import Array
from fastgrl.errors import ShapeError
from fastgrl.graph import Graph
from fastgrl.operators import Operator

CO_RIDGE, PAPER_DESIGNS = "co-ridge", ("jkn", "jkn-text", "jkn-as-released")
NODE_DESIGNS = (CO_RIDGE, *PAPER_DESIGNS)


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """A graph, n×d features of its nodes (sparse, dense or None), and n×r vectors of a walk factorisation."""

    graph: Graph
    features: Any = None
    structure: Array | None = None

    @property
    def num_nodes(self) -> int:
        """Rows of everything here."""
        return self.graph.num_nodes

    @property
    def num_columns(self) -> int:
        """Columns of the features, or where there are none of the walk vectors."""
        given = self.structure if self.features is None else self.features
        return 0 if given is None else int(given.shape[1])


@dataclass(frozen=True, eq=False)
class Targets:
    """What is known: names of the C classes, n×C labels of 0 and 1 (unlabelled rows are 0), who is labelled.

    `weights` has one entry per labelled node and sums to 1.
    """

    classes: Array
    labels: Array
    labelled: Array
    weights: Array
    multilabel: bool = False

    @property
    def known(self) -> Array:
        """The labels of the labelled nodes, m×C."""
        return np.asarray(self.labels[self.labelled])


@dataclass(frozen=True, eq=False)
class Validation:
    """Nodes that settings are chosen by, with their m×C labels of 0 and 1; they are not trained on."""

    nodes: Array
    labels: Array


@dataclass(frozen=True)
class NodeSettings:
    """What is to be fitted; None is what the selection, or without it the design, chooses."""

    design: str = CO_RIDGE
    rank: int | None = None
    select: bool = True
    views: tuple[str, ...] | None = None
    restart: float | None = None
    ridge: float | None = None
    balance: float | None = None
    rounds: int | None = None
    hops: int | None = None
    window: int | None = None
    negative: float | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class HopBasis:
    """Z = (unit rows of Σ_l c_l S^l F V_l − centre) / scale: n×k coordinates of all nodes.

    `features` is F (n×d, sparse or dense), `coefficients` are c_0..c_L, and `projection` is one V (d×k) for
    all hops or one for each, (L+1)×d×k. `kinds` says of each column of F whether it is a "feature" of the
    caller's, a vector of the "structure" or the "constant"; None: all are features. `computed` holds Z and
    the norms before rows were scaled where they are known already.
    """

    operator: Operator
    features: Any
    coefficients: Array
    projection: Array
    unit_rows: bool = False
    centre: Array | float = 0.0
    scale: float = 1.0
    kinds: tuple[str, ...] | None = None
    computed: tuple[Array, Array] | None = None

    def projection_of(self, hop: int) -> Array:
        """V_l, d×k."""
        return np.asarray(self.projection if self.projection.ndim == 2 else self.projection[hop])

    @property
    def rows(self) -> Array:
        """Z, n×k."""
        return self._rows_and_norms[0]

    @property
    def norms(self) -> Array:
        """What each row was divided by: its norm, or 1 where rows are not scaled or the row is zero."""
        return self._rows_and_norms[1]

    @functools.cached_property
    def _rows_and_norms(self) -> tuple[Array, Array]:
        if self.computed is not None:
            return self.computed
        *lower, highest = range(len(self.coefficients))
        H = self.coefficients[highest] * self._projected(highest)
        for hop in reversed(lower):  # Horner's rule: one product with S for each hop
            H = self.operator @ H + self.coefficients[hop] * self._projected(hop)
        norms = row_norms(H) if self.unit_rows else np.ones(len(H))
        H /= norms[:, None].astype(H.dtype)
        H -= np.asarray(self.centre, H.dtype)
        return H / H.dtype.type(self.scale), norms

    def _projected(self, hop: int) -> Array:
        if self.projection.ndim == 2:
            return self._shared
        return np.asarray(self.features @ self.projection_of(hop))

    @functools.cached_property
    def _shared(self) -> Array:
        return np.asarray(self.features @ self.projection)


def shaped(array: Array, *shape: int | None) -> Array:
    """An array of finite floats of that shape (None: any length), or an error.

    >>> shaped(np.zeros((2, 3)), 2, None).shape
    (2, 3)
    """
    fits = array.ndim == len(shape) and all(
        want in (None, have) for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits or array.dtype.kind != "f":
        raise ShapeError(f"expected floats of shape {shape}, got {array.dtype} of {array.shape}")
    return array


def is_sparse(array: Any) -> bool:
    """Whether an array is one of SciPy's sparse kinds."""
    return bool(sp.issparse(array))


def row_norms(rows: Any) -> Array:
    """Euclidean norms of the rows of a dense or sparse array, 1 for rows of zeros.

    >>> row_norms(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([5., 1.])
    """
    if is_sparse(rows):
        values: Any = rows.tocsr()
        entries = np.repeat(np.arange(values.shape[0]), np.diff(values.indptr))
        squares = np.bincount(entries, values.data.astype(np.float64) ** 2, values.shape[0])
    else:
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    norms = np.sqrt(squares)
    return np.where(norms > 0, norms, 1.0)


@dataclass(frozen=True, eq=False)
class LinearPart:
    """One linear solve for the scores P of all nodes from n×C targets Q.

    With a ridge γ and weights w that sum to 1: μ = Z'w, q = Q'w,
    W = (Z'diag(w)Z − μμ' + γI)⁻¹(Z'diag(w)Q − μq'), P = (Z − 1μ')W + 1q'. Without a ridge (None), the paper's
    product: P = Z Z_𝒱'Q_𝒱 over the nodes 𝒱 of positive weight. `share` is how much of the model it is.
    """

    basis: HopBasis
    weights: Array
    targets: Array
    ridge: float | None
    share: float = 1.0

    @property
    def Z(self) -> Array:
        """Coordinates of all nodes, n×k."""
        return self.basis.rows


class NodeModel(ABC):
    """A fitted design. Frozen: what is learnt later makes another model."""

    exact: bool  # scores are the sum of the parts' P, each times its share

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """How many nodes it was fitted to, and how many classes it knows."""

    @property
    @abstractmethod
    def basis_ignores_labels(self) -> bool:
        """Whether one linear solve with other labels is what a fit with other labels would give."""

    @property
    @abstractmethod
    def structure(self) -> Array | None:
        """Walk vectors of the fitted nodes, n×r; None if the model looks at features only."""

    @abstractmethod
    def fold_in(self, graph: Graph, new: Any, *, incoming: Any = None) -> tuple[Array, Array]:
        """Walk vectors of nodes that come later, p×r, and how far to trust each; `new` is sparse p×n."""

    @abstractmethod
    def resolved(self, solutions: Sequence[Any]) -> tuple[NodeModel, Array]:
        """The model with other solutions of its parts, in their order, and the scores that come of them."""

    @abstractmethod
    def scores(self, inputs: NodeInputs) -> Array:
        """n×C scores of all nodes of a graph, the fitted one or one that has grown; larger means likelier."""

    @abstractmethod
    def parts(self, inputs: NodeInputs) -> tuple[LinearPart, ...]:
        """The last linear solves, over the inputs that were fitted."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """What is stored, as arrays by name."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What is stored besides, as JSON has it."""

    @classmethod
    @abstractmethod
    def of_stored(cls, arrays: dict[str, Array], facts: dict[str, Any]) -> NodeModel:
        """The model that `arrays` and `facts` tell of."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """What the fit of a design leaves: a model, the scores of all nodes, and how it was chosen.

    `loo_scores` are m×C: what each labelled node would score without its own label; None if that is yet to
    be found out.
    """

    model: NodeModel
    scores: Array
    loo_scores: Array | None
    chosen: dict[str, Any]
    validation: dict[str, Any] = field(default_factory=dict)
    near_best: tuple[dict[str, Any], ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    certificate: Certificate | None = None


@dataclass(frozen=True, eq=False)
class NodeFit:
    """A `Fitted` design with the temperature of its probabilities and its leave-one-out accuracy.

    Both are None until somebody asks for them, where finding them takes fits of their own.
    """

    fitted: Fitted
    temperature: float | None
    loo_accuracy: float | None
