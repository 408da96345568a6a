"""What the benchmark scripts share: header, interleaved timing, children, graphs, and the optional peers."""

from __future__ import annotations

import datetime
import functools
import gc
import importlib
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import fastgrl as fg
from fastgrl.parallel import available_cpus, thread_count

# BLAS and OpenMP threads spin for up to 0.2 s after their last task: let them fall asleep between turns,
# or each contender is timed on what the one before it leaves of the cores.
PAUSE = 0.3
DATASETS = ("soc-facebook", "ppi", "ca-HepTh", "ca-AstroPh")
_POWER_LAW = 2.5


# Whatever any of the scripts compares with, so that every table says what it was made beside.
PACKAGES = (
    *("numpy", "scipy", "scikit-learn", "torch", "mkl", "sparse_dot_mkl", "numba"),
    *("scikit-network", "pycleora", "gensim", "torch_geometric"),
    *("polars", "pandas", "pyarrow", "networkx", "igraph"),
)


def header() -> str:
    """Date, machine, the versions of all peers, and how steady the machine is just now."""
    versions = {name: _version(name) for name in PACKAGES}
    there = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    missing = ", ".join(name for name, version in versions.items() if not version)
    return (
        f"{datetime.date.today()}, {_cpu_name()}, {available_cpus()} CPUs, {_memory() / 1e9:.0f} GB\n"
        f"python {platform.python_version()}, {there}\n"
        + (f"not installed: {missing}\n" if missing else "")
        + f"fastgrl {fg.__version__}: {fg.kernel_info()}\n{steadiness()}\n"
    )


def steadiness(seconds: float = 0.5) -> str:
    """How evenly the same 5 ms of work are done over and over: 1.00 on a machine that does nothing else."""
    neighbours, numbers = Neighbours(), np.arange(1 << 16, dtype=np.float64)
    times: list[float] = []
    while sum(times) < seconds:
        begin = time.perf_counter()
        for _ in range(100):
            np.sqrt(numbers, out=numbers)
        times.append(time.perf_counter() - begin)
    noise = statistics.median(times) / min(times)
    return f"noise: equal work took {noise:.2f} of its best time in the median; {neighbours}"


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


class Timing(NamedTuple):
    """Seconds of the best call and of the median call."""

    best: float
    median: float

    @property
    def noise(self) -> float:
        """Median over best: 1 on a quiet machine."""
        return self.median / self.best


def race(
    contenders: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    seconds: float = 0.1,
    check: Callable[[str, Any], None] = lambda _name, _result: None,
) -> dict[str, Timing]:
    """Time every contender in turn, `rounds` times, forwards and backwards alternately.

    A turn is a pause and then calls for at least `seconds`. The first call of all is not timed; `check`
    gets its result.
    """
    for name, run in contenders.items():
        check(name, run())
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            times[name] += _turn(contenders[name], seconds)
    return {name: Timing(min(t), statistics.median(t)) for name, t in times.items()}


def _turn(run: Callable[[], Any], seconds: float) -> list[float]:
    gc.collect()
    time.sleep(PAUSE)
    times: list[float] = []
    while not times or sum(times) < seconds:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return times


