"""Where a run took place: machine, versions, the state of the source, the data."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import fastgrl
from fastgrl.datasets import describe
from fastgrl.parallel import available_cpus, thread_count

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "torch_geometric", "gensim")
_SHORT = 5


def machine() -> dict[str, Any]:
    """The processor, how much of it is used, memory and system."""
    return {
        "cpu": _processor(),
        "cpus": available_cpus(),
        "threads": thread_count(),
        "memory_bytes": _memory(),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Of Python and of what computes."""
    found = {"python": platform.python_version(), "fastgrl": fastgrl.__version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_state() -> dict[str, Any] | None:
    """The commit of the source this is run from, and whether files differ from it; None if there is none."""
    folder = Path(fastgrl.__file__).parent
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None or (Path(top) / "src" / "fastgrl").resolve() != folder.resolve():
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None or changed is None else {"commit": commit, "dirty": bool(changed)}


def data_digest(name: str) -> str | None:
    """One checksum of a dataset's files, each of which was checked when it was read; None if it has none."""
    files = sorted((file.name, file.sha256) for file in describe(name).files)
    return hashlib.sha256(repr(files).encode()).hexdigest() if files else None


def load_average() -> float | None:
    """How many programs wanted to run in the last minute; None where the system does not say."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def _git(folder: Path, *words: str) -> str | None:
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=_SHORT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
