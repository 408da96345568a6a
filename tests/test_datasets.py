from __future__ import annotations

import dataclasses
import hashlib
import http.server
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_unpickle import HOSTILE, SAMPLES

from fastgrl import datasets
from fastgrl.datasets import LinkDataset, NodeDataset, cache, readers
from fastgrl.datasets.catalogue import DatasetInfo, FileInfo
from fastgrl.errors import ArgumentError, InputError, UnavailableError

NODES = ("cora", "citeseer", "pubmed")
LINKS = ("soc-facebook", "ca-AstroPh", "ca-HepTh", "ppi", "ogbl-ddi")


def load(name: str) -> Any:
    if any(status.state == "missing" for status in datasets.verify([name])):
        pytest.skip(f"{name} is not in {datasets.data_folder()}: set FASTGRL_DATA, or download it")
    return datasets.load_dataset(name, download=False)


def keys(pairs: np.ndarray) -> np.ndarray:
    """Unordered pairs as single numbers."""
    low, high = np.sort(pairs, axis=1).T
    return low * 10**6 + high


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "loops", "features", "classes"),
    [
        ("cora", 2708, 5278, 0, 1433, 7),
        ("citeseer", 3327, 4552 + 124, 124, 3703, 6),
        ("pubmed", 19717, 44324 + 3, 3, 500, 3),
    ],
)
def test_citation_networks_have_the_known_counts(name, nodes, edges, loops, features, classes):
    data = load(name)
    assert isinstance(data, NodeDataset)
    assert (data.graph.num_nodes, data.graph.num_edges, data.graph.num_self_loops) == (nodes, edges, loops)
    assert data.X.shape == (nodes, features)
    assert data.X.dtype == np.float32
    assert data.X.has_canonical_format
    assert sorted(set(data.y[data.y >= 0].tolist())) == list(range(classes))
    assert (len(data.train), len(data.validation), len(data.test)) == (20 * classes, 500, 1000)
    assert np.bincount(data.y[data.train]).tolist() == [20] * classes
    assert not set(data.train) & set(data.validation) | set(data.validation) & set(data.test)
    assert (data.y[data.test] >= 0).all()
    assert data.graph.node_ids.tolist() == list(range(nodes))


def test_fifteen_nodes_of_citeseer_have_neither_features_nor_a_class():
    data = load("citeseer")
    bare = np.flatnonzero(data.y < 0)
    assert len(bare) == 15
    assert data.X[bare].nnz == 0
    assert bare.min() >= 2312
    assert not set(bare) & set(data.test)
    assert data.counts["isolated"] == 48


@pytest.mark.parametrize("name", NODES)
def test_features_and_classes_stand_where_the_standard_reading_puts_them(name):
    data = load(name)
    parts = {}
    for part in ("x", "y", "tx", "ty", "allx"):
        path = datasets.data_folder() / "planetoid" / f"ind.{name}.{part}"
        with path.open("rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parts[part] = np.load(stream, allow_pickle=True, encoding="latin1")
    order = np.loadtxt(datasets.data_folder() / "planetoid" / f"ind.{name}.test.index", dtype=int)
    assert (data.X[data.train] != parts["x"]).nnz == 0
    assert (data.X[: parts["allx"].shape[0]] != parts["allx"]).nnz == 0
    assert (data.X[order] != parts["tx"]).nnz == 0
    assert np.array_equal(data.y[order], parts["ty"].argmax(1))
    assert np.array_equal(data.y[data.train], parts["y"].argmax(1))


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "loops", "validation", "test", "negatives"),
    [
        ("soc-facebook", 4039, 44113, 0, (0, 0), 44121, 44121),
        ("ca-AstroPh", 17903, 98515, 30, (0, 0), 98516, 98516),
        ("ca-HepTh", 8638, 13330, 8, (0, 0), 11496, 11496),
        ("ppi", 3852, 19349, 404, (0, 0), 19356, 19356),
        ("ogbl-ddi", 4267, 1067911, 0, (133489, 101882), 133489, 95599),
    ],
)
def test_link_datasets_have_the_known_counts(name, nodes, edges, loops, validation, test, negatives):
    data = load(name)
    assert isinstance(data, LinkDataset)
    counts = data.counts
    assert (counts["nodes"], counts["edges"], counts["self_loops"]) == (nodes, edges, loops)
    assert (counts["validation"], counts["validation_negatives"]) == validation
    assert (data.validation is None) == (validation == (0, 0))
    assert (data.test.shape, data.test_negatives.shape) == ((test, 2), (negatives, 2))


