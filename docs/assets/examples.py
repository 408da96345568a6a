"""Examples in docstrings, as the tests run them, become blocks of code in the reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

# From the first prompt to the next blank line: what doctest takes for an example and its output.
_EXAMPLE = re.compile(r"^([ ]*)>>> .*(?:\n[ ]*\S.*)*", re.M)


class Examples(griffe.Extension):
    """Markdown would take `>>>` for quotations inside quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put fences around the examples of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(found: re.Match[str]) -> str:
    return f"{found[1]}```pycon\n{found[0]}\n{found[1]}```"
