from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse

import fastgrl

# A module of another library's arrays can be imported where that library is installed.
collect_ignore = [
    f"src/fastgrl/frameworks/{module}.py"
    for module, library in [
        ("torch", "torch"),
        ("jax", "jax"),
        ("tensorflow", "tensorflow"),
        ("moving", "torch"),
    ]
    if find_spec(library) is None
]


@pytest.fixture(autouse=True)
def _names_in_docstring_examples(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(fg=fastgrl, np=np, scipy=scipy)
