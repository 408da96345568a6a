"""What pages share: one file that opens without any network, its policy, its style, drawings in its text."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import import_module, resources
from typing import TYPE_CHECKING, Any

from fastgrl.errors import MissingExtraError
from fastgrl.reports.figures import FAINT, INK, ON_DEEP, ON_PALE, PALETTE, PAPER

if TYPE_CHECKING:
    from markupsafe import Markup

# The page gives the colours of figures new values on dark screens.
_VARIABLES = {
    INK: "var(--ink)",
    PAPER: "var(--paper)",
    FAINT: "var(--line)",
    ON_DEEP: "var(--on-deep)",
    ON_PALE: "var(--on-pale)",
    **{colour: f"var(--series-{place})" for place, colour in enumerate(PALETTE)},
}


def templates(what: str) -> Any:
    """Jinja2, which drawings need as well (markupsafe comes with it); `what` is what needs it."""
    try:
        return import_module("jinja2")
    except ImportError:
        raise MissingExtraError(f"{what} needs jinja2: pip install 'fastgrl[plots]'") from None


def rendered(name: str, what: str, *, styles: tuple[str, ...] = ("page.css",), **values: Any) -> str:
    """A template with its values, each of them escaped; `what` needs jinja2, if it is missing."""
    jinja2 = templates(what)
    surroundings = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_text),
    )
    script = _text("page.js")
    html: str = surroundings.get_template(name).render(
        style=_markup("".join(map(_text, styles))),
        script=_markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **values,
    )
    return html


def _text(name: str) -> str:
    return resources.files("fastgrl.reports").joinpath(name).read_text("utf-8")


def _markup(text: str) -> Markup:
    """A text of ours, to stand in the page as it is."""
    from markupsafe import Markup

    return Markup(text)


def inline(svg: bytes, name: str, text: str) -> Markup:
    """A drawing as a part of the page: ids of its own, the page's colours, and what it shows in words."""
    from markupsafe import Markup, escape

    drawing = svg.decode()
    # A style of the drawing would hold for the whole page, which has it in its own.
    parts = r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>"
    drawing = re.sub(parts, "", drawing, flags=re.DOTALL)
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{_identifier(name)}-", drawing)
    drawing = re.sub("|".join(_VARIABLES), lambda found: _VARIABLES[found[0]], drawing)
    size = re.compile(r' (?:width|height)="[^"]*pt"')
    head, rest = drawing.split(">", 1)
    return Markup(f'{size.sub("", head)} role="img" aria-label="{escape(text)}">{rest}')


def _identifier(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", name)
