"""Files at addresses: the same laws for paths and for a store, here one in memory."""

from __future__ import annotations

import uuid
from typing import ClassVar

import fsspec
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from clusters import edge_folder
from fsspec.implementations.memory import MemoryFileSystem

from fastgrl.distributed.addresses import Address
from fastgrl.distributed.checkpoints import Checkpoint
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.embedding import embed_folder
from fastgrl.distributed.engines import HERE, Pending
from fastgrl.distributed.loading import load_graph
from fastgrl.distributed.shards import read_block, read_whole_block, share_block, share_rows, write_block
from fastgrl.distributed.writing import Result, write_blocks
from fastgrl.errors import ArgumentError, FastgrlError, InputError, UnavailableError
from fastgrl.kernels import csr_from_scipy
from fastgrl.leaves import Matrix


@pytest.fixture(params=["a path", "a store"])
def root(request, tmp_path):
    """An empty folder of either kind."""
    if request.param == "a path":
        return Address.of(tmp_path / "root")
    return Address.of(f"memory://{uuid.uuid4().hex}")


def put(address, contents=b"x"):
    address.write(lambda file: file.write(contents))


def contents(address):
    with address.opened() as file:
        return file.read()


def test_what_is_written_is_read(root):
    root.make_folder()
    put(root / "a", b"12")
    put(root / "a", b"3")
    assert contents(root / "a") == b"3"
    assert root.is_folder()
    assert not (root / "a").is_folder()
    assert [file.name for file in root.files()] == ["a"]


def test_what_is_not_there_is_not_there(root):
    assert not (root / "a").is_there()
    assert not root.is_folder()
    with pytest.raises(FileNotFoundError):
        contents(root / "a")
    (root / "a").remove()


def test_a_write_that_fails_leaves_what_was_there(root):
    root.make_folder()
    put(root / "a", b"old")

    def fail(file):
        file.write(b"new")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        (root / "a").write(fail)
    assert contents(root / "a") == b"old"
    assert [file.name for file in root.files()] == ["a"]


def test_a_folder_moves_with_all_its_files_and_can_be_removed(root):
    (root / "old" / "deep").make_folder()
    put(root / "old" / "a", b"1")
    put(root / "old" / "deep" / "b", b"2")
    (root / "new").make_folder()
    put(root / "new" / "c", b"3")
    (root / "old").replace(root / "new")
    assert [file.within(root) for file in root.files()] == [("new", "a"), ("new", "deep", "b")]
    assert contents(root / "new" / "deep" / "b") == b"2"
    (root / "new").remove()
    assert not (root / "new").is_there()


def test_a_file_that_changes_has_another_version(root):
    root.make_folder()
    put(root / "a", b"1")
    before = (root / "a").version()
    assert (root / "a").version() == before
    put(root / "a", b"2")
    assert (root / "a").version() != before


@pytest.mark.parametrize("nothing", ["", "file://", "s3://", "memory:///"])
def test_an_address_names_something(nothing):
    with pytest.raises(ArgumentError, match="names no file or folder"):
        Address.of(nothing)


@pytest.mark.parametrize("letter", ["*", "?", "[1]"])
def test_an_address_is_no_pattern_but_a_path_may_look_like_one(tmp_path, letter):
    with pytest.raises(ArgumentError, match="would be a pattern"):
        Address.of(f"memory://out{letter}")
    (tmp_path / "out1").mkdir()
    Address.of(tmp_path / f"out{letter}").remove()
    assert (tmp_path / "out1").is_dir()


def test_names_for_one_file(tmp_path):
    assert Address.of(f"file://{tmp_path}/a") == Address.of(tmp_path / "a")
    assert (Address.of("s3://b/c/").beside("d"), Address.of("s3://b/c").name) == (Address("s3://b/d"), "c")
    assert Address.of(tmp_path / "a").beside("b") == Address.of(tmp_path / "b")


@pytest.mark.parametrize("columns", [None, 1, 3])
@pytest.mark.parametrize("bounds", [(0, 5), (2, 4), (5, 5)])
def test_some_rows_of_a_block_are_read_alone(root, columns, bounds):
    root.make_folder()
    block = np.arange(5.0 * (columns or 1)).reshape((5,) if columns is None else (5, columns))
    path = write_block(root / "block.npy", block)
    begin, end = bounds
    assert np.array_equal(read_block(path, begin, end), block[begin:end])
    assert np.array_equal(read_whole_block(path), block)


