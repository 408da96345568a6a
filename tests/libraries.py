"""The array libraries that every law is run over: how their arrays are made of NumPy's, and read."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

NAMES = ["numpy", "torch", "jax", "tensorflow"]


@dataclass(frozen=True)
class Library:
    name: str
    array: Callable[[np.ndarray], Any]
    sparse: Callable[[sp.csr_array], Any]
    host: Callable[[Any], np.ndarray]
    place: Callable[[Any], str]  # the device of an array
    kind: type  # of its arrays
    ready: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    # (operator, dtype): the operator with its arrays there; None: as `moved` does it
    operator: Callable[[Any, Any], Any] | None = None

    def moved(self, operator: Any, dtype: Any) -> Any:
        """An operator made of NumPy arrays, with its arrays there."""
        if self.operator is not None:
            return self.operator(operator, dtype)
        from fastgrl.frameworks.moving import moved

        return moved(operator, self.array(np.zeros(1, dtype)))


def numpy_library() -> Library:
    return Library(
        "numpy",
        np.array,
        sp.csr_array,
        np.asarray,
        lambda a: "host",
        np.ndarray,
        operator=lambda operator, _: operator,
    )


def torch_library() -> Library:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def sparse(a: sp.csr_array) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
            return torch.sparse_csr_tensor(a.indptr, a.indices, a.data, a.shape, check_invariants=True)

    @contextlib.contextmanager
    def one_thread() -> Iterator[None]:
        # The threads of its products wait for each other, which takes longer here than the products do.
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)

    def host(a: Any) -> np.ndarray:
        return a.detach().numpy()

    return Library("torch", torch.tensor, sparse, host, lambda a: str(a.device), torch.Tensor, one_thread)


def jax_library() -> Library:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    bcoo = pytest.importorskip("jax.experimental.sparse").BCOO

    def place(a: Any) -> str:
        return ", ".join(map(str, a.devices()))

    return Library(
        "jax",
        jax.numpy.asarray,
        lambda a: bcoo.from_scipy_sparse(sp.coo_array(a)),
        np.asarray,
        place,
        jax.Array,
        lambda: jax.enable_x64(True),
    )


def tensorflow_library() -> Library:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

    def sparse(a: sp.csr_array) -> Any:
        coo = sp.coo_array(a)
        coo.sum_duplicates()
        order = np.lexsort((coo.col, coo.row))
        where = np.stack([coo.row, coo.col], axis=1)[order].astype(np.int64)
        return tf.SparseTensor(where, coo.data[order], coo.shape)

    return Library("tensorflow", tf.constant, sparse, lambda a: a.numpy(), lambda a: a.device, tf.Tensor)


_MAKERS = {
    "numpy": numpy_library,
    "torch": torch_library,
    "jax": jax_library,
    "tensorflow": tensorflow_library,
}


def cluster_library(cluster: Any) -> Library:
    """Blocks that lie on a cluster."""
    from fastgrl.distributed.places import place_on
    from fastgrl.distributed.shards import share_rows
    from fastgrl.distributed.talls import Tall, Wide
    from fastgrl.kernels import csr_from_scipy

    def sparse(a: sp.csr_array) -> Any:
        return share_rows(cluster, csr_from_scipy(a))

    def moved(operator: Any, dtype: Any) -> Any:
        return place_on(cluster, dtype).moved(operator)

    return Library(
        "cluster",
        lambda a: cluster.spread(np.asarray(a)) if np.ndim(a) else np.asarray(a),
        sparse,
        cluster.seam.host,
        lambda a: "cluster",
        (Tall, Wide, np.ndarray),
        operator=moved,
    )


@contextlib.contextmanager
def opened(name: str) -> Iterator[Library]:
    """A library, with double precision and calm threads where that has to be asked for."""
    library = _MAKERS[name]()
    with library.ready():
        yield library
