"""Everything in the documentation that can be run is run, in order, page by page, and prints what it says."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from itertools import pairwise
from pathlib import Path

import doc_interpreter
import pytest
from doc_blocks import (
    ROOT,
    RUN,
    SHOWN,
    Block,
    Command,
    Page,
    commands,
    first_difference,
    is_printed,
    matches,
    pages,
    promised_prints,
    recorded,
)

PAGES = pages()
EVERYWHERE = [*PAGES, *recorded(), Page(ROOT / "CONTRIBUTING.md")]
MARKS = {None: pytest.mark.docs, "torch": pytest.mark.frameworks, "cluster": pytest.mark.cluster}
PATIENCE = 300
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
BENCHMARKS = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py"))

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
everywhere = pytest.mark.parametrize("page", EVERYWHERE, ids=lambda page: page.name)


class Session:
    """One folder and one interpreter, for the blocks of one page."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page = page
        self.folder = folder / "page"
        self.folder.mkdir()
        (folder / "data").mkdir()
        self.log = open(folder / "stderr", "w+", encoding="utf-8")  # noqa: SIM115
        clean = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "PYTHONPATH")}
        nowhere = "http://127.0.0.1:9"  # a page that downloads fails, on every machine alike
        self.environment = clean | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "80",
            "PYTHONUTF8": "1",
            "FASTGRL_DATA": str(folder / "data"),
            "http_proxy": nowhere,
            "https_proxy": nowhere,
            "no_proxy": "localhost,127.0.0.1",
        }
        self.python: subprocess.Popen[str] | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self.python is not None:
            self.python.stdin.close()
            try:
                self.python.wait(60)
            except subprocess.TimeoutExpired:
                self.python.kill()
            self.python.stdout.close()
        self.log.close()

    def fail(self, line: int, *parts: str) -> None:
        pytest.fail("\n".join([f"{self.page.name}:{line}:", *parts]), pytrace=False)

    def run(self, block: Block) -> None:
        if block.title is not None:
            target = self.folder / block.title
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.code, encoding="utf-8")
        elif block.kind == "python":
            self.run_python(block)
        elif block.kind == "console":
            for command in commands(block):
                self.run_command(command)

    def run_python(self, block: Block) -> None:
        answer = self.ask(block)
        if answer["error"] is not None:
            self.fail(block.line, "this block does not run:", block.code, answer["error"])
        for first, last, promise in promised_prints(block.code):
            lines = range(block.line + first - 1, block.line + last)
            printed = "".join(text for line, text in answer["printed"] if line in lines)
            if not is_printed(printed, promise):
                source = "\n".join(block.code.splitlines()[first - 1 : last])
                self.fail(lines[0], source, f"  says      {promise}", f"  prints    {printed.rstrip()}")

    def ask(self, block: Block) -> dict:
        if self.python is None:
            self.python = subprocess.Popen(
                [sys.executable, "-W", "error", doc_interpreter.__file__],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
                encoding="utf-8",
            )
        watch = threading.Timer(PATIENCE, self.python.kill)
        watch.start()
        self.python.stdin.write(json.dumps([str(self.page.path), block.line, block.code]) + "\n")
        self.python.stdin.flush()
        answer = self.python.stdout.readline()
        watch.cancel()
        if not answer:
            self.log.seek(0)
            self.fail(block.line, "the interpreter died in this block:", block.code, self.log.read())
        return json.loads(answer)

    def run_command(self, command: Command) -> None:
        if is_checked_only(command.text):
            problem = check(command.text)
            if problem:
                self.fail(command.line, f"$ {command.text}", problem)
            return
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.text],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode != command.exit:
            self.fail(
                command.line,
                f"$ {command.text}",
                f"  should exit with {command.exit}, exits with {done.returncode} and prints",
                done.stdout,
            )
        if command.output is not None and not matches(done.stdout, command.output):
            self.fail(
                command.line,
                f"$ {command.text}",
                f"  prints something else; {first_difference(done.stdout, command.output)}",
                "--- the page says",
                command.output.strip("\n"),
                "--- it prints",
                done.stdout,
            )


