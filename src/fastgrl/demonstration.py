"""The whole product on scikit-learn's digits: an SVD, links and classes, and what a page shows of them.

Everything is measured here and nothing is drawn.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgrl.checks import Array
from fastgrl.link_reports import certificate_figures
from fastgrl.node_reports import first_reason
from fastgrl.reports.demo_page import Pictures
from fastgrl.terminal import Progress, neighbours_alike

if TYPE_CHECKING:
    from fastgrl.certificates import Certificate
    from fastgrl.datasets import NodeDataset
    from fastgrl.explanations import Explanation
    from fastgrl.link_prediction import LinkPredictor
    from fastgrl.node_classification import NodeClassifier

Bar = Callable[[str], contextlib.AbstractContextManager[Progress | None]]

SEED, RANK = 0, 32
# How many missing links are asked for of each digit, and of how many of the best the numerals are counted.
_EACH, _BEST = 60, 100
_MISTAKES, _REASONS, _ALL = 6, 6, 100_000
# The map: how many nearest vectors a digit is joined to, how long walks are, and what counts as never walked.
# Picked among several for a map that is easy to read, with the numerals in view; the page says so.
_NEAREST, _DAMPING, _NEVER = 15, 0.85, 1e-4


@dataclass(frozen=True, eq=False)
class Demonstration:
    """What was found, as JSON has it; the certificate; the models; and what to draw."""

    value: dict[str, Any]
    certificate: Certificate
    digits: NodeDataset
    links: LinkPredictor
    classes: NodeClassifier
    pictures: Pictures


def demonstrate(bar: Bar) -> Demonstration:
    """Factorise the walk matrix of the digits, find links, tell classes; `bar` makes a progress bar."""
    from fastgrl.datasets import NodeDataset, load_dataset

    digits = load_dataset("digits")
    assert isinstance(digits, NodeDataset)
    value, certificate = _factorised(digits)
    links, predictor = _links(digits, bar)
    classes, classifier = _classes(digits, bar)
    vectors = predictor.embedding_
    places = plane(vectors)
    value |= {
        "nodes": digits.graph.num_nodes,
        "edges": digits.graph.num_edges,
        "columns": int(vectors.shape[1]),
        "same_numeral": neighbours_alike(vectors, digits.y),
        "map": _mapped(places, digits.y),
        "links": links,
        "classes": classes,
        "total_seconds": round(value["seconds"] + links["fit_seconds"] + classes["seconds"], 3),
        "seed": SEED,
        "versions": _versions(),
    }
    drawn = Pictures(places, digits.y, pixels(digits).reshape(-1, 8, 8))
    return Demonstration(value, certificate, digits, predictor, classifier, drawn)


def _mapped(places: Array, y: Array) -> dict[str, Any]:
    """How well the map keeps numerals together, in all and each of them."""
    from sklearn.neighbors import kneighbors_graph

    nearest = kneighbors_graph(places, 10).indices.reshape(len(places), 10)
    alike = (y[nearest] == y[:, None]).mean(axis=1)
    each = [
        {
            "numeral": numeral,
            "digits": int((y == numeral).sum()),
            "middle": np.median(places[y == numeral], axis=0).tolist(),
            "same_numeral": float(alike[y == numeral].mean()),
        }
        for numeral in np.unique(y).tolist()
    ]
    return {"nearest": _NEAREST, "same_numeral": float(alike.mean()), "of_each_numeral": each}


def pixels(digits: NodeDataset) -> Array:
    """The 64 shades of every digit, from 0 to 16, row by row."""
    assert digits.X is not None
    return np.asarray(digits.X.toarray(), np.int64)


def _factorised(digits: NodeDataset) -> tuple[dict[str, Any], Certificate]:
    """The paper's walk matrix, never formed: its largest singular values and how good they are."""
    import fastgrl as fg

    A = fg.Matrix(digits.graph.csr)
    T = fg.transition(digits.graph, dtype="float32")
    M = fg.Polynomial(T, [5, 4, 3, 2, 1]) - 0.02 * (fg.Ones(A.shape) - A)
    begin = time.perf_counter()
    svd = fg.fsvd(M, RANK, seed=SEED)
    spent = round(time.perf_counter() - begin, 3)
    measured = fg.certificate(M, svd)
    value = {"matrix": str(M), "rank": RANK, "seconds": spent, "singular_values": svd.s.tolist()}
    figures = certificate_figures(measured)
    return value | {"captured_energy": figures["captured_energy"], "certificate": figures}, measured


