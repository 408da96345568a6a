"""The package as strangers get it: built, installed and used in environments of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SMOKE = """
import numpy as np, scipy.sparse as sp, fastgrl as fg
A = sp.random_array((300, 200), density=0.1, rng=0, format="csr")
U, s, Vt = fg.fsvd(A, 5, n_iter=20)
assert np.allclose(s, np.linalg.svd(A.toarray(), compute_uv=False)[:5], rtol=1e-4)
assert fg.certificate(A, (U, s, Vt)).complete
print(fg.kernel_info())
"""


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=environment.pop("cwd", None),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def path_without_compilers(folder: Path) -> str:
    """A PATH with the ordinary tools but no compiler, CMake or Ninja."""
    folder.mkdir()
    for tool in ("env", "sh", "uname", "git", "cat"):
        if found := shutil.which(tool):
            (folder / tool).symlink_to(found)
    return str(folder)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The tracked files alone, as a fresh clone has them."""
    folder = tmp_path_factory.mktemp("clone") / "fastgrl"
    run("git", "clone", "--quiet", ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def dist(source):
    run(sys.executable, "-m", "build", "--outdir", source / "dist", source)
    return source / "dist"


@pytest.fixture
def environment(tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "env")
    return tmp_path / "env" / "bin"


def install(environment: Path, *what: object, **variables: str) -> None:
    run(environment / "python", "-m", "pip", "install", "--quiet", *what, **variables)


def test_the_wheel_works_without_a_compiler_on_the_path(dist, environment, tmp_path):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".cpp", ".h"))]
    path = path_without_compilers(tmp_path / "tools")
    install(environment, wheel, PATH=path)
    kernel = run(environment / "python", "-W", "error", "-c", SMOKE, PATH=path, cwd=str(tmp_path))
    assert kernel.startswith(("avx2", "portable"))


def test_the_source_distribution_builds_with_a_compiler(dist, environment, tmp_path):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert {"_kernels.cpp", "_edges.cpp", "_edges.h"} <= {Path(n).name for n in archive.getnames()}
    install(environment, sdist)
    kernel = run(environment / "python", "-W", "error", "-c", SMOKE, cwd=str(tmp_path))
    assert kernel.startswith(("avx2", "portable"))


def test_the_source_distribution_installs_without_a_compiler(dist, environment, tmp_path):
    (sdist,) = dist.glob("*.tar.gz")
    path = path_without_compilers(tmp_path / "tools")
    install(environment, sdist, PATH=path, CC="", CXX="")
    kernel = run(environment / "python", "-W", "error", "-c", SMOKE, PATH=path, cwd=str(tmp_path))
    assert kernel.startswith("scipy kernel")


def test_with_a_broken_compiler_the_install_succeeds_and_every_test_passes(source, environment):
    install(environment, f"{source}[dev]", CXX="/bin/false")
    python = environment / "python"
    said = run(python, "-c", "import fastgrl; print(fastgrl.kernel_info())", cwd="/")
    assert said.startswith("scipy kernel, 1 threads (the compiled kernel was not built")
    names = ("test_pyg.py", "test_gcn.py", "test_torch_*.py", "test_devices.py", "test_moving.py")
    names += ("test_frameworks.py", "test_derivatives.py", "test_tensorflow.py", "test_docs.py")
    of_frameworks = (f"--ignore-glob={source / 'tests' / name}" for name in names)
    options = ("-q", "-p", "no:cacheprovider", *of_frameworks)
    tests = run(python, "-m", "pytest", *options, source / "tests", cwd=str(source))
    assert " passed" in tests
    assert "skipped" not in tests
