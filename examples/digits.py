"""Factorise the walk matrix of the digits graph without forming it, and show how good the answer is.

The graph joins each of scikit-learn's 1797 handwritten digits to its 10 nearest neighbours. The matrix is the
paper's M = Σ cᵢTⁱ − λ(11' − A) with window 5: dense, although the graph is sparse.

    python examples/digits.py [FOLDER]      # writes digits.png there
"""

import sys
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

import fastgrl as fg

WINDOW, NEGATIVE, RANK = 5, 0.02, 32


def main(folder: Path) -> None:
    digits = load_digits()
    nearest = kneighbors_graph(digits.data, 10)
    A = (nearest + nearest.T).astype(bool)
    n, degrees = A.shape[0], np.asarray(A.sum(axis=1), np.float32).ravel()

    T = fg.Matrix(A, row_scale=1 / degrees, name="T")
    M = fg.Polynomial(T, range(WINDOW, 0, -1)) - NEGATIVE * (fg.Ones((n, n)) - fg.Matrix(A))
    start = time.perf_counter()
    U, s, Vt = fg.fsvd(M, RANK, seed=0)
    print(f"graph       {n} digits, {A.nnz // 2} undirected edges to the nearest neighbours")
    print(f"matrix      {M}")
    print(f"time        {1000 * (time.perf_counter() - start):.0f} ms\n")
    found = fg.certificate(M, (U, s, Vt))
    print("certificate (measured, not assumed)", *str(found).splitlines(), sep="\n  ")
    near = kneighbors_graph(U[:, 1:] * np.sqrt(s[1:]), 10).indices.reshape(n, 10)
    agree = (digits.target[near] == digits.target[:, None]).mean()
    print(f"\nof the 10 nearest digits in the embedding, {100 * agree:.1f} % show the same numeral")

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.bar(range(1, RANK + 1), s, color="#3b6ea5", width=0.7)
    left.bar(RANK + 1, found.next_value, color="#c8c8c8", width=0.7)
    left.text(RANK + 1.5, found.next_value + 1, "first left out", color="#6a6a6a", ha="right")
    left.set(xlabel="number", title=f"singular values, {100 * found.captured:.0f} % of the energy captured")
    right.scatter(U[:, 2], U[:, 3], c=digits.target, cmap="tab10", s=5, alpha=0.6, linewidths=0)
    for numeral in range(10):
        x, y = np.median(U[digits.target == numeral][:, 2:4], axis=0)
        right.text(x, y, str(numeral), fontsize=15, weight="bold", ha="center", va="center")
    right.set(xticks=[], yticks=[], title="third and fourth singular vectors by numeral")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "digits.png", dpi=120)
    print(f"picture     {folder / 'digits.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
