from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

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
REFERENCE = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
REFERRED = re.findall(r"^::: (\S+)$", REFERENCE, re.M)
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


def documented(name: str) -> Any:
    """What the reference calls `name`: the longest part of it that is a module, and attributes of that."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(name)


def own_members(kind: type) -> dict[str, Any]:
    """Methods and properties that a class of ours brings; scikit-learn makes and documents its requests."""
    ours = (property, classmethod, staticmethod, type(vars(fg.Graph)["csr"]))
    return {
        name: getattr(kind, name)
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, ours))
    }


def lacking(words: Any, text: str) -> list[str]:
    return [word for word in words if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text)]


CLASSES = [name for name in PUBLIC if inspect.isclass(getattr(fg, name))]
THINGS = {name: documented(name) for name in REFERRED}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_is_in_one_line_and_shows_an_example(name):
    text = getattr(fg, name).__doc__
    summary, _, rest = text.partition("\n\n")
    assert summary.count("\n") == 0
    assert summary.endswith(".")
    assert ">>> " in rest


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_and_property_of_a_public_class_is_documented(name):
    assert not [
        member for member, value in own_members(getattr(fg, name)).items() if not inspect.getdoc(value)
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_of_a_public_name_is_named_in_its_docstring(name):
    thing = getattr(fg, name)
    if name in ("Operator", "FastgrlError"):  # neither is made by users
        return
    assert not lacking(inspect.signature(thing).parameters, inspect.getdoc(thing) or "")


@pytest.mark.parametrize("name", CLASSES)
def test_every_parameter_of_a_method_is_named_in_its_docstring(name):
    methods = {key: value for key, value in own_members(getattr(fg, name)).items() if callable(value)}
    unsaid = {
        key: lacking(set(inspect.signature(method).parameters) - {"self"}, inspect.getdoc(method) or "")
        for key, method in methods.items()
    }
    assert not {key: words for key, words in unsaid.items() if words}


@pytest.mark.parametrize("name", ["LinkPredictor", "NodeClassifier", "NodeFeatures"])
def test_every_parameter_and_learnt_attribute_of_an_estimator_is_listed(name):
    kind, graph = getattr(fg, name), fg.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)])
    if name == "LinkPredictor":
        fitted = kind(n_components=2).fit(graph).partial_fit([(3, 4)])
    elif name == "NodeClassifier":
        fitted = kind().fit(graph, [0, -1, -1, 1]).relabel({1: 0})
    else:
        fitted = kind(graph).fit()
    _, arguments, attributes = re.split(r"^(?:Args|Attributes):$", inspect.getdoc(kind), flags=re.M)
    listed = re.compile(r"^    (\w+)(?: \(\w+\))?: ", re.M)
    assert listed.findall(arguments) == list(inspect.signature(kind).parameters)
    learnt = {attribute for attribute in [*vars(fitted), *own_members(kind)] if attribute.endswith("_")}
    assert set(listed.findall(attributes)) == learnt


def test_the_reference_shows_every_public_name_once():
    shown = [name.replace("fastgrl.fsvd.fsvd", "fastgrl.fsvd") for name in REFERRED]
    assert len(set(shown)) == len(shown)
    assert not {f"fastgrl.{name}" for name in PUBLIC} - {"fastgrl.FastgrlError"} - set(shown)
    assert "fastgrl.errors" in shown  # where FastgrlError is


@pytest.mark.parametrize("name", REFERRED)
def test_what_the_reference_shows_is_documented(name):
    thing = THINGS[name]
    assert inspect.getdoc(thing)
    if inspect.isclass(thing):
        assert all(inspect.getdoc(value) for value in own_members(thing).values())


@pytest.mark.parametrize("name", REFERRED)
def test_an_example_can_be_pasted_where_only_fastgrl_numpy_and_scipy_are_imported(name):
    names = {"fg": fg, "np": np, "scipy": scipy}
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
    said: list[str] = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(THINGS[name], name, globs=names):
        # A sub-module is an attribute of the package only where somebody has imported it.
        assert not re.search(
            r"\bfg\.[a-z_]+\.[a-z_]+\(", "".join(example.source for example in test.examples)
        )
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)


def test_the_tree_of_errors_has_every_error_under_what_it_is():
    errors = importlib.import_module("fastgrl.errors")
    kinds = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)}
    for name, kind in kinds.items():
        python = [base.__name__ for base in kind.__bases__ if base.__module__ == "builtins"]
        line = re.search(rf"^ .*\b{name}\b.*$", errors.__doc__, re.M)
        assert line is not None
        assert line[0].endswith(f" {python[0]})"), line[0]


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
