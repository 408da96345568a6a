"""The laws and spectra of the functional SVD on blocks of a cluster whose tasks run in this process."""

from __future__ import annotations

import inspect

import libraries
import pytest
import test_frameworks

from fastgrl.distributed.addresses import Address
from fastgrl.distributed.clusters import Cluster
from fastgrl.distributed.engines import HERE

globals().update(
    {
        name: law
        for name, law in vars(test_frameworks).items()
        if name.startswith("test_") and "library" in inspect.signature(law).parameters
    }
)


@pytest.fixture
def library(tmp_path):
    return libraries.cluster_library(Cluster(HERE, 3, storage=Address.of(tmp_path)))