def test_a_block_that_is_cut_short_is_an_error(root):
    root.make_folder()
    path = write_block(root / "block.npy", np.ones((50, 4)))
    put(path, contents(path)[:-1])
    assert read_block(path, 0, 49).sum() == 196
    with pytest.raises(UnavailableError, match="cut short"):
        read_block(path, 40, 50)


def test_what_a_caller_shares_arrives(root):
    cluster = Cluster(HERE, 3, storage=root)
    matrix = scipy.sparse.random_array((9000, 50), density=0.01, rng=1, dtype=np.float32).tocsr()
    rows = share_rows(cluster, csr_from_scipy(matrix))
    x = share_block(cluster, np.ones((50, 2), np.float32))
    assert np.allclose(cluster.seam.host(Matrix(rows) @ x), matrix @ np.ones((50, 2)), rtol=1e-5)


# ---- from store to store


def copy_to_store(folder, root):
    for file in sorted(folder.iterdir()):
        put(root / file.name, file.read_bytes())


def table_in(root):
    return pd.concat([pd.read_parquet(fsspec.open(file.text).open()) for file in root.files()])


@pytest.fixture
def store():
    return Address.of(f"memory://{uuid.uuid4().hex}")


def test_results_are_the_same_wherever_they_are_written(tmp_path, store):
    edge_folder(tmp_path / "edges", 9000, 20_000)
    copy_to_store(tmp_path / "edges", store / "edges")
    how = {"design": "walk", "rank": 4}
    told = embed_folder(Cluster(HERE, 3), f"{store}/edges", f"{store}/out", **how)
    embed_folder(Cluster(HERE, 3), str(tmp_path / "edges"), str(tmp_path / "out"), **how)
    assert [file.name for file in (store / "out").files()] == told["files"]
    assert table_in(store / "out").equals(table_in(Address.of(tmp_path / "out")))


def test_a_run_goes_on_from_a_checkpoint_in_a_store(tmp_path, store):
    edge_folder(tmp_path / "edges", 9000, 20_000)
    edges, how = str(tmp_path / "edges"), {"design": "degree-walk", "rank": 4}

    def checkpointed():
        return Cluster(HERE, 3, checkpoint=Checkpoint.at(f"{store}/kept"))

    def stop(done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_folder(checkpointed(), edges, f"{store}/out", progress=stop, **how)
    assert not (store / "out").is_there()
    begun = {file.text for file in (store / "kept").files()}
    embed_folder(checkpointed(), edges, f"{store}/out", **how)
    assert begun < {file.text for file in (store / "kept").files()}
    embed_folder(Cluster(HERE, 3), edges, f"{store}/plain", **how)
    assert table_in(store / "out").equals(table_in(store / "plain"))


def test_results_in_a_store_are_replaced_when_told_and_nothing_else_is(tmp_path, store):
    edge_folder(tmp_path / "edges", 300, 900)
    edges, how = str(tmp_path / "edges"), {"design": "walk", "rank": 2}
    put(store / "out" / "part-00009.parquet")
    with pytest.raises(ArgumentError, match="exists; pass force"):
        embed_folder(Cluster(HERE), edges, f"{store}/out", **how)
    embed_folder(Cluster(HERE), edges, f"{store}/out", force=True, **how)
    assert [file.name for file in (store / "out").files()] == ["part-00000.parquet"]
    put(store / "out" / "mine")
    with pytest.raises(ArgumentError, match="it is not deleted"):
        embed_folder(Cluster(HERE), edges, f"{store}/out", force=True, **how)
    with pytest.raises(ArgumentError, match="is a whole store"):
        embed_folder(Cluster(HERE), edges, str(store), force=True, **how)


class Failing(MemoryFileSystem):
    """A store that loses its connection when the second file is copied."""

    protocol = "failing"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]
    copied = 0

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.replace("failing://", "memory://"))

    def cp_file(self, one, other, **how):
        type(self).copied += 1
        if self.copied == 2:
            raise ConnectionError("gone")
        super().cp_file(one, other, **how)