@dataclass(frozen=True)
class Child:
    """What one process took, by the kernel's account: wall and CPU seconds, most resident bytes."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    text: str
    errors: str
    status: int


def run_child(
    command: Sequence[str], *, most_data: int | None = None, environment: Mapping[str, str] | None = None
) -> Child:
    """Run a command to its end and take its figures from wait4(2), so that no other child is in them.

    The peak is of the process from its start on, whose first pages are those of this one: call it from a
    small process. `most_data` is a second guard, kept by the kernel: it refuses private memory beyond that.
    """
    with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        started = subprocess.Popen(
            command,
            stdout=text,
            stderr=errors,
            env={**os.environ, **(environment or {})},
            preexec_fn=None if most_data is None else functools.partial(_limit_data, most_data),
        )
        _, status, used = os.wait4(started.pid, 0)
        seconds = time.perf_counter() - begin
        started.returncode = os.waitstatus_to_exitcode(status)  # or Popen would wait for it again
        text.seek(0)
        errors.seek(0)
        return Child(
            seconds,
            used.ru_utime + used.ru_stime,
            1024 * used.ru_maxrss,
            text.read().decode(),
            errors.read().decode(),
            started.returncode,
        )


def _limit_data(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


class Neighbours:
    """What other processes, and other guests of the same host, take of the CPUs from now on.

    A BLAS whose threads wait for each other becomes many times slower when one of them loses its core, so
    a table made beside busy neighbours says little about its peers.
    """

    def __init__(self) -> None:
        self._begin = _cpu_seconds()

    def percent(self) -> float:
        """Of all CPUs, since this was made; NaN where the system does not say."""
        if self._begin is None or (now := _cpu_seconds()) is None:
            return math.nan
        mine, everyone, total = (b - a for a, b in zip(self._begin, now, strict=True))
        return 100 * max(0.0, everyone - mine) / max(total, 1e-9)

    def __str__(self) -> str:
        return f"other processes took {self.percent():.0f} % of the CPUs while this was timed"


def _cpu_seconds() -> tuple[float, float, float] | None:
    """CPU seconds so far: this process and its children's, everyone's, and everyone's with idle time."""
    try:
        ticks = [int(tick) for tick in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    except OSError:
        return None
    seconds = [tick / os.sysconf("SC_CLK_TCK") for tick in ticks]  # user nice system idle iowait … steal
    return sum(os.times()[:4]), sum(seconds) - sum(seconds[3:5]), sum(seconds)


def chung_lu(num_nodes: int, num_edges: int, seed: int) -> sp.csr_array:
    """A random power-law graph: a symmetric 0/1 float32 matrix with `2 num_edges` stored entries.

    Expected degrees fall as a power law with exponent 2.5 up to the model's limit √(2 num_edges), and
    belong to node numbers in random order, so that neighbours do not lie near each other in memory.
    Repeated edges and loops are drawn again.
    """
    rng = np.random.default_rng(seed)
    share = rng.permutation(_degree_shares(num_nodes, num_edges))
    edges = np.empty(0, np.int64)
    while (missing := num_edges - len(edges)) > 0:
        edges = _distinct(np.concatenate([edges, _draw_edges(rng, share, missing + missing // 20 + 10)]))
    surplus = rng.choice(len(edges), len(edges) - num_edges, replace=False, shuffle=False)
    return _symmetric(np.delete(edges, surplus), num_nodes)


def _degree_shares(num_nodes: int, num_edges: int) -> NDArray[np.float64]:
    share = np.arange(1.0, num_nodes + 1) ** (-1 / (_POWER_LAW - 1))
    share = np.minimum(share / share.sum(), (2 * num_edges) ** -0.5)
    return share / share.sum()


def _draw_edges(rng: np.random.Generator, share: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Edges {a, b} with a < b as the numbers a n + b: both ends independent, drawn as counts per node."""
    nodes = np.arange(len(share), dtype=np.int32)
    one, other = (np.repeat(nodes, rng.multinomial(count, share)) for _ in range(2))
    rng.shuffle(other)
    keys = np.minimum(one, other).astype(np.int64)
    keys *= len(share)
    keys += np.maximum(one, other)
    return keys[one != other]


def _distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    keys.sort()
    return keys[np.append(True, keys[1:] != keys[:-1])]


def _symmetric(edges: NDArray[np.int64], num_nodes: int) -> sp.csr_array:
    """The adjacency matrix of sorted edges a n + b."""
    rows, columns = (part.astype(np.int32) for part in np.divmod(edges, num_nodes))
    starts = np.append(0, np.cumsum(np.bincount(rows, minlength=num_nodes))).astype(np.int32)
    del rows
    upper = sp.csr_array((np.ones(len(edges), np.float32), columns, starts), shape=(num_nodes, num_nodes))
    return upper + upper.T.tocsr()


def link_dataset(name: str) -> sp.csr_array:
    """The training graph of a link prediction dataset: symmetric, 0/1, float32."""
    folder = _data_folder() / "asymproj" / name
    parts = [np.load(folder / f"{part}.txt.npy") for part in ("train", "test", "test.neg")]
    size = 1 + max(int(part.max()) for part in parts)
    rows, columns = parts[0].T
    directed = sp.coo_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(size, size)).tocsr()
    return ((directed + directed.T) > 0).astype(np.float32)


def _data_folder() -> Path:
    folder = os.environ.get("FASTGRL_DATA")
    if not folder:
        sys.exit(
            "set FASTGRL_DATA to the folder that holds asymproj/<dataset>/{train,test,test.neg}.txt.npy "
            f"for {', '.join(DATASETS)}"
        )
    return Path(folder)


def inverse_degrees(graph: sp.csr_array, dtype: Any = np.float32) -> NDArray[Any]:
    """1 / degree, and 0 for nodes without neighbours."""
    degrees = np.diff(graph.indptr).astype(dtype)
    return np.divide(1, degrees, out=np.zeros_like(degrees), where=degrees > 0)


@functools.cache
def load_mkl() -> ModuleType | None:
    """`sparse_dot_mkl` on as many threads as fastgrl, told where pip puts MKL; None when not installed."""
    for library in sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*")):
        os.environ.setdefault("MKL_RT", str(library))
    os.environ.setdefault("MKL_THREADING_LAYER", "INTEL")
    module = _optional("sparse_dot_mkl")
    if module is not None:
        module.mkl_set_num_threads(thread_count())
    return module


@functools.cache
def load_torch() -> ModuleType | None:
    """`torch` on as many threads as fastgrl; None when not installed."""
    module = _optional("torch")
    if module is not None:
        module.set_num_threads(thread_count())
    return module


@functools.cache
def load_numba() -> ModuleType | None:
    """`numba`; None when not installed."""
    return _optional("numba")


def _optional(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"not installed: {name} ({error})")
        return None


def torch_csr(torch: ModuleType, matrix: sp.csr_array) -> Any:
    """The same matrix as a torch sparse CSR tensor, sharing its arrays."""
    parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(*parts, matrix.shape, check_invariants=False)


def peer_threads() -> str:
    """How many threads each library will use."""
    mkl, torch = load_mkl(), load_torch()
    counts = {"fastgrl": thread_count()}
    counts |= {"MKL": mkl.mkl_get_max_threads()} if mkl else {}
    counts |= {"torch": torch.get_num_threads()} if torch else {}
    return "threads: " + ", ".join(f"{name} {count}" for name, count in counts.items()) + "; SciPy 1"