def _links(digits: NodeDataset, bar: Bar) -> tuple[dict[str, Any], LinkPredictor]:
    """How well hidden links are found, and the best of those that are missing, by a fit of all edges."""
    from fastgrl.evaluation import evaluate_links
    from fastgrl.link_prediction import LinkPredictor

    with bar("hiding links") as progress:
        tested = evaluate_links(digits, LinkPredictor(select=False), progress=progress)
    with bar("fitting all links") as progress:
        model = LinkPredictor(select=False, random_state=SEED).fit(digits.graph, progress=progress)
    figures = {name: tested[name] for name in ("test", "test_pairs", "validation", "chosen")}
    figures |= {"seconds": sum(tested["seconds"].values())}
    figures |= {"fit_seconds": round(sum(model.seconds_.values()), 3)}
    figures |= _missing(_ranked(model), digits.y)
    figures |= {"singular_values": np.asarray(model.singular_values_, np.float64).tolist()}
    return figures | {"certificate": certificate_figures(model.certificate_)}, model


def _ranked(model: LinkPredictor) -> list[dict[str, Any]]:
    """Missing links, each once, best first; as far down as none can be lacking."""
    found = model.recommend(k=_EACH)
    pairs = np.sort(np.column_stack([found.nodes, found.targets]).astype(np.int64), axis=1)
    order = np.argsort(-found.scores, kind="stable")
    _, first = np.unique(pairs[order], axis=0, return_index=True)
    # What a digit has beyond its own last place was never listed, so all below the best such place is cut.
    least = found.scores[_EACH - 1 :: _EACH].max()
    kept = order[np.sort(first)]
    kept = kept[found.scores[kept] >= least]
    return [
        {"node": u, "target": v, "score": score}
        for (u, v), score in zip(pairs[kept].tolist(), found.scores[kept].tolist(), strict=True)
    ]


def _missing(ranked: list[dict[str, Any]], y: Array) -> dict[str, Any]:
    """The best missing links: the first three, the first of each numeral, and the first that joins two."""
    links = [
        {"place": place, **link, "numerals": y[[link["node"], link["target"]]].tolist()}
        for place, link in enumerate(ranked, 1)
    ]
    alike = [link["numerals"][0] == link["numerals"][1] for link in links]
    of_each: dict[int, dict[str, Any]] = {}
    for link, same in zip(links, alike, strict=True):
        if same:
            of_each.setdefault(link["numerals"][0], link)
    return {
        "recommended": links[:3],
        "best": {"count": len(alike[:_BEST]), "same_numeral": sum(alike[:_BEST])},
        "of_each_numeral": [of_each[numeral] for numeral in sorted(of_each)],
        "first_unlike": next((link for link, same in zip(links, alike, strict=True) if not same), None),
        "ranked": len(links),
    }