def run(page: Page, folder: Path) -> None:
    """All blocks of a page, in order."""
    with Session(page, folder) as session:
        for block in page.blocks:
            session.run(block)


def is_checked_only(command: str) -> bool:
    """Whether a command changes more than the page's folder: it is then checked, not run."""
    return command.startswith(("pip install", "make ", "git clone ", "cd "))


def check(command: str) -> str | None:
    """What is wrong with a command, by its words alone."""
    words = shlex.split(command, comments=True)
    if words[:2] == ["pip", "install"]:
        asked = {
            extra.strip() for found in re.findall(r"\[(.*?)\]", " ".join(words)) for extra in found.split(",")
        }
        missing = (
            asked - set(PROJECT["optional-dependencies"]) if "fastgrl" in command or "." in command else set()
        )
        return f"there is no extra {', '.join(sorted(missing))} in pyproject.toml" if missing else None
    if words[:1] == ["make"]:
        missing = {word for word in words[1:] if "=" not in word and not word.startswith("-")} - set(TARGETS)
        return f"there is no target {', '.join(sorted(missing))} in the Makefile" if missing else None
    if words[:1] == ["python"] and len(words) > 1 and words[1].endswith(".py") and "/" in words[1]:
        if not (ROOT / words[1]).exists():
            return f"there is no file {words[1]}"
        missing = {w for w in words[2:] if re.match(r"--[a-z]", w) and f'"{w}"' not in BENCHMARKS}
        return f"no option {', '.join(sorted(missing))}" if missing else None
    if words[:1] == ["fastgrl"] or words[:3] == ["python", "-m", "fastgrl"]:
        return check_verb(words[1:] if words[0] == "fastgrl" else words[3:])
    return None


def check_verb(words: list[str]) -> str | None:
    """What is wrong with the arguments of `fastgrl`: an unknown verb or option; values are not looked at."""
    import typer

    from fastgrl.cli import app

    verb = typer.main.get_command(app)
    words = [word for each in words for word in re.split(r"[\[\]|]", each) if word]
    while hasattr(verb, "commands") and words and not words[0].startswith("-"):
        if words[0] not in verb.commands:
            # A name in capitals or a row of dots stands for any verb.
            return None if not words[0].islower() else f"there is no verb {words[0]}"
        verb = verb.commands[words.pop(0)]
    known = {"-h", "--help"} | {
        name for option in verb.params for name in (*option.opts, *option.secondary_opts)
    }
    for word in words:
        if re.match(r"--?[A-Za-z]", word) and word.split("=")[0] not in known:
            return f"{verb.name} has no option {word}"
    return None


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=MARKS[page.needs], id=page.path.stem) for page in PAGES]
)
def test_every_block_of_a_page_runs_and_prints_what_it_says(page, tmp_path):
    if page.needs == "torch":
        for library in ("torch", "jax", "tensorflow"):
            if f"import {library}\n" in page.text and importlib.util.find_spec(library) is None:
                pytest.skip(f"{library} is not installed")
        for block in page.blocks:
            assert block.kind != "python" or promised_prints(block.code), (
                f"{page.name}:{block.line}: unchecked"
            )
    run(page, tmp_path)


@pytest.mark.docs
@every_page
def test_every_block_is_of_a_kind_that_is_known(page):
    for block in page.blocks:
        if block.title is None:
            assert block.kind in RUN + SHOWN, f"{page.name}:{block.line - 1}: ```{block.kind}"


@pytest.mark.docs
@every_page
def test_no_command_hides_in_a_block_that_is_not_run(page):
    for block in page.blocks:
        if block.kind in SHOWN and block.title is None:
            for number, line in enumerate(block.code.splitlines()):
                hidden = re.match(
                    r"\s*(\$ |fastgrl [a-z]|pip install|python |make [a-z]|import fastgrl)", line
                )
                assert not hidden, f"{page.name}:{block.line + number}: {line}"


