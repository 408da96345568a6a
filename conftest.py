from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import fastgrl

_FRAMEWORKS = ("src/fastgrl/frameworks", "tests/test_tensorflow.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import TensorFlow and JAX for their own tests only: they take half a gigabyte, which others measure."""
    inside = any(collection_path.is_relative_to(config.rootpath / part) for part in _FRAMEWORKS)
    return True if inside and config.getoption("markexpr") != "frameworks" else None


@pytest.fixture(autouse=True)
def _names_in_docstring_examples(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(fg=fastgrl, np=np, scipy=scipy)


@pytest.fixture(autouse=True)
def _no_program_of_a_cluster_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.node.get_closest_marker("cluster"):
        from clusters import end_programs

        end_programs()