def test_results_that_cannot_take_their_place_are_kept_and_the_error_says_where(tmp_path):
    fsspec.register_implementation("failing", Failing, clobber=True)
    edge_folder(tmp_path / "edges", 9000, 20_000)
    with pytest.raises(UnavailableError, match="gone; the results are in failing://a/") as told:
        embed_folder(Cluster(HERE, 3), str(tmp_path / "edges"), "failing://a/out", design="walk", rank=2)
    kept = Address.of(str(told.value).rpartition(" ")[2])
    assert [file.name for file in kept.files()] == [f"part-{number:05}.parquet" for number in range(3)]


@pytest.mark.parametrize("force", [False, True])
def test_what_comes_into_being_during_a_run_is_not_deleted(tmp_path, root, force):
    edge_folder(tmp_path / "edges", 300, 900)

    def meanwhile(done, total):
        (root / "out").make_folder()
        put(root / "out" / "mine", b"mine")

    how = {"design": "walk", "rank": 2, "force": force, "progress": meanwhile}
    with pytest.raises(ArgumentError, match=r"(exists|is not deleted).*; the results are in .*\.out\."):
        embed_folder(Cluster(HERE), str(tmp_path / "edges"), f"{root}/out", **how)
    assert contents(root / "out" / "mine") == b"mine"


def test_what_a_worker_that_died_has_left_is_no_part_of_the_result(tmp_path, root):
    def write_twice(path):
        put(path.beside(".part.tmp"), b"half")
        put(path, b"whole")

    names = write_blocks(
        Cluster(HERE), Result(f"{root}/out"), lambda i, path: Pending(write_twice, (path,)), 2
    )
    assert [file.name for file in (root / "out").files()] == names


def test_a_result_behind_a_link_is_replaced_and_the_link_stays(tmp_path):
    edge_folder(tmp_path / "edges", 300, 900)
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    how = {"design": "walk", "rank": 2, "force": True}
    embed_folder(Cluster(HERE), str(tmp_path / "edges"), str(tmp_path / "link"), **how)
    assert (tmp_path / "link").is_symlink()
    assert [file.name for file in (tmp_path / "there").iterdir()] == ["part-00000.parquet"]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_checkpoint_in_a_store_knows_when_its_edges_have_changed(tmp_path, store):
    edge_folder(tmp_path / "edges", 300, 900)

    def embed(out):
        copy_to_store(tmp_path / "edges", store / "edges")
        cluster = Cluster(HERE, checkpoint=Checkpoint.at(f"{store}/kept"))
        embed_folder(cluster, f"{store}/edges", f"{store}/{out}", design="walk", rank=2)

    embed("one")
    with pytest.raises(ArgumentError, match="another run"):
        embed("two")


def test_an_address_that_nobody_knows_is_refused(tmp_path):
    for address in ("nowhere://a/b", "s4://bucket/edges"):
        with pytest.raises(ArgumentError, match="cannot be opened"):
            load_graph(Cluster(HERE), address)
        with pytest.raises(ArgumentError, match="cannot be opened"):
            embed_folder(Cluster(HERE), str(tmp_path), address)
        with pytest.raises(ArgumentError, match="cannot be opened"):
            Checkpoint.at(address)


class Broken(fsspec.AbstractFileSystem):
    """A store that is down."""

    protocol = "broken"

    def ls(self, path, detail=True, **how):
        raise LookupError("no\nanswer")


def test_the_failure_of_a_store_is_one_line(tmp_path):
    fsspec.register_implementation("broken", Broken, clobber=True)
    edge_folder(tmp_path / "edges", 300, 900)
    with pytest.raises(InputError, match="'broken://a/b' cannot be read: LookupError: no answer"):
        load_graph(Cluster(HERE), "broken://a/b")
    with pytest.raises(UnavailableError, match="'broken://a/b' cannot be written: LookupError: no answer"):
        embed_folder(Cluster(HERE), str(tmp_path / "edges"), "broken://a/b")


@pytest.mark.parametrize("name", ["sftp://me:s3cret@nowhere.invalid/edges", "s9://me:s3cret@bucket/edges"])
def test_no_message_shows_a_password(name):
    with pytest.raises((FastgrlError, OSError)) as caught:
        Address.of(name).files()
    assert "s3cret" not in str(caught.value)
    assert "me:***@" in str(Address.of(name))
    assert Address.of(name).text == name
