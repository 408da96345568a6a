"""Faults, with real processes: workers killed or short of memory, schedulers and callers that die."""

from __future__ import annotations

import json
import os
import re
import time

import numpy as np
import pandas as pd
import pytest
from clusters import (
    edge_folder,
    end_programs,
    external,
    fastgrl,
    kill,
    tasks_done,
    until,
    vectors_in,
    watching,
    worker_pids,
    write_digits,
)

import fastgrl as fg

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def _nothing_is_left_running():
    yield
    end_programs()


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    edge_folder(folder / "edges", 100_000, 400_000, text=False)
    return folder


EMBED = (
    *("embed", "edges", "--design", "degree-walk", "--rank", "16", "--window", "3"),
    *("--blocks", "4", "--quiet"),
)


@pytest.fixture(scope="module")
def undisturbed(edges):
    """What an embedding gives without a fault, and how long it takes."""
    with external(edges / "calm") as cluster, watching(cluster.address, 2):
        begin = time.monotonic()
        embedded(edges, cluster.address, "calm-vectors")
        seconds = time.monotonic() - begin
    return vectors_in(edges / "calm-vectors"), seconds


def embedded(folder, address, out):
    done = fastgrl(*EMBED, "-o", out, "--cluster", address, cwd=folder)
    output, errors = done.communicate(timeout=200)
    assert done.returncode == 0, errors.decode()
    return output


@pytest.mark.parametrize("nanny", [True, False])
@pytest.mark.parametrize("after", [12, 150])
def test_a_worker_that_is_killed_changes_nothing(edges, undisturbed, nanny, after):
    (ids, vectors), seconds = undisturbed
    out = f"killed-{nanny}-{after}"
    options = () if nanny else ("--no-nanny",)
    with external(edges / out, 2, *options) as cluster, watching(cluster.address, 2) as client:
        pids, begin = worker_pids(client), time.monotonic()
        program = fastgrl(*EMBED, "-o", f"{out}-vectors", "--cluster", cluster.address, cwd=edges)
        until(lambda: tasks_done(client) >= after)
        kill(pids[0])
        _, errors = program.communicate(timeout=200)
        assert program.returncode == 0, errors.decode()
        print(f"extra time: {time.monotonic() - begin - seconds:.1f} s on {seconds:.1f} s")
    found = vectors_in(edges / f"{out}-vectors")
    assert np.array_equal(found[0], ids)
    assert np.array_equal(found[1], vectors)


def test_a_worker_that_is_killed_while_nodes_are_classified_changes_nothing(tmp_path):
    write_digits(tmp_path)
    verb = ("classify", "edges.csv", "--labels", "labels.csv", "--no-select", "--quiet")
    alone = fastgrl(*verb, "-o", "alone.csv", cwd=tmp_path)
    assert alone.wait(100) == 0
    with external(tmp_path / "cluster") as cluster, watching(cluster.address, 2) as client:
        pids = worker_pids(client)
        program = fastgrl(*verb, "-o", "there.csv", "--cluster", cluster.address, cwd=tmp_path)
        until(lambda: tasks_done(client) >= 30)
        kill(pids[1])
        _, errors = program.communicate(timeout=200)
        assert program.returncode == 0, errors.decode()
    one, other = (pd.read_csv(tmp_path / name) for name in ("alone.csv", "there.csv"))
    assert (one["class"] == other["class"]).mean() > 0.995


def test_classes_go_from_folder_to_folder_past_a_worker_that_is_killed(tmp_path):
    digits = fg.load_dataset("digits")
    ends = digits.graph.edge_codes()
    (tmp_path / "edges").mkdir()
    table = pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1]})
    table.to_parquet(tmp_path / "edges" / "all.parquet")
    write_digits(tmp_path)
    verb = ("classify", "edges", "--labels", "labels.csv", "--quiet", "--cluster")
    with external(tmp_path / "cluster") as cluster, watching(cluster.address, 2) as client:
        calm = fastgrl(*verb, cluster.address, "-o", "calm", cwd=tmp_path)
        _, errors = calm.communicate(timeout=200)
        assert calm.returncode == 0, errors.decode()
        pids, before = worker_pids(client), tasks_done(client)
        program = fastgrl(*verb, cluster.address, "-o", "killed", cwd=tmp_path)
        until(lambda: tasks_done(client) >= before + 60)
        kill(pids[0])
        _, errors = program.communicate(timeout=200)
        assert program.returncode == 0, errors.decode()
    one, other = (pd.read_parquet(tmp_path / name) for name in ("calm", "killed"))
    assert one.equals(other)


