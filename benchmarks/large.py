"""A graph whose rows are larger than the memory it may take: imported and embedded within the limit.

    python benchmarks/large.py [--quick] [--edges 3e8] [--max-memory 2GB] [--folder FOLDER]
        [--edges-file FILE] [--keep] [--json FILE]

Writes an edge list of an R-MAT graph, about 16 bytes per edge, or takes one with `--edges-file`; then runs
`fastgrl import` and `fastgrl embed --design degree-walk --rank 32`, with `--max-memory`. The peak of each
is the kernel's count of what was resident, wait4(2), mapped files included. Limits of a gigabyte and more are
guarded a second time: the kernel refuses the process more private memory than the limit (RLIMIT_DATA).
Last, on a smaller graph, the vectors that were made in memory and those made from disk within a limit are
compared bit for bit, id by id. Wants about 25 bytes of disk for each edge and a kilobyte for each node.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Child, header, run_child
from edge_files import write_edge_list
from numpy.typing import NDArray

from fastgrl.datasets.synthetic import rmat_edges
from fastgrl.estimate import format_bytes, parse_bytes

RANK, GUARDED = 32, 10**9
# With so many edges per node the rows outgrow the limit, and the vectors of the nodes do not.
EDGES_PER_NODE = 72
SAME_EDGES = 1_000_000


@dataclass(frozen=True)
class Step:
    """A command, its limit, and what the kernel says of it."""

    name: str
    limit: int | None
    child: Child

    @property
    def within(self) -> bool:
        """Done, and never more resident than allowed."""
        return self.child.status == 0 and (self.limit is None or self.child.peak_bytes <= self.limit)

    def __str__(self) -> str:
        child = self.child
        limit = "none" if self.limit is None else format_bytes(self.limit)
        verdict = "within" if self.within else f"exit code {child.status}" if child.status else "ABOVE"
        times = f"{child.seconds:10.1f}{child.cpu_seconds:10.1f}"
        return f"{self.name:<28}{times}{format_bytes(child.peak_bytes):>12}{limit:>10}  {verdict}"


def fastgrl(name: str, *arguments: Any, limit: int | None, scratch: Path) -> Step:
    """Run a command with `--max-memory`; whatever it spills goes to `scratch`."""
    command = [sys.executable, "-m", "fastgrl", *map(str, arguments), "--quiet", "--force"]
    if limit is not None:
        command += ["--max-memory", str(limit)]
    guard = limit if limit is not None and limit >= GUARDED else None
    step = Step(name, limit, run_child(command, most_data=guard, environment={"TMPDIR": str(scratch)}))
    print(step, flush=True)
    if step.child.status:
        print(step.child.errors.strip())
    return step


def embed(graph: Path, out: Path, *, limit: int | None, scratch: Path) -> Step:
    options = ["--design", "degree-walk", "--rank", RANK, "-o", out]
    return fastgrl(f"embed {graph.name}", "embed", graph, *options, limit=limit, scratch=scratch)


def import_graph(edges: Path, graph: Path, *, limit: int | None, scratch: Path) -> Step:
    return fastgrl(f"import {edges.name}", "import", edges, graph, limit=limit, scratch=scratch)


def make_edges(path: Path, count: int) -> None:
    scale = max(4, (count // EDGES_PER_NODE).bit_length())
    edges = rmat_edges(scale, edge_factor=max(1, round(count / 2**scale)))
    begin = time.perf_counter()
    size, seconds = write_edge_list(path, edges), time.perf_counter() - begin
    rate = f"{edges.num_edges / seconds / 1e6:.1f} million edges a second"
    print(f"{path.name}: {edges.num_edges:,} edges, {format_bytes(size)}, written in {seconds:.0f} s, {rate}")


def titles() -> None:
    print(f"{'':28}{'seconds':>10}{'CPU':>10}{'resident':>12}{'limit':>10}")


def larger_than_memory(edges: Path, folder: Path, limit: int) -> dict[str, Any]:
    graph, out = folder / "graph", folder / "vectors.npy"
    titles()
    steps = [import_graph(edges, graph, limit=limit, scratch=folder)]
    if not steps[0].child.status:
        steps.append(embed(graph, out, limit=limit, scratch=folder))
    rows = sum(path.stat().st_size for path in graph.glob("ind*")) if graph.exists() else 0
    print(f"rows on disk {format_bytes(rows)}, {rows / limit:.2f} of the limit")
    return {
        "rows_bytes": rows,
        "edge_list_bytes": edges.stat().st_size,
        "limit_bytes": limit,
        "within": len(steps) == 2 and all(step.within for step in steps),
        "steps": {step.name: [step.child.seconds, step.child.peak_bytes] for step in steps},
    }


def same_bits(folder: Path, count: int, limit: int) -> bool:
    """Whether reading the text into memory and the folder within a limit give every node the same bits."""
    edges, graph = folder / "small.csv", folder / "small"
    make_edges(edges, count)
    titles()
    steps = [
        embed(edges, folder / "in-memory.npy", limit=None, scratch=folder),
        import_graph(edges, graph, limit=limit, scratch=folder),
        embed(graph, folder / "from-disk.npy", limit=limit, scratch=folder),
    ]
    if any(step.child.status for step in steps):
        return False
    one, other = (sorted_by_id(folder / name) for name in ("in-memory.npy", "from-disk.npy"))
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def sorted_by_id(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ids and vectors; a text keeps the order in which ids appear, a folder has them sorted."""
    ids = np.array(path.with_suffix(".ids.csv").read_text().splitlines()[1:])
    order = np.argsort(ids)
    return ids[order], np.load(path)[order]


@contextlib.contextmanager
def working_folder(given: Path | None, *, keep: bool) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
    if keep and given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(dir=given) as name:
        yield Path(name)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--edges", type=float, default=3e8)
    parser.add_argument("--max-memory", type=parse_bytes, default=parse_bytes("2GB"))
    parser.add_argument("--same-limit", type=parse_bytes, default=parse_bytes("300MB"))
    parser.add_argument("--edges-file", type=Path, help="an edge list that is there already")
    parser.add_argument("--folder", type=Path, help="where everything is written (else the temporary folder)")
    parser.add_argument(
        "--keep", action="store_true", help="leave everything in --folder, and use an edge list there"
    )
    parser.add_argument("--json", type=Path, help="write the figures")
    parser.add_argument("--quick", action="store_true", help="three million edges within 200 MB")
    given = parser.parse_args()
    if given.quick:
        given.edges, given.max_memory = 3e6, parse_bytes("200MB")
    return given


def main() -> None:
    given = arguments()
    print(header())
    with working_folder(given.folder, keep=given.keep) as folder:
        edges = given.edges_file or folder / "edges.csv"
        if not edges.exists():
            make_edges(edges, round(given.edges))
        found = larger_than_memory(edges, folder, given.max_memory)
        found["same_bits"] = same_bits(folder, SAME_EDGES, given.same_limit)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"\nwithin {format_bytes(given.max_memory)}: {'yes' if found['within'] else 'NO'}")
    print(f"the same bits in memory and from disk: {'yes' if found['same_bits'] else 'NO'}")
    sys.exit(0 if found["within"] and found["same_bits"] else 1)


if __name__ == "__main__":
    main()
