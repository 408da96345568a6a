"""The examples run as they stand; the README, whose blocks are run by test_docs, names what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(*command: str, folder: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.docs
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_and_end_with_a_picture(example, tmp_path):
    picture = tmp_path / f"{example.stem}.png"
    printed = run(str(example), str(tmp_path))
    assert printed.splitlines()[-1].endswith(str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_there_are_at_most_six_examples_of_at_most_sixty_lines():
    assert len(EXAMPLES) <= 6
    for example in EXAMPLES:
        assert len(example.read_text(encoding="utf-8").splitlines()) <= 60, example


def test_the_make_targets_of_the_readme_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)", text):
        assert f"\n{target}:" in makefile
