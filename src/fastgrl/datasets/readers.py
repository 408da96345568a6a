"""From checked files to datasets: one reader for each layout of files."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import scipy.sparse as sp

from fastgrl.checks import Array, shown, size
from fastgrl.datasets.adjacency import read_adjacency
from fastgrl.datasets.cache import (
    Content,
    Folder,
    Progress,
    data_folder,
    fetch_missing,
    read_files,
    written_whole,
)
from fastgrl.datasets.catalogue import DatasetInfo, describe
from fastgrl.datasets.records import Dataset, LinkDataset, NodeDataset, stratified_split
from fastgrl.datasets.unpickle import Rows, unpickle
from fastgrl.errors import ArgumentError, InputError, ShapeError
from fastgrl.graph import Graph

Contents = dict[str, Content]

_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
_VALIDATION = 500
_NEIGHBOURS = 5


@overload
def load_dataset(
    name: Literal["citeseer", "cora", "digits", "pubmed"],
    *,
    folder: Folder = None,
    download: bool = True,
    progress: Progress | None = None,
) -> NodeDataset: ...
@overload
def load_dataset(
    name: Literal["ca-AstroPh", "ca-HepTh", "ogbl-ddi", "ppi", "soc-facebook"],
    *,
    folder: Folder = None,
    download: bool = True,
    progress: Progress | None = None,
) -> LinkDataset: ...
@overload
def load_dataset(
    name: str, *, folder: Folder = None, download: bool = True, progress: Progress | None = None
) -> Dataset: ...


def load_dataset(
    name: str, *, folder: Folder = None, download: bool = True, progress: Progress | None = None
) -> Dataset:
    """Load a dataset by name, after checking every one of its files against its SHA-256.

    The result is a `NodeDataset` (`graph`, `X`, `y`, `train`, `validation`, `test`) or a `LinkDataset`. Files
    are looked for in `folder`, by default `fastgrl.datasets.data_folder()`; missing ones are downloaded into
    it unless `download=False`, which `progress(bytes_done, bytes_total)` follows. Node ids are 0 … n-1. The
    counts that were found are compared with the catalogue's. `fastgrl.datasets.list_datasets()` lists the
    names; "digits" needs no download.

    >>> digits = fg.load_dataset("digits")
    >>> digits.X.shape, digits.graph.num_edges, len(digits.train)
    ((1797, 64), 6309, 200)
    """
    info = describe(name)
    contents = read_files(info, folder=folder, download=download, progress=progress)
    dataset = _read(info, contents)
    _check_counts(info, dataset)
    return dataset


def download(name: str, *, folder: Folder = None, progress: Progress | None = None) -> tuple[Path, ...]:
    """Download what is missing of the dataset called `name`, check all of its files, return their paths.

    `folder` and `progress` are those of `load_dataset`.

    >>> from fastgrl.datasets import download
    >>> download("digits")  # has no files of its own
    ()
    """
    info = describe(name)
    paths = fetch_missing(info, folder=folder, progress=progress)
    read_files(info, folder=folder, download=False, progress=None)
    return paths


def _read(info: DatasetInfo, contents: Contents) -> Dataset:
    try:
        return _READERS[info.reader](info, contents)
    except InputError:
        raise
    except (ArithmeticError, EOFError, LookupError, OSError, TypeError, ValueError) as error:
        raise InputError(f"the files of dataset {info.name} do not fit together: {error}") from None


def _check_counts(info: DatasetInfo, dataset: Dataset) -> None:
    found = dataset.counts
    wrong = [
        f"{count} {word.replace('_', ' ')} were expected and {found[word]} found"
        for word, count in info.expected.items()
        if found[word] != count
    ]
    if wrong:
        raise InputError(f"dataset {info.name} is not what the catalogue says: {'; '.join(wrong)}")


def _planetoid(info: DatasetInfo, contents: Contents) -> NodeDataset:
    # Each file is let go once it is read, so that the next arrays find room: new memory is what costs most.
    files = {part: contents.pop(f"ind.{info.name}.{part}") for part in _PARTS}
    del files["x"]  # the first rows of allx
    ally, ty, y = (_pickled(files.pop(part), np.ndarray) for part in ("ally", "ty", "y"))
    index = files.pop("test.index")
    test = _numbers(index)
    order = np.argsort(test)
    known, num_nodes = len(ally), int(test[order[-1]]) + 1
    if test[order[0]] < known or len(test) != len(ty) or (np.diff(test[order]) == 0).any():
        raise InputError(f"{index.path} does not fit the classes beside it")
    classes = np.full(num_nodes, -1)
    classes[:known], classes[test] = ally.argmax(axis=1), ty.argmax(axis=1)
    X = _stacked(_pickled(files.pop("allx"), Rows), _pickled(files.pop("tx"), Rows), test, order)
    return NodeDataset(
        name=info.name,
        graph=_graph_of_lists(files.pop("graph"), num_nodes),
        X=X,
        y=classes,
        train=np.arange(len(y)),
        validation=np.arange(len(y), len(y) + _VALIDATION),
        test=test[order],
    )


def _numbers(content: Content) -> Array:
    if content.data.translate(None, b"0123456789\n"):
        raise InputError(f"{content.path} does not hold one number on each line")
    return np.fromstring(content.data.decode("ascii"), np.int64, sep="\n")


def _pickled(content: Content, kind: type) -> Any:
    found = unpickle(content.data, file=str(content.path))
    if not isinstance(found, kind):
        raise InputError(f"{content.path} holds another kind of object than it should")
    return found


def _graph_of_lists(content: Content, num_nodes: int) -> Graph:
    sources, targets = read_adjacency(content.data, file=str(content.path))
    # Every edge is listed at both of its ends. One that is not would be missed by the count that follows.
    once = sources <= targets
    return Graph.from_codes(sources[once], targets[once], num_nodes=num_nodes)


def _stacked(upper: Rows, lower: Rows, numbers: Array, order: Array) -> sp.csr_array:
    """`upper`, and below it row i of `lower` as row `numbers[i]`, which `order` sorts; others are zero."""
    if (
        upper.shape[1] != lower.shape[1]
        or lower.shape[0] != len(numbers)
        or upper.shape[0] > numbers[order[0]]
    ):
        raise ShapeError(f"{size(upper.shape)} features do not fit above {size(lower.shape)}")
    lengths = np.zeros(numbers[order[-1]] + 2, np.int32)
    lengths[1 : upper.shape[0] + 1] = np.diff(upper.indptr)
    below = np.diff(lower.indptr)[order]
    lengths[numbers[order] + 1] = below
    entries = np.arange(len(lower.indices), dtype=np.int32)
    entries += np.repeat(lower.indptr[order] - np.cumsum(below, dtype=np.int32) + below, below)
    indices = _joined(upper.indices, lower.indices, entries, np.int32)
    values = _joined(upper.values, lower.values, entries, np.float32)
    shape = (len(lengths) - 1, upper.shape[1])
    return sp.csr_array((values, indices, np.cumsum(lengths, dtype=np.int32)), shape=shape)


def _joined(upper: Array, lower: Array, entries: Array, dtype: Any) -> Array:
    """`upper`, then `lower[entries]`, with few arrays in between: new memory costs more than copying."""
    joined = np.empty(len(upper) + len(lower), dtype)
    joined[: len(upper)] = upper
    joined[len(upper) :] = lower[entries]
    return joined


def _links(info: DatasetInfo, contents: Contents) -> LinkDataset:
    """Pairs in files called train, valid, test, valid.neg and test.neg, with some ending."""
    pairs = {name.partition(".txt")[0].removesuffix(".npy"): _pairs(file) for name, file in contents.items()}
    num_nodes = 1 + max(int(array.max()) for array in pairs.values())
    return LinkDataset(
        name=info.name,
        graph=Graph.from_codes(pairs["train"][:, 0], pairs["train"][:, 1], num_nodes=num_nodes),
        validation=pairs.get("valid"),
        validation_negatives=pairs.get("valid.neg"),
        test=pairs["test"],
        test_negatives=pairs["test.neg"],
    )


def _pairs(content: Content) -> Array:
    array = np.load(io.BytesIO(content.data), allow_pickle=False)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "ui" or array.min(initial=0) < 0:
        raise InputError(f"{content.path} does not hold pairs of node numbers")
    return np.asarray(array, np.int64)


def _digits(info: DatasetInfo, _contents: Contents) -> NodeDataset:
    # Not at the top: it takes longer to import than everything else here.
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    train, validation, test = stratified_split(y, train=20, validation=_VALIDATION // 10, seed=0)
    n = len(X)
    targets = _nearest(X, _NEIGHBOURS)
    return NodeDataset(
        name=info.name,
        graph=Graph.from_codes(np.repeat(np.arange(n), _NEIGHBOURS), targets.ravel(), num_nodes=n),
        X=sp.csr_array(X.astype(np.float32)),
        y=y.astype(np.int64),
        train=train,
        validation=validation,
        test=test,
        class_names=tuple("0123456789"),
    )


def _nearest(X: Array, count: int) -> Array:
    """Row numbers of the `count` nearest other rows; of two equally near the one with the lower number."""
    squares = (X**2).sum(axis=1)
    # Of whole numbers, hence without rounding: ties are ties on every machine.
    distances = (squares[:, None] + squares - 2 * (X @ X.T)).astype(np.int64)
    np.fill_diagonal(distances, distances.max() + 1)
    keys = distances * len(X) + np.arange(len(X))
    return np.partition(keys, count, axis=1)[:, :count] % len(X)


_READERS: Mapping[str, Callable[[DatasetInfo, Contents], Dataset]] = {
    "planetoid": _planetoid,
    "asymproj": _links,
    "ogbl": _links,
    "digits": _digits,
}


def convert_ogbl_ddi(split_edge: Mapping[str, Mapping[str, Any]], folder: Folder = None) -> tuple[Path, ...]:
    """Write the files of ogbl-ddi from what the `ogb` package returns, if they turn out as they should.

    `split_edge` is `LinkPropPredDataset("ogbl-ddi").get_edge_split()`: for train, valid and test the (m, 2)
    array `edge`, and for the latter two `edge_neg`. The five arrays are stored as 16-bit integers under
    `folder`, by default `data_folder()`. Nothing is written unless all checksums are right.
    """
    info = describe("ogbl-ddi")
    target = Path(data_folder() if folder is None else folder) / info.folder
    encoded = {file.name: _as_npy(split_edge, file.name) for file in info.files}
    for file in info.files:
        if hashlib.sha256(encoded[file.name]).hexdigest() != file.sha256:
            raise InputError(
                f"{file.name} would differ from the known one: this is another version of ogbl-ddi"
            )
    for name, data in encoded.items():
        with written_whole(target / name) as stream:
            stream.write(data)
    return tuple(target / name for name in encoded)


def _as_npy(split_edge: Mapping[str, Mapping[str, Any]], name: str) -> bytes:
    part, _, negative = name.removesuffix(".npy").partition(".")
    key = "edge_neg" if negative else "edge"
    try:
        pairs = np.asarray(split_edge[part][key])
    except (KeyError, TypeError):
        raise ArgumentError(f"split_edge has no {shown(part)} with {shown(key)}") from None
    if pairs.dtype.kind not in "ui" or (pairs.size and not 0 <= pairs.min() <= pairs.max() < 2**15):
        raise ArgumentError(f"split_edge: {key} of {part} must hold node numbers below {2**15}")
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(pairs, dtype="<i2"), allow_pickle=False)
    return stream.getvalue()
