"""Edge lists of any size as text, written a piece at a time.

    python benchmarks/edge_files.py FILE [--scale 20] [--edge-factor 16] [--seed 0]

The edges of an R-MAT graph, repeats and all, as lines "n17,n4032"; the same file for any number of threads.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastgrl.datasets.synthetic import RmatEdges, rmat_edges
from fastgrl.parallel import parallel_map, thread_count

Array = NDArray[Any]

_HALF = 10_000  # four digits: a table of them stays in the cache
_LIMIT = _HALF * _HALF
# A line before the zeros in front of numbers are dropped: n 12345678 , n 12345678 newline.
_LINE = np.dtype(
    [(f"{side}_{part}", form) for side in "uv" for part, form in (("n", "u1"), ("d", "<u8"), ("end", "u1"))]
)


def _tables() -> tuple[Array, Array]:
    """The digits of every number below 10⁴ as four bytes: with zeros in front, and with null bytes there."""
    numbers = np.arange(_HALF)
    digits = np.stack([numbers // 10**k % 10 for k in (3, 2, 1, 0)], axis=1) + ord("0")
    short = np.where(numbers[:, None] >= 10 ** np.array([3, 2, 1, 0]), digits, 0)
    short[0, 3] = ord("0")
    return digits.astype(np.uint8).view("<u4").ravel(), short.astype(np.uint8).view("<u4").ravel()


_PADDED, _SHORT = (table.astype(np.uint64) for table in _tables())


def _digits(numbers: Array) -> Array:
    high = numbers // _HALF
    low = numbers - _HALF * high
    long = _PADDED[low] << np.uint64(32) | _SHORT[high]
    return np.where(high > 0, long, _SHORT[low] << np.uint64(32))


def lines(sources: Array, targets: Array) -> bytes:
    """One line for each edge between node numbers below 10⁸."""
    block = np.empty(len(sources), _LINE)
    block["u_n"] = block["v_n"] = ord("n")
    block["u_end"], block["v_end"] = ord(","), ord("\n")
    block["u_d"], block["v_d"] = _digits(sources), _digits(targets)
    return block.tobytes().translate(None, b"\0")


def write_edge_list(path: Path, edges: RmatEdges) -> int:
    """Write all edges under a line "source,target", at most a few pieces in memory; returns the bytes."""
    assert 1 << edges.scale <= _LIMIT, "node numbers have at most eight digits"

    def text(number: int) -> bytes:
        return lines(*edges.piece(number))

    with path.open("wb") as file:
        file.write(b"source,target\n")
        for first in range(0, edges.num_pieces, step := 8 * thread_count()):
            file.writelines(parallel_map(text, range(first, min(first + step, edges.num_pieces))))
        return file.tell()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--edge-factor", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begin = time.perf_counter()
    edges = rmat_edges(given.scale, edge_factor=given.edge_factor, seed=given.seed)
    size, seconds = write_edge_list(given.file, edges), time.perf_counter() - begin
    print(f"{edges.num_edges:,} edges, {size / 1e9:.2f} GB in {seconds:.1f} s: ", end="")
    print(f"{edges.num_edges / seconds / 1e6:.1f} million a second, {size / edges.num_edges:.1f} bytes each")


if __name__ == "__main__":
    main()
