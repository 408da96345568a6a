from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
        "LinkPredictor",
        "LowRank",
        "Matrix",
        "NodeClassifier",
        "NodeFeatures",
        "Ones",
    ),
    *(
        "Operator",
        "Polynomial",
        "SVD",
        "VStack",
        "as_operator",
        "certificate",
        "cross_validate",
        "embed",
        "fsvd",
        "kernel_info",
        "load",
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
    assert set(fg.__all__) == set(PUBLIC) == {name for name in dir(fg) if is_public(name)}
    assert len(PUBLIC) <= 35


def is_public(name: str) -> bool:
    plumbing = {"TYPE_CHECKING", "Any", "ModuleType", "import_module"}
    return not (name.startswith("_") or name in plumbing or inspect.ismodule(getattr(fg, name)))


def test_type_checkers_see_the_public_names():
    source = Path(fg.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r"import (\w+) as \1\n", source)) == set(PUBLIC)


@pytest.mark.parametrize("first", ["import fastgrl.fsvd", "import fastgrl.certificates", "import fastgrl"])
def test_a_function_is_not_hidden_by_the_module_of_its_name(first):
    program = (
        f"{first}; import fastgrl; from fastgrl import fsvd; print(fastgrl.fsvd is fsvd, callable(fsvd))"
    )
    assert in_a_new_process(program).split() == ["True", "True"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'grpah'"):
        fg.__getattr__("grpah")


def test_every_public_name_is_documented():
    assert all((inspect.getdoc(getattr(fg, name)) or "").strip() for name in PUBLIC)


def test_the_version_is_that_of_the_installed_package():
    from importlib.metadata import version

    assert version("fastgrl") == fg.__version__


def in_a_new_process(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_importing_imports_no_optional_package():
    # scikit-learn looks for pandas and the like itself: what it brings is not ours.
    begin = "import sys, sklearn.base, sklearn.utils.validation; before = set(sys.modules); "
    program = f"{begin} import fastgrl; from fastgrl import *; print(*(set(sys.modules) - before))"
    loaded = in_a_new_process(program).split()
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
