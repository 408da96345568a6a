"""Any text as LaTeX that compiles with an ordinary font: ASCII alone, nothing special left unescaped."""

from __future__ import annotations

import unicodedata

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "`": r"\textasciigrave{}",
    '"': "''",
    # After a line's end these two would be its option and its star.
    "[": "{[}",
    "*": "{*}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": r"$-$",
    "≠": r"$\neq$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "→": r"$\rightarrow$",
    "∞": r"$\infty$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "ß": r"\ss{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0327": "c",
    "\u0328": "k",
}
# As Unicode spells them; the others look like Latin letters and have no command.
_GREEK_CAPITALS = "gamma delta theta lamda xi pi sigma upsilon phi psi omega"
_GREEK = f"{_GREEK_CAPITALS} alpha beta epsilon zeta eta iota kappa mu nu rho tau chi"


def escaped(text: str) -> str:
    r"""Text as LaTeX shows it.

    What no ordinary font has is named by its code point, so that whatever stands in a record compiles.

    >>> print(escaped("50 % of A_b & Â, λ ± 2"))
    50 \% of A\_b \& \^{A}, $\lambda$ $\pm$ 2
    """
    return "".join(map(_character, text))


def _character(character: str) -> str:
    if known := _SPECIAL.get(character):
        return known
    if character.isascii():
        return character if character.isprintable() else " "
    return _greek(character) or _accented(character) or f"(U+{ord(character):04X})"


def _greek(character: str) -> str:
    name = unicodedata.name(character, "").lower()
    for size, letters in (("small", _GREEK), ("capital", _GREEK_CAPITALS)):
        letter = name.removeprefix(f"greek {size} letter ")
        if letter != name and letter in letters.split():
            command = letter.replace("lamda", "lambda")
            return f"$\\{command if size == 'small' else command.capitalize()}$"
    return ""


def _accented(character: str) -> str:
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[0].isascii() and parts[0].isalpha() and parts[1] in _ACCENTS:
        return f"\\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return ""
