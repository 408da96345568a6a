"""What can be wrong with written pages: links that lead nowhere, words that no dictionary knows."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from doc_blocks import DOCS, ROOT, Page
from spylls.hunspell import Dictionary

WORDS = DOCS / "spelling.txt"
_LINK = re.compile(r"(?<!\\)\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)", re.M)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
# Inline code, addresses, HTML, lines of the API reference, file names, options and names in code: no words.
_NOT_PROSE = [
    re.compile(r"(?s)\A---\n.*?\n---\n"),
    re.compile(r"(?s)(`+)(?!`).+?(?<!`)\1(?!`)"),
    re.compile(r"\]\([^)]*\)"),
    re.compile(r"<[^>\n]*>"),
    re.compile(r"(?:https?://|doi:|arXiv:?\s?)\S+"),
    re.compile(r"(?m)^\s*:::.*(?:\n[ ]+.*)*"),
    re.compile(r"\{[:.#][^}\n]*\}"),
    re.compile(r"[\w.*/-]*(?:/[\w.*-]+)+/?"),
    re.compile(r"\b[\w-]+\.(?:md|py|csv|npz|npy|toml|json|jsonl|parquet|html|png|cpp|txt)\b"),
    re.compile(r"(?<!\w)(?:--?|\.)[a-z][\w-]*"),
    re.compile(r"\w*(?:_\w*)+|\w*\d\w*"),
    re.compile(r"\w+\.\w+(?:\.\w+)*"),
]


@dataclass
class Html(HTMLParser):
    """The names that can be linked to on a page, and what it links to."""

    path: Path
    names: set[str] = field(default_factory=set)
    links: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        self.links += [(self.getpos()[0], given[name]) for name in ("href", "src") if name in given]


def dead_links(site: Path) -> tuple[list[str], set[str]]:
    """Links of a built site that lead nowhere, and the addresses outside it that it links to."""
    pages = {path: Html(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    dead, outside = [], set()
    for path, page in pages.items():
        for line, link in page.links:
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                outside.add(link)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            where = f"{path.relative_to(site)}:{line}: {link}"
            if not target.is_file():
                dead.append(f"{where}: no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].names:
                dead.append(f"{where}: no such place on that page")
    return dead, outside


def source_links(page: Page) -> Iterator[tuple[int, str]]:
    """Links of a Markdown file, with their lines; those within blocks and inline code are not links."""
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", lambda code: " " * len(code[0]), page.prose)
    for found in _LINK.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[1] or found[2]


def heading_names(page: Page) -> set[str]:
    """The names that a Markdown file's headings get on a page of a repository's host."""
    if page.path.suffix != ".md":
        return set()
    names: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", page.prose, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names[name] = names.get(name, -1) + 1
    return {
        name if count == 0 else f"{name}-{count}" for name, most in names.items() for count in range(most + 1)
    }


def dead_source_links(page: Page) -> list[str]:
    """Relative links of a Markdown file to files of the repository that are not there, and odd addresses."""
    dead = []
    for line, link in source_links(page):
        parts = urlsplit(link)
        where = f"{page.name}:{line}: {link}"
        if parts.scheme or parts.netloc:
            if (
                parts.scheme not in ("https", "http", "mailto")
                or " " in link
                or ("." not in parts.netloc + parts.path)
            ):
                dead.append(f"{where}: not an address")
            continue
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        # Between pages of the site, the builder looks headings up, under the names that they get there.
        on_site = page.path.is_relative_to(DOCS) and target.is_relative_to(DOCS)
        if not target.exists():
            dead.append(f"{where}: no such file")
        elif parts.path.startswith("/") or not target.is_relative_to(ROOT):
            dead.append(f"{where}: outside the repository")
        elif not on_site and parts.fragment not in {"", *heading_names(Page(target))}:
            dead.append(f"{where}: no such heading")
    return dead


def prose_words(text: str) -> Iterator[tuple[int, str]]:
    """The words of running text, with their lines; blocks are not running text."""
    for pattern in _NOT_PROSE:
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for found in _WORD.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[0].replace("’", "'")


@cache
def _dictionary() -> Dictionary:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves closing its files to Python
        read = Dictionary.from_files("en_US")
        gc.collect()
    return read


@cache
def british() -> dict[str, str]:
    """British spellings with the American ones, from codespell's list."""
    import codespell_lib

    listed = Path(codespell_lib.__file__).parent / "data" / "dictionary_en-GB_to_en-US.txt"
    pairs = (line.split("->") for line in listed.read_text(encoding="utf-8").splitlines() if "->" in line)
    return {ours: theirs.split(",")[0].strip() for ours, theirs in pairs}


@cache
def own_words() -> frozenset[str]:
    """Words of the project and its field: one to a line of docs/spelling.txt."""
    lines = WORDS.read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines for word in line.partition("#")[0].split())


@cache
def is_word(word: str) -> bool:
    """Whether a word is English, British or American, or one of ours.

    A word of ours in lower case may begin a sentence; one in upper case is spelt as it is listed.
    """
    word = word.removesuffix("'s").removesuffix("'")
    if len(word) == 1 or not word.isascii() or re.search(r"'[A-Z]|^[a-z][A-Z]$", word):
        return True  # letters of formulas
    forms = {word, word.lower()} if word[0].isupper() and word[1:].islower() else {word}
    if forms & own_words() or any(_dictionary().lookup(form) for form in forms):
        return True
    return any(form.lower() in british() for form in forms)


def misspelt(name: str, text: str) -> list[str]:
    """Words that no dictionary knows, each with its file and line."""
    return [f"{name}:{line}: {word}" for line, word in prose_words(text) if not is_word(word)]
