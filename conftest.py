import numpy as np
import pytest
import scipy.sparse

import fastgrl


@pytest.fixture(autouse=True)
def _names_in_docstring_examples(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(fg=fastgrl, np=np, scipy=scipy)