def test_a_scheduler_that_is_gone_is_an_error_and_leaves_nothing(edges):
    with external(edges / "gone") as cluster, watching(cluster.address, 2) as client:
        program = fastgrl(*EMBED, "-o", "gone-vectors", "--cluster", cluster.address, cwd=edges)
        until(lambda: tasks_done(client) >= 60)
        client.close()
        kill(cluster.processes[0].pid)
        _, errors = program.communicate(timeout=100)
    assert program.returncode == 1
    said = [line for line in errors.decode().splitlines() if line.startswith("error:")]
    assert len(said) == 1
    assert "is gone" in said[0]
    assert "--checkpoint" in said[0]
    assert not [name for name in os.listdir(edges) if "gone-vectors" in name]


def test_a_run_whose_client_and_scheduler_died_goes_on_from_its_checkpoint(edges, undisturbed):
    (ids, vectors), _ = undisturbed
    verb = (*EMBED, "-o", "resumed-vectors", "--checkpoint", "kept")
    with external(edges / "first") as cluster, watching(cluster.address, 2) as client:
        program = fastgrl(*verb, "--cluster", cluster.address, cwd=edges)
        until(lambda: len(list((edges / "kept").glob("stage-*/product-*/facts.json"))) >= 4)
        program.kill()
        program.communicate()
        client.close()
        kill(cluster.processes[0].pid)
    before = {path: path.stat().st_mtime_ns for path in (edges / "kept").glob("stage-*/product-*/facts.json")}
    with external(edges / "second", 3) as cluster, watching(cluster.address, 3):
        program = fastgrl(*verb, "--cluster", cluster.address, cwd=edges)
        _, errors = program.communicate(timeout=200)
        assert program.returncode == 0, errors.decode()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    found = vectors_in(edges / "resumed-vectors")
    assert np.array_equal(found[0], ids)
    assert np.array_equal(found[1], vectors)


def test_workers_with_less_memory_than_their_share_spill_and_the_answer_is_the_same(edges, undisturbed):
    (ids, vectors), _ = undisturbed
    with external(edges / "spill", 2, "--memory-limit", "340MB") as cluster:
        with watching(cluster.address, 2) as client:
            program = fastgrl(*EMBED, "-o", "spilled-vectors", "--cluster", cluster.address, cwd=edges)
            most = 0
            while program.poll() is None:
                most = max(most, spilled_bytes(client))
                time.sleep(0.2)
        _, errors = program.communicate()
        assert program.returncode == 0, errors.decode()
    assert most > 0
    found = vectors_in(edges / "spilled-vectors")
    assert np.array_equal(found[0], ids)
    assert np.array_equal(found[1], vectors)


def spilled_bytes(client):
    """What all workers together have on disk, as they said last."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return sum(worker["metrics"].get("spilled_bytes", {}).get("disk", 0) for worker in workers)


def test_workers_that_stay_paused_are_an_error_and_no_wrong_answer(edges, undisturbed):
    (_, vectors), _ = undisturbed
    with external(edges / "paused", 2, "--memory-limit", "240MB") as cluster, watching(cluster.address, 2):
        program = fastgrl(*EMBED, "-o", "paused-vectors", "--cluster", cluster.address, cwd=edges)
        _, errors = program.communicate(timeout=200)
    said = errors.decode().replace("\n", " ")
    if program.returncode == 0:
        assert np.array_equal(vectors_in(edges / "paused-vectors")[1], vectors)
    else:
        assert program.returncode == 1
        assert re.search(r"error: .*(memory is full|died again and again).*--blocks", said)
        assert not (edges / "paused-vectors").exists()


def test_too_little_memory_is_an_error_that_says_what_to_do(edges):
    with external(edges / "tiny", 2, "--memory-limit", "130MB") as cluster, watching(cluster.address, 2):
        verb = [word for word in EMBED if word not in ("--blocks", "4")]
        program = fastgrl(
            *verb, "--blocks", "1", "-o", "tiny-vectors", "--cluster", cluster.address, cwd=edges
        )
        _, errors = program.communicate(timeout=120)
    assert program.returncode == 1
    assert re.search(r"error: a worker of tcp://\S+ died .*--blocks", errors.decode().replace("\n", " "))
    assert not (edges / "tiny-vectors").exists()


def test_a_graph_whose_vectors_the_caller_may_not_hold_goes_from_folder_to_folder(edges, undisturbed):
    (_, vectors), _ = undisturbed
    limit = vectors.nbytes // 4
    options = ("--cluster", "local:2", "--max-memory", str(limit), "--json")
    program = fastgrl(*EMBED, "-o", "limited-vectors", *options, cwd=edges)
    output, errors = program.communicate(timeout=200)
    assert program.returncode == 0, errors.decode()
    assert json.loads(output)["blocks"] == 4
    assert np.array_equal(vectors_in(edges / "limited-vectors")[1], vectors)
