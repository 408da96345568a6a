"""Models of every kind, from their folders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastgrl.checks import shown
from fastgrl.errors import InputError
from fastgrl.io.atomic import StrPath, named
from fastgrl.storage import Stored, load_model
from fastgrl.stored_parts import position_of

if TYPE_CHECKING:
    from fastgrl.link_prediction import LinkPredictor
    from fastgrl.node_classification import NodeClassifier

LINKS, NODES = "link-predictor", "node-classifier"


def load(folder: StrPath) -> LinkPredictor | NodeClassifier:
    """Read a model that `save` wrote, a `LinkPredictor` or a `NodeClassifier`; no pickle is involved.

    Everything in the folder is checked first: a damaged model is an `InputError`. Large arrays stay on disk
    until they are used.

    >>> from tempfile import TemporaryDirectory
    >>> links = fg.LinkPredictor(n_components=2).fit([("ann", "bob"), ("bob", "cy")])
    >>> with TemporaryDirectory() as folder:
    ...     links.save(f"{folder}/friends")
    ...     fg.load(f"{folder}/friends").recommend("ann").targets.tolist()
    ['cy']
    """
    stored = load_model(folder)
    if stored.kind not in _READERS:
        known = " and ".join(_READERS)
        raise InputError(
            f"{named(folder)} holds a model of kind {shown(stored.kind)}; this fastgrl reads {known} models: "
            "upgrade fastgrl, or fit the model again"
        )
    return _READERS[stored.kind](stored, folder)


def load_links(folder: StrPath) -> LinkPredictor:
    """`load` where links are to be predicted: a node classifier is refused with what it is for."""
    stored = load_model(folder)
    if stored.kind == NODES:
        raise InputError(f"{named(folder)} holds a node classifier; use fastgrl predict")
    return _links(stored, folder)


def load_nodes(folder: StrPath) -> NodeClassifier:
    """`load` where nodes are to be classified: a link predictor is refused with what it is for."""
    stored = load_model(folder)
    if stored.kind == LINKS:
        raise InputError(f"{named(folder)} holds a link predictor; use fastgrl score or fastgrl recommend")
    return _nodes(stored, folder)


# The modules of one kind are not imported for a model of the other: commands start sooner.
def _links(stored: Stored, folder: StrPath) -> LinkPredictor:
    from fastgrl.link_prediction import link_predictor_of

    return link_predictor_of(stored, folder)


def _nodes(stored: Stored, folder: StrPath) -> NodeClassifier:
    from fastgrl.node_classification import NodeClassifier, node_classifier_of
    from fastgrl.node_storage import node_parts_of

    parts = node_parts_of(stored, folder)
    if others := parts.parameters.keys() ^ set(NodeClassifier._get_param_names()):
        raise InputError(
            f"{named(folder)} was saved with other parameters than are known here, such as "
            f"{shown(min(others))}; fit it again"
        )
    return node_classifier_of(parts, position_of(stored, folder))


_READERS: dict[str, Callable[[Stored, StrPath], LinkPredictor | NodeClassifier]] = {
    LINKS: _links,
    NODES: _nodes,
}
