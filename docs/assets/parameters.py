"""Lists of parameters, as docstrings here write them, in the form that the reference's parser reads."""

from __future__ import annotations

import re
from typing import Any

import griffe

_LIST = re.compile(r"^Parameters\n-{3,}\n((?:\S.*\n?|[ ]+.*\n?)+)", re.M)


class Parameters(griffe.Extension):
    """`Parameters`, underlined, then `name: text` at the margin: indented, that is Google's style.

    Examples that follow a list stay behind it, as a section of their own.
    """

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one class or function."""
        if obj.docstring is not None:
            obj.docstring.value = _LIST.sub(_indented, obj.docstring.value)


def _indented(found: re.Match[str]) -> str:
    return "Parameters:\n" + "".join(f"    {line}\n" for line in found[1].splitlines())
