"""Sharpen a blurred signal by the SVD of a blur that is never formed.

The blur is two functions, X ↦ M X and X ↦ M'X, by fast Fourier transforms. Its pseudo-inverse of rank k
undoes it: too few directions leave the signal blurred, too many let the noise in.

    python examples/own_operator.py [FOLDER]      # writes own_operator.png there
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.fft import irfft, rfft

import fastgrl as fg

N, WIDTH, NOISE, RANK = 10_000, 100.0, 0.1, 120
TIME = np.arange(N)
# What arrives of a pulse: a rise and a tail, to one side, so that M and M' differ.
PASSED = rfft(TIME * np.exp(-TIME / WIDTH) / WIDTH**2, 2 * N)[:, None]


def forward(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(irfft(PASSED * rfft(X, 2 * N, axis=0), 2 * N, axis=0)[:N])


def backward(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(irfft(PASSED.conj() * rfft(X, 2 * N, axis=0), 2 * N, axis=0)[:N])


def main(folder: Path) -> None:
    M = fg.Function((N, N), forward, backward, name="blur")
    truth = np.where(np.abs(TIME - 3000) < 1000, 1.0, 0.0) + np.exp(-(((TIME - 7000) / 500) ** 2))
    seen = forward(truth[:, None]) + NOISE * np.random.default_rng(0).normal(size=(N, 1))
    U, s, Vt = fg.fsvd(M, RANK, seed=0)
    print(f"{M} of {8 * N**2 / 1e9:.1f} GB, if it were formed", fg.certificate(M, (U, s, Vt)), sep="\n")
    ranks = np.arange(2, RANK + 1, 2)
    solved = [fg.pinv_apply((U[:, :k], s[:k], Vt[:k]), seen)[:, 0] for k in ranks]
    errors = [100 * np.linalg.norm(x - truth) / np.linalg.norm(truth) for x in solved]
    best = int(np.argmin(errors))
    print(f"error {errors[best]:.1f} % at rank {ranks[best]}, {errors[-1]:.1f} % at rank {RANK}")
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    left.plot(seen[:, 0], ".", color="#d0d0d0", markersize=1, label="what was seen")
    left.plot(truth, color="black", linewidth=1, label="the truth")
    left.plot(solved[best], color="#3b6ea5", label=f"the pseudo-inverse of rank {ranks[best]}")
    left.legend(frameon=False, loc="upper center", ncols=3, markerscale=8)
    left.set(ylim=(-0.4, 1.6), xlabel="time")
    right.plot(ranks, errors, color="#3b6ea5")
    right.set(xlabel="rank of the pseudo-inverse", ylim=(0, None), title="error, % of the signal's norm")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "own_operator.png", dpi=120)
    print(f"picture {folder / 'own_operator.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
