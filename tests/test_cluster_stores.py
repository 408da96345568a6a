"""From store to store on real workers: S3's protocol, spoken by a server in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request

import pandas as pd
import pytest
from clusters import edge_folder, fastgrl, kill, until, write_digits

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def server():
    """The address of a server with an empty store."""
    pytest.importorskip("s3fs", reason="make cluster installs s3fs, which speaks to S3")
    pytest.importorskip("moto", reason="make cluster installs moto, a server of S3's protocol")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(program, stdout=quiet, stderr=quiet)
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}"))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def answers(address):
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture
def store(server, monkeypatch):
    """An empty bucket, and the file system to look at it with."""
    import s3fs

    variables = {"ACCESS_KEY_ID": "ours", "SECRET_ACCESS_KEY": "ours", "DEFAULT_REGION": "us-east-1"}
    for name, value in {"ENDPOINT_URL": server, **variables}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    fs = s3fs.S3FileSystem(endpoint_url=server, use_listings_cache=False, skip_instance_cache=True)
    fs.mkdir("graphs")
    yield fs
    fs.rm("graphs", recursive=True)


def finished(program):
    out, errors = program.communicate(timeout=300)
    return program.returncode, out.decode(), errors.decode()


def ran(*words, cwd):
    ended = finished(fastgrl(*words, cwd=cwd))
    assert ended[0] == 0, ended


def assert_same_tables(fs, in_store, folder):
    parts = [pd.read_parquet(fs.open(path)) for path in sorted(fs.find(in_store))]
    assert pd.concat(parts, ignore_index=True).equals(pd.read_parquet(folder))


DEGREE_WALK = ("--design", "degree-walk", "--rank", "8", "--cluster", "local:2")


def test_an_embedding_from_store_to_store_is_that_of_folders(tmp_path, store):
    edge_folder(tmp_path / "edges", 9000, 20_000)
    store.put(f"{tmp_path}/edges/", "graphs/edges/", recursive=True)
    how = DEGREE_WALK
    ran("embed", "s3://graphs/edges", "-o", "s3://graphs/vectors", *how, cwd=tmp_path)
    ran("embed", "edges", "-o", "vectors", *how, cwd=tmp_path)
    assert_same_tables(store, "graphs/vectors", tmp_path / "vectors")
    # A second time it is there; what lies beside it is not touched by --force.
    again = finished(fastgrl("embed", "edges", "-o", "s3://graphs/vectors", *how, cwd=tmp_path))
    assert again[0] == 2
    assert "exists" in again[2]
    assert len(again[2].strip().splitlines()) <= 2
    whole = finished(fastgrl("embed", "edges", "-o", "s3://graphs", *how, "--force", cwd=tmp_path))
    assert whole[0] == 2
    assert "is a whole store" in whole[2]
    assert store.exists("graphs/edges/part-0.parquet")


def test_a_run_that_was_killed_goes_on_from_a_checkpoint_in_a_store(tmp_path, store):
    edge_folder(tmp_path / "edges", 9000, 20_000)
    how = (*DEGREE_WALK, "--checkpoint", "s3://graphs/kept")
    resumed = ("embed", "edges", "-o", "s3://graphs/vectors", *how)
    first = fastgrl(*resumed, cwd=tmp_path)
    until(lambda: any("product-0003" in path for path in store.find("graphs/kept")))
    kill(first.pid)
    first.communicate()
    assert not store.exists("graphs/vectors")
    kept = {path: store.info(path)["LastModified"] for path in store.find("graphs/kept") if "part-" in path}
    ran(*resumed, cwd=tmp_path)
    done = {path for path, when in kept.items() if store.info(path)["LastModified"] == when}
    assert any("product-0001" in path for path in done)
    ran("embed", "edges", "-o", "plain", *DEGREE_WALK, cwd=tmp_path)
    assert_same_tables(store, "graphs/vectors", tmp_path / "plain")


def test_classes_are_written_to_a_store(tmp_path, store):
    write_digits(tmp_path)
    (tmp_path / "edges").mkdir()
    pd.read_csv(tmp_path / "edges.csv").to_parquet(tmp_path / "edges" / "all.parquet")
    how = ("--labels", "labels.csv", "--cluster", "local:2")
    ran("classify", "edges", "-o", "s3://graphs/classes", *how, cwd=tmp_path)
    ran("classify", "edges", "-o", "classes", *how, cwd=tmp_path)
    assert_same_tables(store, "graphs/classes", tmp_path / "classes")


def test_a_store_that_cannot_be_used_is_one_line(tmp_path, store, monkeypatch):
    edge_folder(tmp_path / "edges", 300, 900)
    how = ("--design", "walk", "--rank", "2", "--cluster", "local:1", "--quiet")
    for edges, out, code, words in (
        ("s3://graphs/none", "out", 2, "'s3://graphs/none' is no folder of Parquet files"),
        ("edges", "s3://no-such-bucket/out", 1, "cannot be written: "),
        ("s4://graphs/edges", "out", 2, "'s4://graphs/edges' cannot be opened: Protocol not known: s4"),
    ):
        found, _, errors = finished(fastgrl("embed", edges, "-o", out, *how, cwd=tmp_path))
        assert (found, len(errors.strip().splitlines())) == (code, 1), errors
        assert words in errors
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    found, _, errors = finished(fastgrl("embed", "s3://graphs/edges", "-o", "out", *how, cwd=tmp_path))
    assert found == 2
    assert "cannot be read" in errors
    assert len(errors.strip().splitlines()) == 1
