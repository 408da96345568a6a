from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import fastgrl as fg
from fastgrl import parallel
from fastgrl.errors import ArgumentError
from fastgrl.parallel import available_cpus, parallel_map, single_threaded_blas, thread_count, use_threads


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_results_keep_their_order():
    for threads in (1, 2, 5):
        with use_threads(threads):
            assert parallel_map(lambda x: x * x, range(100)) == [x * x for x in range(100)]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_exception_is_raised_and_the_rest_is_dropped(threads):
    done = []

    def work(item):
        if item == 3:
            raise KeyError("three")
        time.sleep(0.001)
        done.append(item)

    with use_threads(threads), pytest.raises(KeyError, match="three"):
        parallel_map(work, range(1000))
    assert len(done) < 999


def test_work_really_runs_on_several_threads():
    barrier = threading.Barrier(3, timeout=20)
    with use_threads(3):
        parallel_map(lambda _: barrier.wait(), range(3))


def test_nested_calls_do_not_deadlock():
    with use_threads(2):
        assert parallel_map(lambda i: sum(parallel_map(abs, [-i, -i])), range(8)) == [2 * i for i in range(8)]


def test_threads_follow_the_request_else_the_cpus_we_may_use():
    assert thread_count() == available_cpus() >= 1
    with use_threads(5):
        assert thread_count() == 5
        with use_threads(None):
            assert thread_count() == 5
    assert thread_count() == available_cpus()
    with pytest.raises(ArgumentError), use_threads(0):
        pass


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.cfs_quota_us": "300000\n", "cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({}, None),
    ],
)
def test_cgroup_quotas_are_read(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert parallel._cpu_quota(tmp_path) == expected


def test_blas_gets_its_threads_back_even_after_overlapping_calls():
    fsvd = fg.fsvd  # imported now: it may bring another BLAS with it
    before = blas_threads()
    with single_threaded_blas():
        assert set(blas_threads()) == {1}
        with single_threaded_blas():
            pass
        assert set(blas_threads()) == {1}
        workers = [threading.Thread(target=fsvd, args=(np.eye(40), 3)) for _ in range(4)]
        for worker in workers:
            worker.start()
    for worker in workers:
        worker.join()
    assert blas_threads() == before


def test_blas_gets_its_threads_back_after_an_error():
    before = blas_threads()
    with pytest.raises(ArgumentError):
        fg.fsvd(np.eye(4), 9)
    with pytest.raises(ZeroDivisionError):
        fg.fsvd(fg.Function((4, 4), lambda X: 1 / 0, lambda X: X), 2)
    assert blas_threads() == before


def test_a_blas_that_is_loaded_inside_a_body_is_limited_as_well():
    program = """
import numpy
from threadpoolctl import threadpool_info
from fastgrl.parallel import parallel_map, single_threaded_blas
def threads(*_): return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]
print(threads())
with single_threaded_blas():
    import scipy.linalg
    print(*parallel_map(threads, [0]))
print(threads())
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    before, inside, after = (set(json.loads(line)) for line in found.splitlines())
    assert inside == {1}
    assert after == before


def test_a_limit_that_is_in_force_is_not_set_again(monkeypatch):
    with single_threaded_blas():
        monkeypatch.setattr(parallel, "_set_blas_threads", None)
        with single_threaded_blas(), use_threads(2):
            assert parallel_map(abs, [-1, 2]) == parallel_map(lambda x: parallel_map(abs, [x])[0], [-1, 2])
        monkeypatch.undo()


PROGRAM = """
    import hashlib, sys
    import numpy as np, scipy.sparse as sp
    import fastgrl as fg
    from fastgrl import kernels, linalg

    kernels.WORTH_A_THREAD = linalg._WORTH_A_THREAD = 0  # every pass goes through the pool
    n = 30_000
    graph = sp.random_array((n, n), density=3e-4, rng=0, format="csr") > 0
    A = (graph + graph.T).astype(bool)
    d = np.maximum(A.sum(1), 1).astype(np.float32)
    M = fg.Polynomial(fg.Matrix(A, row_scale=1 / d), [3, 2, 1]) - 0.02 * (fg.Ones((n, n)) - A)
    for method in ("krylov", "subspace"):
        svd = fg.fsvd(M, 16, method=method, n_iter=2, seed=3, n_threads=int(sys.argv[1]))
        print(hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in svd)).hexdigest())
"""


def digests(threads: int) -> str:
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(threads)]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


def test_same_seed_same_bits_for_any_threads_also_on_a_busy_machine():
    quiet = [digests(threads) for threads in (1, 2, 4)]
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        busy = [digests(threads) for threads in (1, 2, 4)]
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert len({*quiet, *busy}) == 1
    assert len(quiet[0].split()) == 2


def test_seeds_differ():
    a = np.random.default_rng(0).standard_normal((60, 50))
    one, two = (fg.fsvd(a, 3, n_iter=0, seed=seed).s for seed in (0, 1))
    assert not np.array_equal(one, two)


def test_no_global_random_state_is_read_or_set():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one = fg.fsvd(np.diag(np.arange(1.0, 40)), 3).U
    np.random.seed(1)  # noqa: NPY002
    assert np.array_equal(one, fg.fsvd(np.diag(np.arange(1.0, 40)), 3).U)
    np.random.seed(0)  # noqa: NPY002
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def _child(queue):
    with use_threads(2):
        queue.put(parallel_map(abs, list(range(10))))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_gets_threads_of_its_own():
    with use_threads(2):
        parallel_map(abs, list(range(10)))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    assert queue.get(timeout=30) == list(range(10))
    child.join(timeout=30)
    assert child.exitcode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another mechanism there")
def test_an_interrupt_ends_a_run_at_once():
    program = (
        textwrap.dedent(PROGRAM)
        .replace("n_iter=2", "n_iter=500")
        .replace("for method", "print('go', flush=True)\nfor method")
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program, "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "go\n"
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert run.returncode != 0