def _classes(digits: NodeDataset, bar: Bar) -> tuple[dict[str, Any], NodeClassifier]:
    """How well the classes of all digits are told from a few labelled ones, and why one of them is."""
    from fastgrl.node_classification import NodeClassifier

    y = digits.y.copy()
    others = ~np.isin(np.arange(len(y)), digits.train)
    y[others] = -1
    with bar("classifying") as progress:
        model = NodeClassifier(select=False, random_state=SEED)
        model.fit(digits.graph, y, features=digits.X, progress=progress)
    chances, right = model.predict_proba(), digits.y
    told = model.classes_[chances.argmax(axis=1)]
    facts: dict[str, Any] = {"labelled": len(digits.train), "others": int(others.sum())}
    facts |= {"accuracy": float((told == right)[others].mean())}
    facts |= {"seconds": round(sum(model.seconds_.values()), 3)}
    facts |= {"names": model.classes_.tolist(), "confusion": _confusion(right[others], told[others])}
    facts |= {"mistakes": _surest(chances, told, np.flatnonzero(others & (told != right)), right)}
    node = digits.graph.node_ids[others.argmax()]
    reasons = _reasons(model.explain(node, top=_ALL), digits)
    return facts | {"explained": reasons | {"probability": float(chances[others.argmax()].max())}}, model


def _confusion(right: Array, told: Array) -> list[list[int]]:
    """Rows are what the digits are, columns what was said."""
    counts = np.zeros((10, 10), np.int64)
    np.add.at(counts, (right, told), 1)
    found: list[list[int]] = counts.tolist()
    return found


def _surest(chances: Array, told: Array, wrong: Array, right: Array) -> list[dict[str, Any]]:
    """Of the mistakes, the surest of each kind, surest first."""
    kinds: dict[tuple[int, int], dict[str, Any]] = {}
    for node in wrong[np.argsort(-chances[wrong].max(axis=1), kind="stable")].tolist():
        kind = int(right[node]), int(told[node])
        chance = float(chances[node].max())
        kinds.setdefault(kind, {"node": node, "is": kind[0], "said": kind[1], "probability": chance})
    return list(kinds.values())[:_MISTAKES]


def _reasons(found: Explanation, digits: NodeDataset) -> dict[str, Any]:
    """The sums of one explanation: by labelled digit, by steps, and by pixel over all steps."""
    by_pixel = np.zeros(64)
    for share in found.features:
        if share.kind == "feature":
            by_pixel[share.feature] += share.contribution
    labelled = [vars(share).copy() for share in found.labelled[:_REASONS]]
    from_labels = sum(share.contribution for share in found.labelled) + found.other_labelled
    return first_reason(found) | {
        "is": int(digits.y[found.node]),
        "score": found.score,
        "bias": found.bias,
        "hops": list(found.hops),
        "pixels": by_pixel.reshape(8, 8).tolist(),
        "labelled": labelled,
        "from_labels": from_labels,
        "from_pseudo_labels": found.pseudo_labelled,
        "difference": found.difference,
    }


def plane(vectors: Array) -> Array:
    """Vectors (n, d) as places in the plane (n, 2), in closed form and without any class.

    Every vector is joined to its nearest ones; two are as far apart as −log of how often a walk with
    restarts from one is at the other; classical scaling (the two leading eigenvectors of the centred squared
    distances) lays them out by those distances.

    >>> plane(np.repeat([[0.0, 0.0], [0.0, 9.0], [9.0, 0.0]], 20, axis=0) + np.eye(60, 2)).shape
    (60, 2)
    """
    from scipy.sparse.linalg import eigsh
    from sklearn.neighbors import kneighbors_graph

    n = len(vectors)
    near = kneighbors_graph(vectors, _NEAREST)
    walk = near.maximum(near.T).toarray()
    walk /= walk.sum(axis=1, keepdims=True)
    seen = np.log((1 - _DAMPING) * np.linalg.inv(np.eye(n) - _DAMPING * walk) + _NEVER)
    seen = (seen + seen.T) / 2
    squares = (seen.max() - seen) ** 2
    np.fill_diagonal(squares, 0)
    centred = -0.5 * (squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean())
    values, axes = eigsh(centred, 2, which="LA", v0=np.ones(n) / n + np.arange(n))
    axes = axes[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0))
    return np.asarray(axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]]))


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    import fastgrl as fg

    others = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"fastgrl": fg.__version__, "python": platform.python_version(), **others}