@pytest.mark.docs
@pytest.mark.parametrize("page", [*PAGES[1:], *recorded()], ids=lambda page: page.name)
def test_lists_are_lists_on_the_site_too(page):
    item = re.compile(r"\s*([-*]|\d+\.)\s")
    lines = page.prose.splitlines()
    for number, (before, line) in enumerate(pairwise(lines), start=2):
        where = f"{page.name}:{number}: {line}"
        glued = item.match(line) and before.strip() and not item.match(before) and before[0] not in " \t"
        assert not glued, f"{where}\na list begins after an empty line"
        assert not re.match(r"\s*\+ ", line), f"{where}\na plus that begins a line makes a list of it"
        assert not re.match(r" {1,3}(\||[-*] )", line), f"{where}\nwhat is within a list is indented by 4"


@pytest.mark.docs
@pytest.mark.parametrize("page", recorded(), ids=lambda page: page.name)
def test_a_page_of_records_does_not_look_as_if_it_were_run(page):
    assert not [block.line for block in page.blocks if block.kind in RUN]


@pytest.mark.docs
@everywhere
def test_commands_in_running_text_exist(page):
    problems = [
        f"{page.name}:{line}: `{span}`: {problem}"
        for line, span in page.spans
        if re.match(r"(fastgrl|python|make|pip install) ", span)
        for problem in [check(span)]
        if problem
    ]
    assert problems == []


TRUE = """# A page

```csv title="friends.csv"
ann,bob
```

=== "Python"

    ```python
    lines = open("friends.csv").read().splitlines()
    print(
        len(lines)
    )  # 1: line
    print({"a": 1})  # {'a': 1}
    ```

```console
$ cat friends.csv; \\
    echo 3.25 s; python -c 'import sys; print("wrong", file=sys.stderr); sys.exit(2)'  # exit 2
ann,bob
… s
…
$ command -v fastgrl > where.txt
$ pip install 'fastgrl[io,ann]'
```

```python
print(len(lines), len(open("where.txt").read()) > 0)  # 1 True
```
"""


def made_up(text: str) -> Page:
    page = Page(ROOT / "docs" / "made-up.md")
    page.__dict__["text"] = text
    return page


@pytest.mark.docs
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("# 1: line", "# 2: lines", "made-up.md:11:"),
        ("# {'a': 1}", "# {'a': 2}", "prints    {'a': 1}"),
        ("lines = ", "lines == ", "NameError"),
        ("lines = ", "import warnings; warnings.warn('old'); lines = ", "UserWarning: old"),
        ("lines = ", "import os; os._exit(3); lines = ", "the interpreter died"),
        ("ann,bob\n…", "ann,eve\n…", "first line that is not there: 'ann,eve'"),
        ("… s\n…\n", "… s\n", "more was printed than the page shows"),
        ("# exit 2", "# exit 1", "should exit with 1, exits with 2"),
        ("[io,ann]", "[io,anne]", "there is no extra anne"),
        ("1 True", "1 False", "made-up.md:28:"),
    ],
)
def test_a_page_that_lies_is_found_out(tmp_path, old, new, told):
    assert TRUE.count(old) == 1
    with pytest.raises(pytest.fail.Exception) as failure:
        run(made_up(TRUE.replace(old, new)), tmp_path)
    assert told in str(failure.value)


@pytest.mark.docs
def test_a_page_that_says_the_truth_passes(tmp_path):
    run(made_up(TRUE), tmp_path)


@pytest.mark.docs
@pytest.mark.parametrize(
    "command",
    [
        "fastgrl lnik x.csv",
        "fastgrl link --rnak 3",
        "fastgrl evaluate link x",
        "make nonsense",
        "make -s demos",
        "python benchmarks/none.py",
        "python benchmarks/released.py --libary tensorflow",
        "pip install 'fastgrl[oi]'",
    ],
)
def test_a_command_that_does_not_exist_is_found_out(command):
    assert check(command)


def test_a_file_that_stands_on_several_pages_is_the_same_on_all():
    texts = {}
    for page in PAGES:
        for block in page.blocks:
            if block.title is not None and block.title.endswith(".py"):
                assert texts.setdefault(block.title, block.code) == block.code, f"{page.name}: {block.title}"