@pytest.mark.parametrize("name", LINKS)
def test_no_test_pair_is_a_training_edge_and_no_negative_is_an_edge(name):
    data = load(name)
    held_out = [pairs for pairs in (data.validation, data.test) if pairs is not None]
    negatives = [pairs for pairs in (data.validation_negatives, data.test_negatives) if pairs is not None]
    for pairs in held_out + negatives:
        assert not data.graph.has_edges(pairs[:, 0], pairs[:, 1]).any()
    edges = np.concatenate([keys(pairs) for pairs in held_out])
    assert len(np.unique(edges)) == len(edges)
    assert not np.isin(np.concatenate([keys(pairs) for pairs in negatives]), edges).any()
    assert data.counts["all_edges"] == len(edges) + data.graph.num_edges


def test_odd_nodes_of_link_datasets_are_kept():
    assert load("ca-HepTh").counts["isolated"] == 1
    pairs = load("ppi").test
    assert (pairs[:, 0] == pairs[:, 1]).sum() == 460


def test_digits_need_no_files_and_join_nearest_neighbours(tmp_path):
    data = datasets.load_dataset("digits", folder=tmp_path / "none", download=False)
    X = data.X.toarray()
    assert not (tmp_path / "none").exists()
    assert (np.diff(data.graph.indptr) >= 5).all()
    distances = ((X[0] - X) ** 2).sum(axis=1)
    nearest = np.argsort(distances, kind="stable")[1:6]
    assert data.graph.has_edges([0] * 5, nearest).all()
    assert np.bincount(data.y[data.train]).tolist() == [20] * 10
    assert np.bincount(data.y[data.validation]).tolist() == [50] * 10
    together = np.concatenate([data.train, data.validation, data.test])
    assert sorted(together.tolist()) == list(range(1797))
    assert data.class_names == tuple("0123456789")


def test_every_dataset_is_described_in_full():
    for name in datasets.list_datasets():
        info = datasets.describe(name)
        assert info.name == name
        assert info.task in ("nodes", "links")
        assert all([info.title, info.licence, info.citation])
        assert all(file.url is None or file.url.startswith("https://") for file in info.files)
        assert all(len(file.sha256) == 64 and file.bytes > 0 for file in info.files)
        assert not any(part in ("", ".", "..") for file in info.files for part in file.name.split("/"))
    assert set(datasets.list_datasets()) == {*NODES, *LINKS, "digits"}
    assert datasets.describe("ppi").published == {"nodes": 3852, "edges": 20881}
    assert datasets.describe("ppi").expected["all_edges"] == 38705
    assert datasets.describe("cora").bytes == sum(file.bytes for file in datasets.describe("cora").files)


