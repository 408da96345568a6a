"""Factorise the walk matrix of the digits graph without forming it, and show how good the answer is.

The graph joins each of scikit-learn's 1797 handwritten digits to its 10 nearest neighbours. The matrix is the
paper's M = Σ cᵢTⁱ − λ(11' − A) with window 5: dense, although the graph is sparse.
"""

import time
import tracemalloc

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

import fastgrl as fg

WINDOW, NEGATIVE, RANK = 5, 0.02, 32


def bar(value: float, largest: float, width: int = 50) -> str:
    return "█" * max(1, round(width * value / largest))


def main() -> None:
    digits = load_digits()
    nearest = kneighbors_graph(digits.data, 10)
    A = (nearest + nearest.T).astype(bool)
    n, degrees = A.shape[0], A.sum(axis=1).A1.astype(np.float32)

    T = fg.Matrix(A, row_scale=1 / degrees, name="T")
    M = fg.Polynomial(T, range(WINDOW, 0, -1)) - NEGATIVE * (fg.Ones((n, n)) - fg.Matrix(A))
    print(f"graph      {n} digits, {A.nnz // 2} undirected edges to the nearest neighbours")
    print(f"matrix     {M}")
    print(f"kernel     {fg.kernel_info()}\n")

    start = time.perf_counter()
    svd = fg.fsvd(M, RANK, seed=0)
    seconds = time.perf_counter() - start
    tracemalloc.start()
    fg.fsvd(M, RANK, seed=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    print(f"the {RANK} largest singular values")
    for i, value in enumerate(svd.s[:16]):
        print(f"  σ{i + 1:<3}{value:9.3f}  {bar(value, svd.s[0])}")
    print(f"  …   {svd.s[-1]:9.3f}  {bar(svd.s[-1], svd.s[0])}\n")

    print("certificate (measured, not assumed)")
    print("  " + str(fg.certificate(M, svd)).replace("\n", "\n  "))

    embedding = svd.U[:, 1:] * np.sqrt(svd.s[1:])
    neighbours = kneighbors_graph(embedding, 10).indices.reshape(n, 10)
    agree = (digits.target[neighbours] == digits.target[:, None]).mean()
    print(f"\nof the 10 nearest digits in the embedding, {100 * agree:.1f} % show the same numeral")
    print(f"time       {seconds * 1000:.0f} ms on {fg.kernel_info().threads} threads")
    print(f"memory     {peak / 2**20:.1f} MiB at the peak ({4 * n * n / 2**20:.1f} MiB for the dense matrix)")


if __name__ == "__main__":
    main()
