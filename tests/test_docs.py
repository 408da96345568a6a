"""Python in the documentation runs as it stands, and prints what its comments say."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.frameworks
PAGE = (Path(__file__).parents[1] / "docs" / "frameworks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def needed(code: str) -> str:
    """The library that a block is for."""
    found = re.search(r"^import (torch|jax|tensorflow)", code, re.M)
    return found[1] if found else "torch"


@pytest.mark.parametrize("code", BLOCKS, ids=[f"{n}-{needed(code)}" for n, code in enumerate(BLOCKS)])
def test_code_in_the_documentation_runs_and_prints_what_it_says(code, tmp_path):
    if importlib.util.find_spec(needed(code)) is None:
        pytest.skip(f"{needed(code)} is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [comment.split(": ")[0] for comment in re.findall(r"^print\(.*\)  # (.*)$", code, re.M)]
    assert said
    assert done.stdout.splitlines() == said
