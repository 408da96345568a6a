"""What is written in a page: its fenced blocks, what they promise to print, and its inline code."""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

RUN = ("python", "console")
SHOWN = ("text", "math")
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*(.*?)[ \t]*$")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n[ \t]*\n).)+?)(?<!`)\1(?!`)", re.S)
_EXIT = re.compile(r"\s+# exit (\d+)$")


@dataclass(frozen=True)
class Block:
    """A fence: its kind, the file it becomes if it has a title, its text and the line that begins on."""

    kind: str
    title: str | None
    code: str
    line: int


@dataclass(frozen=True)
class Command:
    """A line of a console, and what it promises: output (None: anything) and exit code."""

    text: str
    line: int
    output: str | None
    exit: int


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def needs(self) -> str | None:
        """What the front matter asks for: torch, cluster or nothing."""
        front = re.match(r"---\n(.*?)\n---\n", self.text, re.S)
        found = re.search(r"^needs:\s*(\w+)\s*$", front[1], re.M) if front else None
        return found[1] if found else None

    @cached_property
    def _parts(self) -> tuple[list[Block], str]:
        """The blocks, and the text with blocks blanked out, so that lines keep their numbers."""
        blocks, prose, inside = [], [], None
        for number, line in enumerate(self.text.splitlines(), start=1):
            fence = _FENCE.match(line)
            if inside is None:
                if fence:
                    inside = (fence, number, [])
                prose.append("" if fence else line)
                continue
            opening, start, lines = inside
            prose.append("")
            if fence and not fence[3] and fence[2].startswith(opening[2]):
                kind, _, rest = opening[3].partition(" ")
                title = re.search(r'title="([^"]*)"', rest)
                code = "".join(each.removeprefix(opening[1]) + "\n" for each in lines)
                blocks.append(Block(kind, title and title[1], code, start + 1))
                inside = None
            else:
                lines.append(line)
        assert inside is None, f"{self.name}:{inside[1]}: this fence is never closed"
        return blocks, "\n".join(prose)

    @property
    def blocks(self) -> list[Block]:
        return self._parts[0]

    @property
    def prose(self) -> str:
        return self._parts[1]

    @cached_property
    def spans(self) -> list[tuple[int, str]]:
        """Inline code, with the lines it begins on."""
        return [
            (self.prose.count("\n", 0, found.start()) + 1, " ".join(found[2].split()))
            for found in _SPAN.finditer(self.prose)
        ]


def pages() -> list[Page]:
    """The pages whose every block is run: the README and docs/*.md."""
    return [Page(ROOT / "README.md"), *map(Page, sorted(DOCS.glob("*.md")))]


def recorded() -> list[Page]:
    """Pages that record what was run or decided once: their blocks are not run again."""
    return [Page(path) for path in sorted(DOCS.rglob("*.md")) if path.parent != DOCS]


def promised_prints(code: str) -> list[tuple[int, int, str]]:
    """Of every `print(...)  # text`: first line, last line, text. Lines count from 1.

    >>> promised_prints("print(1)  # 1: the first\\nprint(2)\\n")
    [(1, 1, '1: the first')]
    """
    comments = {
        token.start[0]: token.string.lstrip("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT
    }
    calls = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    return sorted(
        (call.lineno, call.end_lineno, comments[call.end_lineno])
        for call in calls
        if call.end_lineno in comments
    )


def is_printed(printed: str, promise: str) -> bool:
    """Whether a print wrote what its comment says, up to an explanation after a colon.

    >>> is_printed("True", "True: both ways"), is_printed("{'a': 1}", "{'a': 1}"), is_printed("Tru", "True")
    (True, True, False)
    """
    return matches(printed, promise) or any(
        matches(printed, promise[: found.start()]) for found in re.finditer(": ", promise)
    )


def matches(printed: str, promise: str) -> bool:
    """Whether lines are as promised: … within a line stands for anything, alone on a line for any lines.

    >>> matches("a 12 s\\nb\\nc\\nd", "a … s\\n…\\nd"), matches("a\\nb", "a")
    (True, False)
    """
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line.strip() == "…" else re.escape(line).replace("…", "[^\n]*?") + "\n"
        for line in _lines(promise)
    )
    return re.fullmatch(pattern, "".join(line + "\n" for line in _lines(printed))) is not None


def first_difference(printed: str, promise: str) -> str:
    """The promised line up to which everything matches."""
    lines = _lines(promise)
    for count in range(1, len(lines) + 1):
        if not matches(printed, "\n".join([*lines[:count], "…"])):
            return f"first line that is not there: {lines[count - 1]!r}"
    return "more was printed than the page shows"


def _lines(text: str) -> list[str]:
    """Lines without trailing blanks, and without empty ones at either end."""
    return [line.rstrip() for line in textwrap.dedent(text).strip("\n").rstrip().splitlines()]


def commands(block: Block) -> list[Command]:
    """The commands of a console block, each with the output that stands below it."""
    lines = block.code.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    assert starts, "a console block without a line that begins with `$ `"
    assert not any(line.strip() for line in lines[: starts[0]]), "output before the first command"
    found = []
    for start, end in pairwise([*starts, len(lines)]):
        last = start
        while lines[last].endswith("\\"):
            last += 1
        text = "\n".join(lines[start : last + 1]).removeprefix("$ ")
        exit_code = _EXIT.search(text)
        below = "\n".join(lines[last + 1 : end])
        found.append(
            Command(
                _EXIT.sub("", text),
                block.line + start,
                below if below.strip() else None,
                int(exit_code[1]) if exit_code else 0,
            )
        )
    return found
