from __future__ import annotations

import inspect
import subprocess
import sys

import fastgrl as fg

PUBLIC = [
    *(
        "Certificate",
        "Diagonal",
        "FastgrlError",
        "Function",
        "Graph",
        "HStack",
        "Identity",
        "LowRank",
        "Matrix",
        "Ones",
    ),
    *(
        "Operator",
        "Polynomial",
        "SVD",
        "VStack",
        "as_operator",
        "certificate",
        "fsvd",
        "kernel_info",
        "load_dataset",
        "pinv_apply",
        "read_graph",
        "renormalised",
        "symmetric",
        "transition",
    ),
]
OPTIONAL = [
    "torch",
    "jax",
    "tensorflow",
    "dask",
    "matplotlib",
    "networkx",
    "pandas",
    "polars",
    "typer",
    "rich",
    "pooch",
    "narwhals",
    "pyarrow",
    "igraph",
    "zstandard",
]


def test_the_public_names_are_the_reviewed_list():
    exported = {
        name for name, value in vars(fg).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert exported == set(PUBLIC)
    assert len(PUBLIC) <= 35


def test_every_public_name_is_documented():
    assert all((inspect.getdoc(getattr(fg, name)) or "").strip() for name in PUBLIC)


def test_the_version_is_that_of_the_installed_package():
    from importlib.metadata import version

    assert version("fastgrl") == fg.__version__


def in_a_new_process(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_importing_imports_no_optional_package():
    loaded = in_a_new_process("import fastgrl, sys; print(*sys.modules)").split()
    assert not {name.split(".")[0] for name in loaded} & set(OPTIONAL)


def test_importing_starts_nothing():
    program = """
import threading, fastgrl.kernels
print(threading.active_count(), fastgrl.kernels._compiled.cache_info().currsize)
"""
    assert in_a_new_process(program).split() == ["1", "0"]


def test_importing_adds_little_to_what_it_rests_on():
    # Best of five, so that a busy machine does not count.
    program = """
import time, numpy, scipy.sparse, sklearn.base
start = time.perf_counter()
import fastgrl
print(time.perf_counter() - start)
"""
    assert min(float(in_a_new_process(program)) for _ in range(5)) <= 0.15
