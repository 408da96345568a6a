"""Faults, with real processes: workers killed or short of memory, schedulers and callers that die."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from clusters import (
    edge_folder,
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
from fastgrl.distributed import connected
from fastgrl.distributed.engines import Pending
from fastgrl.errors import UnavailableError

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    edge_folder(folder / "edges", 100_000, 400_000, text=False)
    return folder


EMBED = (
    *("embed", "edges", "--design", "degree-walk", "--rank", "16", "--window", "3"),
    *("--blocks", "4", "--quiet"),
)


OUT_OF_MEMORY = r"error: .*(memory is full|died again and again).*--blocks"


@functools.cache
def bytes_at_rest() -> int:
    """What a worker holds before it has done anything, which depends on versions of libraries."""
    libraries = "distributed, fastgrl.distributed.embedding, pandas, psutil, pyarrow.parquet"
    # Not the most that it ever held: a process that was forked begins with that of the one before it.
    program = f"import {libraries}; print(psutil.Process().memory_info().rss)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


def limit(megabytes: int) -> str:
    """So much memory for a worker beyond that."""
    return f"{bytes_at_rest() + megabytes * 10**6}B"


@pytest.fixture(scope="module")
def nursed(edges):
    """Two workers whose nannies start another in the place of one that died."""
    with external(edges / "nursed") as cluster, watching(cluster.address, 2) as client:
        yield cluster.address, client


@pytest.fixture(scope="module")
def undisturbed(edges, nursed):
    """What an embedding gives without a fault, and how long it takes."""
    begin = time.monotonic()
    succeed(fastgrl(*EMBED, "-o", "calm-vectors", "--cluster", nursed[0], cwd=edges))
    return vectors_in(edges / "calm-vectors"), time.monotonic() - begin


def succeed(program):
    _, errors = program.communicate(timeout=200)
    assert program.returncode == 0, errors.decode()


def killed_in_the_middle(verb, folder, address, client, *, after):
    """Run a verb on two workers, one of which is killed after so many tasks."""
    client.wait_for_workers(2, timeout=60)
    pids, before = worker_pids(client), tasks_done(client)
    program = fastgrl(*verb, "--cluster", address, cwd=folder)
    until(lambda: tasks_done(client) >= before + after)
    kill(pids[0])
    succeed(program)


@pytest.mark.parametrize("nanny", [True, False])
@pytest.mark.parametrize("after", [12, 150])
def test_a_worker_that_is_killed_changes_nothing(edges, nursed, undisturbed, nanny, after):
    (ids, vectors), seconds = undisturbed
    out, begin = f"killed-{nanny}-{after}", time.monotonic()
    verb = (*EMBED, "-o", out)
    if nanny:
        killed_in_the_middle(verb, edges, *nursed, after=after)
    else:
        alone = edges / f"cluster-{out}"
        with external(alone, 2, "--no-nanny") as cluster, watching(cluster.address, 2) as client:
            begin = time.monotonic()
            killed_in_the_middle(verb, edges, cluster.address, client, after=after)
    print(f"extra time: {time.monotonic() - begin - seconds:.1f} s on {seconds:.1f} s")
    found = vectors_in(edges / out)
    assert np.array_equal(found[0], ids)
    assert np.array_equal(found[1], vectors)


def test_a_worker_that_is_killed_while_nodes_are_classified_changes_nothing(tmp_path, nursed):
    write_digits(tmp_path)
    verb = ("classify", "edges.csv", "--labels", "labels.csv", "--no-select", "--quiet", "-o")
    succeed(fastgrl(*verb, "alone.csv", cwd=tmp_path))
    killed_in_the_middle((*verb, "there.csv"), tmp_path, *nursed, after=30)
    one, other = (pd.read_csv(tmp_path / name) for name in ("alone.csv", "there.csv"))
    assert (one["class"] == other["class"]).mean() > 0.995


def test_classes_go_from_folder_to_folder_past_a_worker_that_is_killed(tmp_path, nursed):
    digits = fg.load_dataset("digits")
    (tmp_path / "edges").mkdir()
    table = pd.DataFrame(digits.graph.edge_codes(), columns=["source", "target"])
    table.to_parquet(tmp_path / "edges" / "all.parquet")
    write_digits(tmp_path)
    verb = ("classify", "edges", "--labels", "labels.csv", "--quiet", "-o")
    nursed[1].wait_for_workers(2, timeout=60)
    succeed(fastgrl(*verb, "calm", "--cluster", nursed[0], cwd=tmp_path))
    killed_in_the_middle((*verb, "killed"), tmp_path, *nursed, after=60)
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


def ask_after_the_scheduler_went(programs, moment):
    import distributed

    with distributed.Client(programs.address, timeout=3) as client, connected(client) as cluster:
        (before,) = cluster.submit([Pending(abs, (-1,))])
        kill(programs.processes[0].pid)
        until(lambda: client.status == moment)
        cluster.gather([Pending(abs, (before,))])


@pytest.mark.parametrize("moment", ["connecting", "closed"])
@pytest.mark.usefixtures("nursed")  # which has a client of its own in this process, that Dask takes for ours
def test_a_scheduler_that_went_between_two_calls_is_the_same_error(tmp_path, moment):
    with external(tmp_path) as programs, pytest.raises(UnavailableError, match=r"is gone.*--checkpoint"):
        ask_after_the_scheduler_went(programs, moment)


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
        succeed(fastgrl(*verb, "--cluster", cluster.address, cwd=edges))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    found = vectors_in(edges / "resumed-vectors")
    assert np.array_equal(found[0], ids)
    assert np.array_equal(found[1], vectors)


def test_workers_with_less_memory_than_their_share_spill_and_the_answer_is_the_same(edges, undisturbed):
    (ids, vectors), _ = undisturbed
    with external(edges / "spill", 2, "--memory-limit", limit(175)) as cluster:
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
    workers = client.scheduler_info(n_workers=-1).get("workers", {}).values()
    return sum(worker["metrics"].get("spilled_bytes", {}).get("disk", 0) for worker in workers)


def test_workers_that_stay_paused_are_an_error_and_no_wrong_answer(edges, undisturbed):
    (_, vectors), _ = undisturbed
    with external(edges / "paused", 2, "--memory-limit", limit(100)) as cluster, watching(cluster.address, 2):
        program = fastgrl(*EMBED, "-o", "paused-vectors", "--cluster", cluster.address, cwd=edges)
        _, errors = program.communicate(timeout=200)
    said = errors.decode().replace("\n", " ")
    if program.returncode == 0:
        assert np.array_equal(vectors_in(edges / "paused-vectors")[1], vectors)
    else:
        assert program.returncode == 1
        assert re.search(OUT_OF_MEMORY, said)
        assert not (edges / "paused-vectors").exists()


def test_too_little_memory_is_an_error_that_says_what_to_do(edges):
    with external(edges / "tiny", 2, "--memory-limit", "130MB") as cluster, watching(cluster.address, 2):
        verb = [word for word in EMBED if word not in ("--blocks", "4")]
        program = fastgrl(
            *verb, "--blocks", "1", "-o", "tiny-vectors", "--cluster", cluster.address, cwd=edges
        )
        _, errors = program.communicate(timeout=120)
    assert program.returncode == 1
    assert re.search(OUT_OF_MEMORY, errors.decode().replace("\n", " "))
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