@pytest.mark.parametrize("name", ["../../../../etc/passwd", "", "CORA ", "cora\x1b[2J", None, 7, "x" * 10**6])
def test_an_unknown_name_touches_no_file(name, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTGRL_DATA", str(tmp_path / "new"))
    for function in (
        datasets.load_dataset,
        datasets.describe,
        datasets.download,
        lambda n: datasets.verify([n]),
    ):
        with pytest.raises(ArgumentError, match="no dataset") as caught:
            function(name)
        assert len(str(caught.value)) < 200
        assert str(caught.value).isprintable()
    assert not list(tmp_path.iterdir())


def test_a_near_miss_is_suggested():
    for typed, meant in (
        ("Cora", "cora"),
        ("pubmd", "pubmed"),
        ("astroph", "ca-AstroPh"),
        ("ddi", "ogbl-ddi"),
    ):
        with pytest.raises(ArgumentError, match=f"did you mean {meant}|choose from .*{meant}"):
            datasets.describe(typed)


def test_the_folder_is_the_one_asked_for_or_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTGRL_DATA", str(tmp_path))
    assert datasets.data_folder() == tmp_path
    for unset in ("", None):
        monkeypatch.setenv("FASTGRL_DATA", unset) if unset == "" else monkeypatch.delenv("FASTGRL_DATA")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert "fastgrl" in datasets.data_folder().parts


# One small dataset with files of our own, so that nothing here depends on the network or on real data.


PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")


def tiny(*contents: bytes, address: str = "https://example.invalid/", name: str = "cora") -> DatasetInfo:
    files = tuple(
        FileInfo(f"ind.cora.{part}", f"{address}{part}", hashlib.sha256(data).hexdigest(), len(data))
        for part, data in zip(PARTS, contents, strict=False)
    )
    return dataclasses.replace(datasets.describe(name), files=files)


def place(info: DatasetInfo, folder: Path, *contents: bytes) -> None:
    (folder / info.folder).mkdir(parents=True)
    for file, data in zip(info.files, contents, strict=True):
        (folder / info.folder / file.name).write_bytes(data)


ARRAY, MATRIX, LISTS = SAMPLES["array"], SAMPLES["matrix"], SAMPLES["lists"]
FITTING = [MATRIX, ARRAY, MATRIX, ARRAY, MATRIX, ARRAY, LISTS, b"2\n3\n"]  # but for the counts of Cora


@pytest.mark.parametrize("part", ["allx", "graph"])
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_with_the_right_checksum_is_refused(case, part, tmp_path, monkeypatch):
    contents = [*FITTING]
    contents[PARTS.index(part)] = HOSTILE[case]
    info = tiny(*contents)
    place(info, tmp_path / "data", *contents)
    monkeypatch.setattr(readers, "describe", lambda _name: info)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match=rf"ind\.cora\.{part}"):
        datasets.load_dataset("cora", folder=tmp_path / "data")
    assert not list((tmp_path / "here").iterdir())


def test_small_files_that_fit_together_fail_only_by_their_counts(tmp_path, monkeypatch):
    info = tiny(*FITTING)
    place(info, tmp_path, *FITTING)
    monkeypatch.setattr(readers, "describe", lambda _name: info)
    with pytest.raises(InputError, match="do not fit together: node number 300"):
        datasets.load_dataset("cora", folder=tmp_path)


@pytest.mark.parametrize("broken", range(8))
def test_a_wrong_file_is_named_kept_and_never_parsed(broken, tmp_path, monkeypatch):
    info = tiny(*FITTING)
    contents = [*FITTING]
    contents[broken] = HOSTILE["posix.system"][: len(FITTING[broken])]
    place(info, tmp_path, *contents)
    monkeypatch.setattr(readers, "describe", lambda _name: info)
    for reader in ("unpickle", "read_adjacency", "_numbers"):
        monkeypatch.setattr(readers, reader, lambda *_, **__: pytest.fail("parsed before all was checked"))
    wrong = info.files[broken].name
    for function in (datasets.load_dataset, datasets.download):
        with pytest.raises(InputError, match=wrong) as caught:
            function("cora", folder=tmp_path)
        assert "fastgrl datasets download cora" in str(caught.value) or "delete it" in str(caught.value)
    assert (tmp_path / info.folder / wrong).read_bytes() == contents[broken]


def test_a_wrong_checksum_is_shown_beside_the_right_one(tmp_path, monkeypatch):
    info = tiny(b"right")
    place(info, tmp_path, b"wrong")
    monkeypatch.setattr(readers, "describe", lambda _name: info)
    with pytest.raises(InputError) as caught:
        datasets.load_dataset("cora", folder=tmp_path)
    for data in (b"right", b"wrong"):
        assert hashlib.sha256(data).hexdigest()[:12] in str(caught.value)


def test_wrong_counts_are_said():
    info = dataclasses.replace(
        datasets.describe("digits"), expected={"nodes": 1797, "edges": 7, "classes": 11}
    )
    with pytest.raises(InputError, match=r"digits.*7 edges were expected and 6309 found; 11 classes"):
        readers._check_counts(info, datasets.load_dataset("digits"))


def test_files_that_do_not_fit_together_are_refused(tmp_path, monkeypatch):
    for index in (b"2\n", b"2\n2\n", b"0\n1\n", b"x\n", b"", b"2\n-3\n"):
        contents = [*FITTING[:-1], index]
        info = tiny(*contents)
        folder = tmp_path / index.hex()
        place(info, folder, *contents)
        monkeypatch.setattr(readers, "describe", lambda _name, info=info: info)
        with pytest.raises(InputError, match="cora"):
            datasets.load_dataset("cora", folder=folder)


@pytest.mark.parametrize(
    "content", [b"", b"x" * 10, b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False"]
)
def test_a_damaged_array_with_the_right_checksum_is_refused(content, tmp_path, monkeypatch):
    files = tuple(
        FileInfo(f"{part}.txt.npy", None, hashlib.sha256(content).hexdigest(), len(content))
        for part in ("train", "test", "test.neg")
    )
    info = dataclasses.replace(datasets.describe("ppi"), files=files)
    place(info, tmp_path, *[content] * 3)
    monkeypatch.setattr(readers, "describe", lambda _name: info)
    with pytest.raises(InputError, match="ppi"):
        datasets.load_dataset("ppi", folder=tmp_path)


@pytest.mark.parametrize("kind", ["folder", "pipe", "large", "dangling"])
def test_what_is_not_a_file_is_refused_without_waiting(kind, tmp_path, monkeypatch):
    info = tiny(b"right")
    path = tmp_path / info.folder / info.files[0].name
    path.parent.mkdir()
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "large":
            path.touch()
            os.truncate(path, 1 << 40)
        case "dangling":
            path.symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(readers, "describe", lambda _name: info)
    monkeypatch.setattr(cache, "describe", lambda _name: info)
    with pytest.raises((InputError, UnavailableError), match=r"ind\.cora\.x"):
        datasets.load_dataset("cora", folder=tmp_path)
    assert [s.state for s in datasets.verify(["cora"], folder=tmp_path)] in (["wrong"], ["missing"])


def test_verify_tells_missing_wrong_and_right_files_apart(tmp_path, monkeypatch):
    info = tiny(b"one", b"two", b"three")
    place(info, tmp_path, b"one", b"owt", b"three")
    (tmp_path / info.folder / info.files[2].name).unlink()
    monkeypatch.setattr(cache, "describe", lambda _name: info)
    found = datasets.verify(["cora"], folder=tmp_path)
    assert [status.state for status in found] == ["ok", "wrong", "missing"]
    assert found[0].sha256 == info.files[0].sha256
    assert found[2].sha256 is None


# Downloads, from a server on this machine.


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    content: bytes = b""

    def do_GET(self) -> None:
        content = self.content
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/x")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        announced = len(content) if self.path != "/cut" else 2 * len(content)
        self.send_header("Content-Length", str(announced))
        self.send_header("Connection", "close")
        self.end_headers()
        for first in range(0, len(content), 10_000):
            self.wfile.write(content[first : first + 10_000])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=[0.01], daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()


def over_http(url: str, sink: cache.Sink) -> None:
    cache.fetch(url, sink, refuse=lambda _url: None)


GOOD = bytes(range(256)) * 400


def remote(url: str, data: bytes = GOOD) -> DatasetInfo:
    file = FileInfo("ind.cora.x", url, hashlib.sha256(data).hexdigest(), len(data))
    return dataclasses.replace(datasets.describe("cora"), files=(file,))


def test_a_download_arrives_whole_and_reports_its_progress(server, tmp_path, monkeypatch):
    monkeypatch.setattr(Handler, "content", GOOD)
    seen: list[tuple[int, int]] = []
    info = remote(f"{server}x")
    (path,) = cache.fetch_missing(
        info, folder=tmp_path, downloader=over_http, progress=lambda done, total: seen.append((done, total))
    )
    assert path.read_bytes() == GOOD
    assert [entry.name for entry in path.parent.iterdir()] == ["ind.cora.x"]
    assert seen == sorted(seen)
    assert seen[-1] == (len(GOOD), len(GOOD))
    before = path.stat().st_mtime_ns
    cache.fetch_missing(info, folder=tmp_path, downloader=lambda *_: pytest.fail("it is already there"))
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("page", "content", "says"),
    [
        ("x", GOOD[:-1], "not that file"),
        ("x", GOOD[:-1] + b"?", "not that file"),
        ("x", GOOD + b"?", "not that file"),
        ("x", GOOD * 50, "not that file"),
        ("x", b"", "not that file"),
        ("cut", GOOD, "no connection"),
        ("cut", GOOD[: len(GOOD) // 2], "no connection"),
        ("missing", GOOD, "answered 404"),
    ],
)
def test_a_truncated_or_wrong_download_is_refused_and_removed(
    page, content, says, server, tmp_path, monkeypatch
):
    monkeypatch.setattr(Handler, "content", content)
    with pytest.raises(UnavailableError, match=says) as caught:
        cache.fetch_missing(remote(server + page), folder=tmp_path, downloader=over_http)
    assert not list((tmp_path / "planetoid").iterdir())
    assert_helpful(str(caught.value), f"{server}{page}", tmp_path / "planetoid" / "ind.cora.x")


def assert_helpful(message: str, url: str, path: Path) -> None:
    assert 1 <= len(message.splitlines()) <= 8
    assert all(part in message for part in ("cora", path.name, url, str(path), "FASTGRL_DATA"))
    assert "Traceback" not in message


def test_two_processes_that_download_at_once_leave_one_right_file(server, tmp_path, monkeypatch):
    monkeypatch.setattr(Handler, "content", GOOD)
    code = (
        "import sys, test_datasets as t\n"
        "info = t.remote(sys.argv[1])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "(path,) = t.cache.fetch_missing(info, folder=sys.argv[2], downloader=t.over_http)\n"
        "assert path.read_bytes() == t.GOOD\n"
    )
    command = [sys.executable, "-W", "error", "-c", code, f"{server}x", str(tmp_path)]
    here = Path(__file__).parent
    running = [
        subprocess.Popen(command, cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.communicate("go\n")
    assert [process.returncode for process in running] == [0, 0]
    assert [entry.name for entry in (tmp_path / "planetoid").iterdir()] == ["ind.cora.x"]
    assert (tmp_path / "planetoid" / "ind.cora.x").read_bytes() == GOOD


def test_many_threads_that_download_at_once_leave_one_right_file(server, tmp_path, monkeypatch):
    monkeypatch.setattr(Handler, "content", GOOD)
    info, wrong = remote(f"{server}x"), []

    def work() -> None:
        try:
            cache.fetch_missing(info, folder=tmp_path, downloader=over_http)
            if (tmp_path / "planetoid" / "ind.cora.x").read_bytes() != GOOD:
                wrong.append("content")
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [entry.name for entry in (tmp_path / "planetoid").iterdir()] == ["ind.cora.x"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_download_leaves_nothing(error, tmp_path):
    def stop(_url: str, sink: cache.Sink) -> None:
        sink.write(GOOD[:100])
        raise error

    with pytest.raises(error):
        cache.fetch_missing(remote("https://example.invalid/x"), folder=tmp_path, downloader=stop)
    assert not list((tmp_path / "planetoid").iterdir())


def test_only_https_is_followed(server, tmp_path):
    with pytest.raises(UnavailableError, match="not an https address"):
        cache.fetch_missing(remote(f"{server}x"), folder=tmp_path)


def test_every_redirection_is_looked_at_before_it_is_followed(server, tmp_path, monkeypatch):
    monkeypatch.setattr(Handler, "content", GOOD)
    seen: list[str] = []
    info = remote(f"{server}moved")
    cache.fetch_missing(
        info, folder=tmp_path, downloader=lambda url, sink: cache.fetch(url, sink, refuse=seen.append)
    )
    assert seen == [f"{server}moved", f"{server}x", f"{server}x"]


@pytest.mark.parametrize("name", ["cora", "ppi"])
def test_offline_it_says_which_file_from_where_and_where_to(name, tmp_path, monkeypatch):
    for variable in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("FASTGRL_DATA", str(tmp_path))
    info = datasets.describe(name)
    for function in (datasets.load_dataset, datasets.download):
        with pytest.raises(UnavailableError, match="no connection") as caught:
            function(name)
        message = str(caught.value)
        assert name in message
        assert str(info.files[0].url) in message
        assert str(tmp_path / info.folder / info.files[0].name) in message
        assert 1 <= len(message.splitlines()) <= 8
    assert not [entry for entry in tmp_path.rglob("*") if entry.is_file()]


def test_without_download_nothing_is_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "over_https", lambda *_: pytest.fail("tried"))
    with pytest.raises(UnavailableError, match="fastgrl datasets download ppi"):
        datasets.load_dataset("ppi", folder=tmp_path / "none", download=False)
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(
        UnavailableError, match=r"ind\.cora\.x is missing, and nothing can be written to .*file"
    ):
        datasets.load_dataset("cora", folder=tmp_path / "file")

    def full(_url: str, sink: cache.Sink) -> None:
        monkeypatch.setattr(sink, "_stream", Full())
        sink.write(b"x")

    class Full:
        def write(self, _chunk: bytes) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(UnavailableError, match="No space left"):
        cache.fetch_missing(remote("https://example.invalid/x"), folder=tmp_path, downloader=full)
    assert not list((tmp_path / "planetoid").iterdir())


def test_ogbl_ddi_is_not_downloaded_but_explained(tmp_path):
    for function in (datasets.load_dataset, datasets.download):
        with pytest.raises(UnavailableError, match="convert_ogbl_ddi") as caught:
            function("ogbl-ddi", folder=tmp_path)
        assert "pip install ogb" in str(caught.value)
        assert str(tmp_path / "ogbl-ddi") in str(caught.value)
        assert len(str(caught.value).splitlines()) <= 8


class Tensor:
    """As much of a PyTorch tensor as NumPy sees."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values if dtype is None else self.values.astype(dtype)


@pytest.mark.parametrize("kind", [np.asarray, Tensor])
def test_ogb_arrays_become_the_known_files_byte_for_byte(kind, tmp_path):
    load("ogbl-ddi")
    source = datasets.data_folder() / "ogbl-ddi"
    arrays = {path.stem: kind(np.load(path).astype(np.int64)) for path in source.glob("*.npy")}
    split = {"train": {"edge": arrays["train"]}}
    split |= {part: {"edge": arrays[part], "edge_neg": arrays[f"{part}.neg"]} for part in ("valid", "test")}
    paths = datasets.convert_ogbl_ddi(split, tmp_path)
    assert all(path.read_bytes() == (source / path.name).read_bytes() for path in paths)
    assert datasets.load_dataset("ogbl-ddi", folder=tmp_path).graph.num_edges == 1067911


def test_other_ogb_arrays_are_refused_and_nothing_is_written(tmp_path):
    pairs = np.zeros((3, 2), np.int64)
    split = {part: {"edge": pairs, "edge_neg": pairs} for part in ("train", "valid", "test")}
    with pytest.raises(InputError, match="another version"):
        datasets.convert_ogbl_ddi(split, tmp_path)
    for wrong in ({}, {"train": {"edge": pairs + 0.5}}, {"train": {"edge": pairs + 2**15}}, {"train": 3}):
        with pytest.raises(ArgumentError, match="split_edge"):
            datasets.convert_ogbl_ddi(wrong, tmp_path)
    assert not list(tmp_path.iterdir())
